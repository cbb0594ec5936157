"""Proxies on loopback, as a process: links between instances, database and bucket that can fail.

Arguments: the ports behind the links. Prints the ports of the links. Reads commands, one per line: `LINK FAULT SHARE`. The fault
is `open`, `cut` (connections are reset), `stall` (no byte passes) or `slow` (20 to 100 ms for each piece). It applies to this share
of the connections, chosen at random, also of new ones.
"""

import contextlib
import random
import socket
import struct
import sys
import threading
import time


class Link:
    def __init__(self, target):
        self.target, self.fault, self.share, self.pairs = target, "open", 1.0, set()
        self.changed = threading.Condition()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client = self.listener.accept()[0]
            fault = self.choice()
            if fault == "cut":
                reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target), 5)
            except OSError:
                reset(client)
                continue
            server.settimeout(None)
            pair = Pair(self, client, server, fault)
            with self.changed:
                self.pairs.add(pair)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pair.forward, args=ends, daemon=True).start()

    def set(self, fault, share):
        with self.changed:
            self.fault, self.share = fault, share
            pairs = list(self.pairs)
            for pair in pairs:
                pair.fault = self.choice()
            self.changed.notify_all()
        for pair in pairs:
            if pair.fault == "cut":
                pair.end()

    def choice(self):
        """The fault of one connection."""
        return self.fault if random.random() < self.share else "open"


class Pair:
    """A client's connection and the one to the server."""

    def __init__(self, link, client, server, fault):
        self.link, self.client, self.server, self.fault = link, client, server, fault
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def forward(self, source, target):
        try:
            while piece := source.recv(65_536):
                with self.link.changed:
                    self.link.changed.wait_for(lambda: self.fault != "stall")
                if self.fault == "slow":
                    time.sleep(random.uniform(0.02, 0.1))
                target.sendall(piece)
            with self.link.changed:
                self.link.changed.wait_for(lambda: self.fault != "stall")
        except OSError:
            pass
        self.end()

    def end(self):
        with self.link.changed:
            self.link.pairs.discard(self)
        for end in (self.client, self.server):
            reset(end)


def reset(connection):
    """Ends a connection as if the host were gone: the peer gets an error, not a regular end."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def serve():
    links = [Link(int(port)) for port in sys.argv[1:]]
    print(*(link.port for link in links), flush=True)
    for line in sys.stdin:
        number, fault, share = line.split()
        links[int(number)].set(fault, float(share))


if __name__ == "__main__":
    serve()
