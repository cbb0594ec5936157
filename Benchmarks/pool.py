#!/usr/bin/env python3
"""One process of the plain Python pool: aiohttp fetches, Pillow decodes, nothing is kept.

Takes a file of URLs, one a line, how many to have in flight, and perhaps a side: then it makes a JPEG of quality 80 within
that of each. Says "ready", starts at a line on
standard input, and says how many pictures it decoded.
"""

import asyncio
import io
import pathlib
import sys

import aiohttp
from PIL import Image


def look(body, side):
    """Decodes a picture, or makes a thumbnail of it as Pillow's own way is: at the decoder's scale, then Lanczos."""
    with Image.open(io.BytesIO(body)) as picture:
        if not side:
            picture.load()
            return
        picture.thumbnail((side, side), Image.LANCZOS)
        picture.convert("RGB").save(io.BytesIO(), "JPEG", quality=80)


async def work(session, urls, side):
    """Takes URLs until there are no more; gives how many pictures it had."""
    count = 0
    for url in urls:
        async with session.get(url) as response:
            response.raise_for_status()
            body = await response.read()
        # On the loop's own thread: with a process a core, threads would only be in each other's way.
        look(body, side)
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
    # Until its processor time has been read.
    sys.stdin.readline()


if __name__ == "__main__":
    main()
