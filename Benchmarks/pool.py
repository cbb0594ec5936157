#!/usr/bin/env python3
"""One process of the plain Python pool: aiohttp fetches, Pillow decodes, nothing is kept.

Takes a file of URLs, one a line, and how many to have in flight. Says "ready", starts at a line on
standard input, and says how many pictures it decoded.
"""

import asyncio
import io
import pathlib
import sys

import aiohttp
from PIL import Image


async def work(session, urls):
    """Takes URLs until there are no more; gives how many pictures it had."""
    count = 0
    for url in urls:
        async with session.get(url) as response:
            response.raise_for_status()
            body = await response.read()
        # On the loop's own thread: with a process a core, threads would only be in each other's way.
        with Image.open(io.BytesIO(body)) as picture:
            picture.load()
        count += 1
    return count


async def run(urls, in_flight):
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:
        print("ready", flush=True)
        sys.stdin.readline()
        shared = iter(urls)
        return sum(await asyncio.gather(*(work(session, shared) for _ in range(in_flight))))


def main():
    urls = pathlib.Path(sys.argv[1]).read_text().split()
    print(asyncio.run(run(urls, int(sys.argv[2]))), flush=True)
    # Until its processor time has been read.
    sys.stdin.readline()


if __name__ == "__main__":
    main()
