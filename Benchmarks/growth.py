"""Measures what grows with the work (slow transfers, a long queue), and the fixed costs (start, size of the executable)."""

import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import measures
from listening import allow_descriptors
from images import photograph
from service import batches_of

# The numbers of jobs, and of transfers in flight, that are compared.
STEPS = ((1, 1), (10, 10), (100, 100), (1_000, 100), (1_000, 1_000))


class Dripping:
    """An origin that sends half of an image, and then one byte every few seconds to each client."""

    def __init__(self, seconds_between=5):
        body = photograph(256, 192, 85)
        self.head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.body, self.pause = body, seconds_between
        # The clients, and the number of bytes sent to each.
        self.clients, self.ends = {}, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def url(self, number):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/{number}.jpg"

    def serve(self):
        poll = select.epoll()
        poll.register(self.listener, select.EPOLLIN)
        due = time.monotonic() + self.pause
        while not self.ends.is_set():
            for descriptor, _ in poll.poll(0.1):
                if descriptor == self.listener.fileno():
                    client, _ = self.listener.accept()
                    poll.register(client, select.EPOLLIN)
                    self.clients[client.fileno()] = [client, 0]
                else:
                    self.answer(poll, descriptor)
            if time.monotonic() > due:
                due += self.pause
                for client in list(self.clients.values()):
                    if 0 < client[1] < len(self.body) - 1:
                        self.send(client, 1)
        for client, _ in self.clients.values():
            client.close()

    def answer(self, poll, descriptor):
        client = self.clients[descriptor]
        try:
            received = client[0].recv(65536)
        except OSError:
            received = b""
        if not received:
            poll.unregister(descriptor)
            self.clients.pop(descriptor)[0].close()
        elif not client[1]:
            client[0].sendall(self.head)
            self.send(client, len(self.body) // 2)

    def send(self, client, count):
        try:
            client[0].sendall(self.body[client[1]:client[1] + count])
            client[1] += count
        except OSError:
            pass  # The closed connection is noticed at the next poll.

    def stop(self):
        self.ends.set()
        self.thread.join()
        self.listener.close()


def bytes_per_transfer(service, count, first=100, seconds=120):
    """Growth of resident memory per transfer in flight, each with half of its image, after a first group."""
    allow_descriptors(count + 1_000)
    origin = Dripping()
    try:
        urls = [origin.url(number) for number in range(count)]
        service.submit(batches_of(1000, urls[:first]))
        before = measures.settled_bytes(service)
        service.submit(batches_of(1000, urls[first:]))
        deadline = time.monotonic() + seconds
        while sum(1 for _, sent in list(origin.clients.values()) if sent) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(origin.clients)} of {count} transfers are in flight")
            time.sleep(0.2)
        return (measures.settled_bytes(service) - before) / (count - first)
    finally:
        origin.stop()


def long_queue(service, stalled, count, size=1000):
    """Resident bytes per queued job, and the submit rate of the last twentieth divided by that of the first."""
    urls = [stalled.url(f"images/of/the/usual/length/{number:08}.jpg") for number in range(count)]
    part = max(size, count // 20)
    before = measures.settled_bytes(service)
    first = measures.submits(service, urls[:part], size).wall
    measures.submits(service, urls[part:-part], size)
    last = measures.submits(service, urls[-part:], size).wall
    return (measures.settled_bytes(service) - before) / count, last / first


def start_seconds(service):
    """Stops a service and starts it with the same data. Returns the seconds until it is ready."""
    service.stop()
    begin = time.monotonic()
    service.start()
    return time.monotonic() - begin


def stripped_bytes(binary):
    """The size of the executable without debug information."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "stripped"
        shutil.copy(binary, copy)
        subprocess.run(["strip", copy], check=True)
        return copy.stat().st_size


def costs(start, urls, seconds=30):
    """CPU milliseconds per job as the work grows, by the number of jobs and the number in flight.

    `start` starts a service with a number of workers. A step with few jobs is repeated until it can be measured.
    """
    for jobs, in_flight in STEPS:
        service = start(in_flight)
        try:
            done, cpu, end = 0, service.cpu_seconds(), time.monotonic() + seconds / len(STEPS)
            while done < len(urls) and (time.monotonic() < end or not done):
                some = urls[done:done + jobs]
                service.wait_until_idle(service.submit(batches_of(100, some)))
                done += len(some)
            yield jobs, in_flight, 1000 * (service.cpu_seconds() - cpu) / done
        finally:
            service.stop()
