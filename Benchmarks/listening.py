"""Measures thousands of clients that listen to one service: the cost of each, and the delay of a change."""

import resource
import select
import socket
import statistics
import time

from service import batches_of

ROUNDS = 5


class Listeners:
    """Connections that have requested events and received the first response."""

    def __init__(self, port, path, count):
        allow_descriptors(count + 100)
        self.sockets, self.poll = {}, select.epoll()
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", port), timeout=30)
            self.sockets[client.fileno()] = client
            # Edge-triggered: each arrival is reported once. Data is read only after all connections have been reported.
            self.poll.register(client, select.EPOLLIN | select.EPOLLET)
            client.sendall(request)
        self.receive(b"\nid: ", 60)

    def receive(self, mark, seconds):
        """Returns when each connection received data, on the monotonic clock. Waits until each has received the mark."""
        arrivals, deadline = {}, time.monotonic() + seconds
        while len(arrivals) < len(self.sockets):
            ready = self.poll.poll(1, len(self.sockets))
            now = time.monotonic()
            if now > deadline:
                raise RuntimeError(f"{len(arrivals)} of {len(self.sockets)} clients received it within {seconds} s")
            for descriptor, _ in ready:
                arrivals.setdefault(descriptor, now)
        for client in self.sockets.values():
            received = b""
            while mark not in received:
                piece = client.recv(65536)
                if not piece:
                    raise RuntimeError("the connection of a listener was closed")
                received += piece
        # Discard data that belongs to no mark, such as the rest of a response that arrived in two pieces.
        time.sleep(0.2)
        self.poll.poll(0, len(self.sockets))
        return list(arrivals.values())

    def close(self):
        for client in self.sockets.values():
            client.close()
        self.poll.close()


def allow_descriptors(count):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(count, 8192)), hard))


def bytes_per_listener(service, stalled, count, settled_bytes):
    """Growth of resident memory per client that listens to a job that never ends."""
    job = service.submit(batches_of(1, [stalled.url("listened-to.jpg")]))
    path = f"/jobs/{job}/events"
    Listeners(service.port, path, 100).close()
    before = settled_bytes(service)
    listeners = Listeners(service.port, path, count)
    grown = settled_bytes(service) - before
    listeners.close()
    return grown / count


def median_delay(service, stalled, count):
    """Seconds from the request to cancel a job until a listener receives it, for all listeners in several rounds."""
    listeners = Listeners(service.port, "/events?phase=cancelled", count)
    delays = []
    for number in range(ROUNDS):
        job = service.submit(batches_of(1, [stalled.url(f"cancelled/{number}.jpg")]))
        time.sleep(0.2)
        begin = time.monotonic()
        service.request("DELETE", f"/jobs/{job}")
        delays += [moment - begin for moment in listeners.receive(job.encode(), 60)]
    listeners.close()
    return statistics.median(delays)
