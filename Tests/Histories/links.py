"""Proxies on loopback, as a process: links between instances, database and bucket that can fail.

Arguments: for each link, the ports of its servers, separated by commas. Prints as many ports, in the same order, that lead to
them. Reads commands, one per line: `LINK FAULT SHARE`. The fault is `open`, `cut` (connections are reset), `stall` (no byte passes)
or `slow` (20 to 100 ms for each piece). It applies to this share of the connections, chosen at random, also of new ones. A link
refuses connections while its server does.
"""

import contextlib
import random
import socket
import struct
import sys
import threading
import time

from services import free_port


class Link:
    def __init__(self, targets):
        self.fault, self.share, self.pairs, self.ports = "open", 1.0, set(), []
        self.changed = threading.Condition()
        for target in targets:
            self.ports.append(free_port())
            threading.Thread(target=self.listen, args=(self.ports[-1], target), daemon=True).start()

    def listen(self, port, target):
        while True:
            # A client with several hosts tries the next one only if the first one refuses the connection.
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", target)).close()
                with socket.create_server(("127.0.0.1", port), backlog=128) as listener:
                    self.accept(listener, target)
            time.sleep(0.02)

    def accept(self, listener, target):
        """Forwards connections until the server refuses one."""
        while True:
            client = listener.accept()[0]
            fault = self.choice()
            if fault == "cut":
                reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", target), 5)
            except ConnectionRefusedError:
                reset(client)
                raise
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
    links = [Link(map(int, ports.split(","))) for ports in sys.argv[1:]]
    print(*(port for link in links for port in link.ports), flush=True)
    for line in sys.stdin:
        number, fault, share = line.split()
        links[int(number)].set(fault, float(share))


if __name__ == "__main__":
    serve()
