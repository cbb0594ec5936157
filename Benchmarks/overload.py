#!/usr/bin/env python3
"""Offers a service many times what it gets done, and sees what becomes of what it takes and of the rest.

    Benchmarks/overload.py --service .build/release/imagefetch [--times 10] [--seconds 600]

First what it gets done at its best: photos, as many as its queue holds at any time. Then so many times as many are offered a
second, whether it answers or not, each a URL of its own. What it doesn't take it has to refuse at once, by 429 or 503; what it
gets done meanwhile is goodput. A job that is submitted when the offers end tells how soon all is well again.

The offers come from one process that shares the cores with the service and its origin, which a client elsewhere would not. Its
CPU time is told, and at the end the best is measured once more, beside a process that uses as much of it. Where others use the
cores too, the service's CPU time for a job says more than the clock.
"""

import argparse
import collections
import http.client
import json
import multiprocessing
import pathlib
import selectors
import socket
import sys
import tempfile
import time

from origin import Nginx
from pictures import photograph, write_distinct
from service import Service

PICTURES = 400
CONNECTIONS = 20
QUEUED = 500
# As libmicrohttpd writes it, which is all that this client talks to: it should cost little beside the service.
LENGTH = b"Content-Length: "


class Connection:
    """Sends requests without waiting for the answers to those before, and notes when each was answered."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.waiting, self.unsent, self.text = collections.deque(), b"", b""

    def ask(self, request):
        self.unsent += request
        self.waiting.append(time.monotonic())
        self.send()

    def send(self):
        while self.unsent:
            try:
                self.unsent = self.unsent[self.socket.send(self.unsent):]
            except BlockingIOError:
                return

    def answers(self):
        """What has come: each answer's status, and the seconds until it was there."""
        try:
            piece = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        if not piece:
            raise RuntimeError("the service closed a connection")
        self.text += piece
        while (head := self.text.find(b"\r\n\r\n")) >= 0:
            length = self.text.index(LENGTH, 0, head) + len(LENGTH)
            end = head + 4 + int(self.text[length:self.text.index(b"\r", length)])
            if len(self.text) < end:
                return
            status, self.text = self.text[9:12].decode(), self.text[end:]
            yield status, time.monotonic() - self.waiting.popleft()


class Offers:
    """Jobs at a rate."""

    def __init__(self, service, origin, tag):
        self.service, self.origin, self.tag, self.number = service, origin, tag, 0
        self.connections = [Connection(service.port) for _ in range(CONNECTIONS)]
        self.selector = selectors.DefaultSelector()
        for connection in self.connections:
            self.selector.register(connection.socket, selectors.EVENT_READ, connection)
        self.times = collections.defaultdict(list)
        self.body = b'{"url": "%b", "cache": "no-store"}' % origin.url("%d.jpg?%b%d").encode()

    def request(self):
        body = self.body % (self.number % PICTURES, self.tag.encode(), self.number)
        self.number += 1
        return b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
            len(body), body)

    def take(self, seconds):
        for key, _ in self.selector.select(seconds):
            for status, delay in key.data.answers():
                self.times[status].append(delay)

    def run(self, rate, seconds):
        start = time.monotonic()
        sent = 0
        while (now := time.monotonic() - start) < seconds:
            for _ in range(int(now * rate) - sent):
                # What nobody reads for seconds is no longer offered by anybody.
                connection = self.connections[sent % CONNECTIONS]
                if len(connection.waiting) < 2 * rate / CONNECTIONS:
                    connection.ask(self.request())
                sent += 1
            for connection in self.connections:
                connection.send()
            self.take(0.002)

    def drain(self):
        deadline = time.monotonic() + 30
        while any(connection.waiting for connection in self.connections) and time.monotonic() < deadline:
            self.take(0.1)


def burn(share):
    """Uses so much of a core until it is ended."""
    period = 0.01
    while True:
        start = time.monotonic()
        while time.monotonic() - start < share * period:
            pass
        time.sleep((1 - share) * period)


def ask(service, method, path, body=None):
    """Over a connection of its own: what nobody uses for minutes is closed."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def done(service):
    text = ask(service, "GET", "/metrics")
    return sum(
        float(line.split()[-1]) for line in text.splitlines()
        if line.startswith("imagefetch_jobs_finished_total") and 'phase="success"' in line)


def rate_while(service, body):
    """Jobs that succeed a second while it runs, and the service's CPU seconds for each."""
    start, before, cpu = time.monotonic(), done(service), service.cpu_seconds()
    body()
    count, cpu = done(service) - before, service.cpu_seconds() - cpu
    return count / (time.monotonic() - start), cpu / max(1, count)


def at(times, part):
    return sorted(times)[int(len(times) * part)] * 1000 if times else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", required=True, type=pathlib.Path)
    parser.add_argument("--times", type=float, default=10, help="what is offered, by what it gets done")
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_distinct(photograph(1600, 1250, 85), folder / "pictures", PICTURES)
        origin = Nginx(folder)
        service = Service(options.service, folder / "service", max_queued=QUEUED)
        try:
            failed = measure(service, origin, options)
        finally:
            service.stop()
            origin.stop()
    sys.exit(1 if failed else 0)


def measure(service, origin, options):
    # As many as it takes while its queue is never empty: a little more than it gets done.
    warm = Offers(service, origin, "w")
    capacity, _ = rate_while(service, lambda: warm.run(400, 10))
    warm_client = time.process_time()
    peak, each = rate_while(service, lambda: warm.run(1.3 * capacity, 20))
    warm_client = (time.process_time() - warm_client) / 20
    warm.drain()
    offers = Offers(service, origin, "o")
    client = time.process_time()
    goodput, each_beside = rate_while(service, lambda: offers.run(options.times * peak, options.seconds))
    client = (time.process_time() - client) / options.seconds
    start = time.monotonic()
    offers.drain()
    while True:
        job = json.loads(ask(service, "POST", "/jobs?wait=30", json.dumps({"url": origin.url("0.jpg?last")})))
        if job.get("phase") == "success":
            break
        if time.monotonic() - start > 60:
            raise RuntimeError(f"it does not recover: {job}")
        time.sleep(0.05)
    recovery = time.monotonic() - start
    # The best once more, beside a client that is as busy as the one that offered much.
    burning = multiprocessing.Process(target=burn, args=(min(1, max(0, client - warm_client)),), daemon=True)
    burning.start()
    again = Offers(service, origin, "b")
    beside, _ = rate_while(service, lambda: again.run(1.3 * capacity, 20))
    burning.kill()
    burning.join()
    accepted, refused = offers.times["202"], offers.times["429"] + offers.times["503"]
    others = {status: len(times) for status, times in offers.times.items() if status not in ("202", "429", "503")}
    print(f"at its best {peak:.0f} jobs/s; offered {options.times * peak:.0f}/s for {options.seconds:.0f} s, "
          f"by a client that used {client:.2f} of a core, {warm_client:.2f} at the best")
    print(f"goodput {goodput:.0f} jobs/s: {goodput / peak:.2f} of the best (goal 0.9), {goodput / beside:.2f} of the {beside:.0f} "
          f"that are the best beside as busy a client")
    print(f"the service used {each * 1000:.2f} ms of CPU a job at its best, {each_beside * 1000:.2f} with its part of the refusals")
    print(f"taken {len(accepted):,}, refused {len(refused):,}, anything else {others or 'none'}")
    print(f"a refusal took {at(refused, 0.5):.1f} ms, p99 {at(refused, 0.99):.1f} ms; a 202 {at(accepted, 0.5):.1f} ms, "
          f"p99 {at(accepted, 0.99):.1f} ms")
    print(f"a job submitted at the end was done after {recovery:.2f} s (goal 5)")
    return goodput < 0.9 * peak or others or recovery > 5


if __name__ == "__main__":
    main()
