#!/usr/bin/env python3
"""Measures batches: how fast a million lines are accepted, with how much memory, and when the first results are available.

The origin of most lines never answers, so that only the submission is measured. SQLite alone, with the same table, shows
for comparison what the disk and the library allow. Takes about three minutes.
"""

import argparse
import contextlib
import http.client
import json
import pathlib
import sys
import tempfile
import threading
import time

import peers
from origin import Stalled
from programs import compile_c
from service import Service

MIB = 1 << 20
PIECE = 1 << 20
CANCELLED = 100_000
# Lines per commit if they arrive fast.
LINES_PER_COMMIT = 2_000


def pieces(lines, url):
    """Yields the lines of a batch, one MiB at a time."""
    buffer, size = [], 0
    for number in range(lines):
        line = f"{url}{number}\n".encode()
        buffer.append(line)
        size += len(line)
        if size >= PIECE:
            yield b"".join(buffer)
            buffer, size = [], 0
    yield b"".join(buffer)


def upload(service, lines, url):
    """Sends a batch over a new connection and returns it."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=600)
    connection.request(
        "POST", "/batches", pieces(lines, url), {"Content-Type": "text/uri-list"}, encode_chunked=True)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    if response.status != 202:
        raise RuntimeError(f"{response.status} {text[:400].decode()}")
    return json.loads(text)


class Watch(threading.Thread):
    """Watches a service's peak memory, and when its first batch has its first result."""

    def __init__(self, service):
        super().__init__(daemon=True)
        self.service, self.peak, self.first, self.stopped = service, 0, None, threading.Event()
        self.began = time.monotonic()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        while not self.stopped.wait(0.1):
            self.peak = max(self.peak, self.service.resident_bytes())
            if self.first is not None:
                continue
            connection.request("GET", "/batches?limit=1")
            batches = json.loads(connection.getresponse().read())["batches"]
            if batches and sum(batches[0]["counts"][phase] for phase in ("success", "failure")):
                self.first = time.monotonic() - self.began

    def stop(self):
        self.stopped.set()
        self.join()


@contextlib.contextmanager
def running(binary, folder, name):
    service = Service(binary, folder / name, workers=8, max_queued=4_000_000)
    try:
        yield service
    finally:
        service.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service", type=pathlib.Path, required=True, help="imagefetch, built")
    parser.add_argument("--lines", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        stalled = Stalled()
        with running(options.service, folder, "running") as service:
            time.sleep(2)
            idle = service.resident_bytes()
            watch = Watch(service)
            watch.first = 0
            watch.start()
            cpu, start = service.cpu_seconds(), time.monotonic()
            batch = upload(service, options.lines, stalled.url(""))
            seconds, cpu = time.monotonic() - start, service.cpu_seconds() - cpu
            watch.stop()
            assert batch["received"] == options.lines, batch
            rate = options.lines / seconds
            print(f"accepted: {rate:,.0f} lines/s (goal 20,000), {cpu / options.lines * 1e6:.0f} µs CPU per line")
            print(f"memory: {idle / MIB:.0f} MiB idle, {(watch.peak - idle) / MIB:.0f} MiB peak increase (goal 50)")
        inserts = compile_c("sqlite/inserts.c", folder / "inserts", "-lsqlite3")
        # After the service has stopped, all jobs are in the one file.
        alone = peers.inserts(inserts, folder / "inserted", folder / "running/data/jobs.sqlite", LINES_PER_COMMIT)
        print(f"SQLite alone, {LINES_PER_COMMIT:,} rows per commit: {alone.wall:,.0f} rows/s; ratio {rate / alone.wall:.2f}")
        with running(options.service, folder, "cancelling") as service:
            batch = upload(service, CANCELLED, stalled.url(""))
            start = time.monotonic()
            service.request("DELETE", f"/batches/{batch['id']}")
            took = (time.monotonic() - start) * 1000
            print(f"cancelling {CANCELLED:,} queued jobs took {took:.0f} ms")
        with running(options.service, folder, "first") as service:
            watch = Watch(service)
            watch.start()
            # No server listens on that port, so each job fails at once.
            upload(service, 100_000, "http://127.0.0.1:9/")
            deadline = time.monotonic() + 30
            while watch.first is None and time.monotonic() < deadline:
                time.sleep(0.05)
            watch.stop()
            print(f"first results after {watch.first or float('inf'):.2f} s (goal 5)")
        stalled.stop()


if __name__ == "__main__":
    sys.exit(main())
