#!/usr/bin/env python3
"""Offers a service many times the jobs that it can process, and measures the accepted and the refused ones.

    Benchmarks/overload.py --service .build/release/imagefetch [--times 10] [--seconds 600]

First it measures the best rate, with photos and a queue that is never empty. Then it offers a multiple of that rate, whether
the service answers or not, each job with its own URL. The service must refuse the excess at once with 429 or 503. The rate of
finished jobs is the goodput. A job that is submitted at the end shows how fast the service recovers.

The offering process shares the cores with the service and its origin, unlike a real client. Its CPU time is printed, and at the
end the best rate is measured again next to a process that uses the same CPU time. If other programs use the cores too, the
service's CPU time per job is more reliable than the clock.
"""

import argparse
import http.client
import json
import multiprocessing
import pathlib
import subprocess
import sys
import tempfile
import time

from origin import Nginx
from images import photograph, write_distinct
from programs import compile_c
from service import Service

IMAGES = 400
CONNECTIONS = 20
QUEUED = 500


class Answers:
    """The results of offering jobs at a rate for some time."""

    def __init__(self, client, service, origin, tag, rate, seconds):
        text = subprocess.run(
            [client, str(service.port), str(rate), str(seconds), str(CONNECTIONS), str(IMAGES), origin.url("")[:-1], tag],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        *lines, last = text.splitlines()
        cpu, skipped, drain, unanswered = last.split()
        self.cpu, self.drain = float(cpu) / seconds, float(drain)
        self.skipped, self.unanswered = int(skipped), int(unanswered)
        self.of = {status: (int(count), *times) for status, count, *times in map(str.split, lines)}


def burn(share):
    """Uses a share of a core until it is stopped."""
    period = 0.01
    while True:
        start = time.monotonic()
        while time.monotonic() - start < share * period:
            pass
        time.sleep((1 - share) * period)


def request(service, method, path, body=None):
    """Sends a request over a new connection, because idle connections are closed after minutes."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def done(service):
    text = request(service, "GET", "/metrics")
    return sum(
        float(line.split()[-1]) for line in text.splitlines()
        if line.startswith("imagefetch_jobs_finished_total") and 'phase="success"' in line)


def rate_while(service, body):
    """Successful jobs per second while it runs, and the service's CPU seconds for each."""
    start, before, cpu = time.monotonic(), done(service), service.cpu_seconds()
    body()
    count, cpu = done(service) - before, service.cpu_seconds() - cpu
    return count / (time.monotonic() - start), cpu / max(1, count)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", required=True, type=pathlib.Path)
    parser.add_argument("--times", type=float, default=10, help="the offered rate, divided by the best rate")
    parser.add_argument("--seconds", type=float, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_distinct(photograph(1600, 1250, 85), folder / "images", IMAGES)
        client = compile_c("offers/offers.c", folder / "offers")
        origin = Nginx(folder)
        service = Service(options.service, folder / "service", max_queued=QUEUED)
        try:
            failed = measure(service, origin, client, options)
        finally:
            service.stop()
            origin.stop()
    sys.exit(1 if failed else 0)


def measure(service, origin, client, options):
    def offer(tag, rate, seconds):
        nonlocal answers
        answers = Answers(client, service, origin, tag, rate, seconds)

    answers = None
    # Slightly more than the service can process, so that its queue is never empty.
    capacity, _ = rate_while(service, lambda: offer("w", 400, 10))
    peak, each = rate_while(service, lambda: offer("p", 1.3 * capacity, 20))
    warm_client = answers.cpu
    goodput, each_beside = rate_while(service, lambda: offer("o", options.times * peak, options.seconds))
    offered = answers
    # The time until all offered jobs were answered is included.
    start = time.monotonic() - offered.drain
    while True:
        job = json.loads(request(service, "POST", "/jobs?wait=30", json.dumps({"url": origin.url("0.jpg?last")})))
        if job.get("phase") == "success":
            break
        if time.monotonic() - start > 60:
            raise RuntimeError(f"the service does not recover: {job}")
        time.sleep(0.05)
    recovery = time.monotonic() - start
    # Measure the best rate again, with a client that is as busy as the one that offered the jobs.
    burning = multiprocessing.Process(target=burn, args=(min(1, max(0, offered.cpu - warm_client)),), daemon=True)
    burning.start()
    reference, _ = rate_while(service, lambda: offer("b", 1.3 * capacity, 20))
    burning.kill()
    burning.join()
    others = {status: many[0] for status, many in offered.of.items() if status not in ("202", "429", "503")}
    if offered.unanswered:
        others["unanswered"] = offered.unanswered
    print(f"best rate {peak:.0f} jobs/s; offered {options.times * peak:.0f}/s for {options.seconds:.0f} s, "
          f"by a client that used {offered.cpu:.2f} of a core, {warm_client:.2f} at the best rate")
    print(f"goodput {goodput:.0f} jobs/s: {goodput / peak:.2f} of the best rate (goal 0.9), {goodput / reference:.2f} of the {reference:.0f} jobs/s "
          f"best rate with an equally busy client")
    print(f"the service used {each * 1000:.2f} ms of CPU per job at the best rate, {each_beside * 1000:.2f} including its part of the refusals")
    print(f"other statuses than 202, 429 and 503: {others or 'none'}; not offered because too many were unanswered: {offered.skipped:,}")
    for status, (count, median, late) in sorted(offered.of.items()):
        print(f"{count:,} × {status}, after {median} ms, p99 {late} ms")
    print(f"a job submitted at the end was done after {recovery:.2f} s (goal 5)")
    return goodput < 0.9 * peak or others or recovery > 5


if __name__ == "__main__":
    main()
