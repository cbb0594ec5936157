#!/usr/bin/env python3
"""An origin that answers each request for a file after a delay: delayed.py FOLDER PORT MILLISECONDS ADDRESS…"""

import asyncio
import pathlib
import sys


class Connection(asyncio.Protocol):
    folder, delay = None, 0

    def connection_made(self, transport):
        self.transport, self.head = transport, b""

    def data_received(self, data):
        self.head += data
        while b"\r\n\r\n" in self.head:
            head, _, self.head = self.head.partition(b"\r\n\r\n")
            name = head.split(b" ", 2)[1].partition(b"?")[0].rpartition(b"/")[2].decode()
            asyncio.get_running_loop().call_later(self.delay, self.answer, name)

    def answer(self, name):
        body = (self.folder / name).read_bytes()
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


async def main(folder, port, milliseconds, *addresses):
    Connection.folder, Connection.delay = pathlib.Path(folder), int(milliseconds) / 1000
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Connection, address, int(port), backlog=1024) for address in addresses]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
