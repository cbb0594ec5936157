#!/usr/bin/env python3
"""One process of the plain Python pool: aiohttp fetches, Pillow decodes, nothing is stored.

Arguments: a file of URLs, one per line, the number in flight, and optionally a size: then it makes a JPEG of quality 80 within
that size of each image. It prints "ready", starts at a line on
standard input, and prints the number of decoded images.
"""

import asyncio
import io
import pathlib
import sys

import aiohttp
from PIL import Image


def decode(body, side):
    """Decodes an image, or makes a thumbnail in Pillow's way: at the decoder's scale, then with Lanczos."""
    with Image.open(io.BytesIO(body)) as image:
        if not side:
            image.load()
            return
        image.thumbnail((side, side), Image.LANCZOS)
        image.convert("RGB").save(io.BytesIO(), "JPEG", quality=80)


async def work(session, urls, side):
    """Fetches and decodes URLs until there are no more. Returns the number of images."""
    count = 0
    for url in urls:
        async with session.get(url) as response:
            response.raise_for_status()
            body = await response.read()
        # On the event loop's thread. With one process per core, more threads would only compete.
        decode(body, side)
        count += 1
    return count


async def run(urls, in_flight, side):
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:
        print("ready", flush=True)
        sys.stdin.readline()
        shared = iter(urls)
        return sum(await asyncio.gather(*(work(session, shared, side) for _ in range(in_flight))))


def main():
    urls = pathlib.Path(sys.argv[1]).read_text().split()
    side = int(sys.argv[3]) if len(sys.argv) > 3 else None
    print(asyncio.run(run(urls, int(sys.argv[2]), side)), flush=True)
    # Wait until the CPU time of this process has been read.
    sys.stdin.readline()


if __name__ == "__main__":
    main()
