#!/usr/bin/env python3
"""Measures the latency of jobs while other images crash their decoders. The service has a bug planted in its JPEG library.

Jobs are submitted at a fixed rate, whether the service keeps up or not. Every fifth is a photo, whose latency is measured
from the time it was due. The others are, in alternating rounds, good small images or images that crash the decoder, of which
some hang (--hanging). With --rate 0, eight clients each submit a job and wait for its end, so that both cores are busy and
every crash delays other jobs. Rounds alternate, because the machine's speed changes. README.md explains the figures.

    make bench-crashes
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import threading
import time

from origin import Nginx, free_port, wait_for_port

HERE = pathlib.Path(__file__).parent
IMAGES = HERE.parent / "Tests/Fixtures/images"
CLIENTS = 8
# Clients that wait for jobs submitted at a rate: more than the jobs in progress at any time.
WAITERS = 64
# The same values as in Tests/CPlant.
CRASH, HANG = 13, 17


def of_width(file, width):
    """A baseline JPEG with another width in its header."""
    frame = file.index(b"\xff\xc0")
    return file[:frame + 7] + width.to_bytes(2, "big") + file[frame + 9:]


class Planted:
    def __init__(self, binary, folder):
        self.port = free_port()
        environment = {
            "IMAGEFETCH_SERVER_PORT": str(self.port), "IMAGEFETCH_STORAGE_PATH": str(folder / "data"),
            "IMAGEFETCH_FETCH_ALLOW_NETWORKS": "127.0.0.0/8", "IMAGEFETCH_FETCH_ALLOW_PORTS": "",
            "IMAGEFETCH_DECODE_MAX_TIME": "1s", "IMAGEFETCH_LOG_LEVEL": "error",
            "IMAGEFETCH_FETCH_MAX_PER_HOST": "64",
        }
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([binary], env=os.environ | environment, stdout=log, stderr=log)
        wait_for_port(self.port, self.process, seconds=30)
        while not self.is_ready():
            time.sleep(0.02)

    def is_ready(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/readyz")
        status = connection.getresponse().status
        connection.close()
        return status == 200

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def stop(self):
        self.process.terminate()
        return self.process.wait(30)


class Client(threading.Thread):
    def __init__(self, port, numbers, url_of, due, at_rate):
        super().__init__()
        self.port, self.numbers, self.url_of, self.due, self.at_rate = port, numbers, url_of, due, at_rate
        self.times, self.lost, self.odd = [], 0, []
        # Some failures take long. At a fixed rate a client that waits for them would be late for its next job.
        self.later = []

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

        def request(method, path, body=None):
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            return json.loads(connection.getresponse().read())

        def end(job):
            while job["phase"] not in ("success", "failure", "cancelled"):
                job = request("GET", f"/jobs/{job['id']}?wait=30")
            return (job.get("error") or {}).get("code")

        def record(url, code, is_good):
            if code == "decoder_crashed":
                self.lost += 1
            if code != (None if is_good else "decoder_crashed"):
                self.odd.append((url, code))

        for number in self.numbers:
            url, is_measured, is_good = self.url_of(number)
            start = self.due(number)
            time.sleep(max(0, start - time.monotonic()))
            job = request("POST", "/jobs", json.dumps({"url": url}))
            if "phase" not in job:
                self.odd.append((url, job))
                continue
            if self.at_rate and not is_good:
                self.later.append((url, job))
                continue
            code = end(job)
            if is_measured:
                self.times.append(time.monotonic() - start)
            record(url, code, is_good)
        for url, job in self.later:
            record(url, end(job), False)
        connection.close()


def run(service, origin, count, tag, are_bad, rate=0, hanging=0):
    def url_of(number):
        if number % 5 == 0:
            return origin.url(f"photo.jpg?{tag}{number}"), True, True
        if not are_bad:
            return origin.url(f"good.jpg?{tag}{number}"), False, True
        name = "hang" if hanging and number % hanging == 1 else "crash"
        return origin.url(f"{name}.jpg?{tag}{number}"), False, False

    start = time.monotonic()
    # Random times, so that jobs are not in step with the service's periodic work; the same for all rounds.
    moments = random.Random(1)
    late = [moments.random() for _ in range(count)]

    def due(number):
        return start + (number + late[number]) / rate if rate else time.monotonic()

    many = WAITERS if rate else CLIENTS
    clients = [Client(service.port, range(first, count, many), url_of, due, rate > 0) for first in range(many)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    odd = [item for client in clients for item in client.odd]
    if odd:
        raise RuntimeError(f"jobs with unexpected results: {odd[:5]}")
    times = sorted(time for client in clients for time in client.times)
    lost = sum(client.lost for client in clients)
    return times, lost, time.monotonic() - start


def at(times, part):
    return times[int(len(times) * part)] * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("service", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2_500, help="jobs per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=100, help="jobs per second; 0: eight clients without pauses")
    parser.add_argument("--hanging", type=int, default=0, help="one of this many crashing images hangs instead; 0: none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        images = folder / "images"
        images.mkdir()
        small = (IMAGES / "small.jpg").read_bytes()
        for file, content in (
                ("photo", (IMAGES / "photo.jpg").read_bytes()), ("good", small),
                ("crash", of_width(small, CRASH)), ("hang", of_width(small, HANG))):
            (images / f"{file}.jpg").write_bytes(content)
        origin, service = Nginx(folder), None
        try:
            service = Planted(options.service, folder)
            pid = service.process.pid
            run(service, origin, 400, "warm", False)
            times, rounds, lost = {False: [], True: []}, {False: [], True: []}, 0
            for number in range(options.rounds):
                for are_bad in (False, True) if number % 2 == 0 else (True, False):
                    some, crashed, seconds = run(
                        service, origin, options.jobs, f"{number}{are_bad}", are_bad, options.rate, options.hanging)
                    times[are_bad] += some
                    rounds[are_bad].append(at(some, 0.99))
                    lost += crashed
                    print(f"{'bad ' if are_bad else 'good'} p50 {at(some, 0.5):.1f} ms, p99 {at(some, 0.99):.1f} ms, "
                          f"{options.jobs / seconds:.0f} jobs/s", flush=True)
            good, bad = (at(sorted(times[are_bad]), 0.99) for are_bad in (False, True))
            restarts = service.metric("imagefetch_decoders_ended_total{reason=\"killed\"")
            print(f"{lost} jobs lost their decoders, no other job failed; p99 of {len(times[True])} photos during crashes "
                  f"{bad:.1f} ms, with good images {good:.1f} ms: ratio {bad / good:.2f}")
            good, bad = (statistics.median(rounds[are_bad]) for are_bad in (False, True))
            print(f"median of the rounds' p99: {bad:.1f} ms and {good:.1f} ms: ratio {bad / good:.2f}")
            if service.process.poll() is not None or service.process.pid != pid or restarts:
                raise RuntimeError("the service or the process that forks decoders was restarted")
        finally:
            if service:
                service.stop()
            origin.stop()


if __name__ == "__main__":
    main()
