#!/usr/bin/env python3
"""Runs a service for a long time with jobs of all kinds, faults and cancellations, and checks that nothing grows.

    Benchmarks/soak.py --service .build/release/imagefetch [--jobs 200000] [--rate 0] [--curve curve.csv]

The kinds: new photos and small images, equal URLs, variants, uploads, corrupt and cut images, error statuses, refused addresses,
cancelled stalls, changed priorities. A number of clients each run one job at a time (--rate 0), or jobs start at a fixed rate.
Another client reads a job every 20 ms. Memory, descriptors and threads are recorded every second, with --curve in a file
that can be read meanwhile. The file also has the number of processes: after a burst, idle decoders keep a descriptor each.
Finished jobs are kept for 30 seconds, images until the storage limit evicts them.

Exits with 1 if a job has an unexpected result, if memory, descriptors or threads of the last quarter exceed those of the
second quarter by more than a tenth and a small margin, or if the 99th percentile of reading a job is above 20 ms.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

from origin import Nginx, Stalled
from images import photograph, write_distinct
from service import Service

CLIENTS = 16
IMAGES = pathlib.Path(__file__).parent.parent / "Tests/Fixtures/images"
GOAL = 20


class Client(threading.Thread):
    def __init__(self, soak, first):
        super().__init__(daemon=True)
        self.soak, self.first, self.ends = soak, first, collections.Counter()
        self.chance = random.Random(first)
        self.connection = http.client.HTTPConnection("127.0.0.1", soak.service.port, timeout=120)
        self.faults = []

    def request(self, method, path, body=None, kind="application/json"):
        if isinstance(body, dict):
            body = json.dumps(body)
        self.connection.request(method, path, body, {"Content-Type": kind} if body else {})
        response = self.connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else {}

    def run(self):
        for number in range(self.first, self.soak.jobs, CLIENTS):
            self.soak.wait_until_due(number)
            try:
                self.job(number)
            except Exception as error:  # noqa: BLE001: recorded as a fault
                self.faults.append(f"{time.strftime('%X')}, job {number:,}: {error}")
                if len(self.faults) == 5:
                    return

    def job(self, number):
        kind = self.chance.choices(list(KINDS), [share for share, _, _ in KINDS.values()])[0]
        _, wanted, begin = KINDS[kind]
        status, job = begin(self, number)
        if status not in (200, 202):
            raise RuntimeError(f"{kind}: {status} {job}")
        while job["phase"] not in ("success", "failure", "cancelled"):
            status, job = self.request("GET", f"/jobs/{job['id']}?wait=60")
        end = (job.get("error") or {}).get("code") or job["phase"]
        if end not in wanted:
            raise RuntimeError(f"{kind} ended in {end}: {job}")
        self.ends[kind, end] += 1

    def submit(self, url, **members):
        return self.request("POST", "/jobs", {"url": url} | members)


def photo(client, number):
    return client.submit(client.soak.origin.url(f"large/{number % 40}.jpg?{number}"))


def small(client, number):
    return client.submit(client.soak.origin.url(f"small/{number % 400}.jpg?{number}"))


def equal(client, number):
    return client.submit(client.soak.origin.url(f"small/{number // 200 % 400}.jpg"))


def variants(client, number):
    wanted = [{"name": "thumb", "width": 64, "format": "webp"}, {"name": "small", "width": 128, "format": "jpeg"}]
    return client.submit(client.soak.origin.url(f"large/{number % 40}.jpg?v{number}"), variants=wanted)


def upload(client, number):
    return client.request("POST", "/jobs", client.soak.upload + number.to_bytes(4, "big"), "image/jpeg")


def broken(client, number):
    return client.submit(client.soak.origin.url(f"cut.jpg?{number}"))


def missing(client, number):
    return client.submit(client.soak.origin.url(f"nothing/{number}.jpg"))


def forbidden(client, number):
    return client.submit(f"http://10.1.2.3/{number}.jpg")


def cancelled(client, number):
    _, job = client.submit(client.soak.stalled.url(f"{number}.jpg"))
    client.request("PATCH", f"/jobs/{job['id']}", {"priority": "high"})
    return client.request("DELETE", f"/jobs/{job['id']}")


KINDS = {
    "small": (50, {"success"}, small),
    "equal": (15, {"success"}, equal),
    "photo": (5, {"success"}, photo),
    "variants": (5, {"success"}, variants),
    "upload": (5, {"success"}, upload),
    "broken": (5, {"truncated", "decode_failed"}, broken),
    "missing": (5, {"origin_status"}, missing),
    "forbidden": (3, {"blocked_address"}, forbidden),
    "cancelled": (7, {"cancelled"}, cancelled),
}


class Soak:
    def __init__(self, options, folder):
        self.jobs, self.rate = options.jobs, options.rate
        image = photograph(256, 192, 85)
        write_distinct(photograph(1600, 1250, 85), folder / "images/large", 40)
        write_distinct(image, folder / "images/small", 400)
        (folder / "images/cut.jpg").write_bytes(image[:len(image) // 2])
        self.upload = image
        self.origin, self.stalled = Nginx(folder), Stalled()
        environment = {"IMAGEFETCH_JOBS_RETENTION": "30s", "IMAGEFETCH_STORAGE_MAX_BYTES": "512MiB"}
        self.service = Service(options.service, folder / "service", environment=environment)
        self.start = time.monotonic()

    def wait_until_due(self, number):
        if self.rate:
            time.sleep(max(0, self.start + number / self.rate - time.monotonic()))

    def sample(self):
        pid = self.service.process.pid
        threads = len(os.listdir(f"/proc/{pid}/task"))
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        mebibytes = self.service.resident_bytes() / (1 << 20)
        return (time.monotonic() - self.start, mebibytes, descriptors, threads, len(self.service.processes()))

    def stop(self):
        self.service.stop()
        self.stalled.stop()
        self.origin.stop()


class LatencyProbe(threading.Thread):
    """Continuously measures how long reading a job takes."""

    def __init__(self, soak):
        super().__init__(daemon=True)
        self.soak, self.times, self.stopped = soak, [], threading.Event()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.soak.service.port, timeout=60)

        def request(method, path, body=None):
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            return json.loads(connection.getresponse().read())

        job = {"phase": "success"}
        while not self.stopped.wait(0.02):
            if job["phase"] not in ("queued", "loading"):
                job = request("POST", "/jobs", json.dumps({"url": self.soak.stalled.url("probe.jpg")}))
            began = time.monotonic()
            job = request("GET", f"/jobs/{job['id']}")
            self.times.append(time.monotonic() - began)
        request("DELETE", f"/jobs/{job['id']}")


def quarter(samples, number, column):
    """The median of each quarter."""
    count = len(samples) // 4
    return statistics.median(sample[column] for sample in samples[number * count:(number + 1) * count])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", required=True, type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--rate", type=float, default=0, help="jobs per second; 0: without pauses")
    parser.add_argument("--curve", type=pathlib.Path, help="a file for the samples: seconds, MiB, descriptors, threads, processes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(options, pathlib.Path(name))
        try:
            failed = run(soak, options)
        finally:
            soak.stop()
    sys.exit(1 if failed else 0)


def run(soak, options):
    clients = [Client(soak, first) for first in range(CLIENTS)]
    probe, samples = LatencyProbe(soak), []
    for thread in [probe, *clients]:
        thread.start()
    curve = open(options.curve or os.devnull, "w", buffering=1)
    print("seconds,MiB,descriptors,threads,processes", file=curve)
    while any(client.is_alive() for client in clients):
        samples.append(soak.sample())
        print("{:.0f},{:.1f},{},{},{}".format(*samples[-1]), file=curve)
        time.sleep(1)
    curve.close()
    probe.stopped.set()
    probe.join()
    faults = [fault for client in clients for fault in client.faults]
    for fault in faults:
        print(f"FAULT at {fault}")
    seconds = samples[-1][0]
    print(f"{soak.jobs:,} jobs in {seconds:.0f} s, {soak.jobs / seconds:.0f}/s")
    ends = sum((client.ends for client in clients), collections.Counter())
    print("; ".join(f"{kind} {end} {count:,}" for (kind, end), count in sorted(ends.items())))
    failed = bool(faults)
    for column, name, slack in ((1, "MiB", 8), (2, "descriptors", 8), (3, "threads", 4)):
        figures = [quarter(samples, number, column) for number in range(4)]
        has_grown = figures[3] > figures[1] * 1.1 + slack
        failed = failed or has_grown
        print(f"{name} by quarters: {', '.join(f'{figure:.0f}' for figure in figures)}{' GROWN' if has_grown else ''}")
    p99 = sorted(probe.times)[int(len(probe.times) * 0.99)] * 1000
    print(f"a job's state: p99 {p99:.1f} ms of {len(probe.times):,} (goal {GOAL})")
    return failed or p99 > GOAL


if __name__ == "__main__":
    main()
