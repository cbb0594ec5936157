"""Each measurement of imagefetch and of the programs it is compared with, as a function that returns rates."""

import http.client
import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass

from origin import cpu_seconds, free_port, wait_for_port
from service import batches_of

CORES = len(os.sched_getaffinity(0))


@dataclass
class Rate:
    """The rate per second of the clock, and per CPU second of that process."""

    wall: float
    cpu: float


def jobs(service, urls, before=0, seconds=60, **members):
    """Jobs from the first submission until all are finished. All must succeed, in addition to the earlier ones."""
    batches = batches_of(100, urls, **members)
    cpu, clock = service.cpu_seconds(), time.monotonic()
    service.wait_until_idle(service.submit(batches), seconds)
    clock, cpu = time.monotonic() - clock, service.cpu_seconds() - cpu
    service.expect_successes(before + len(urls))
    return Rate(len(urls) / clock, len(urls) / cpu)


def submits(service, urls, size, connections=4):
    """Accepted jobs in batches over a few connections. Each response means that the jobs are on the disk."""
    shares = [batches_of(size, urls[number::connections]) for number in range(connections)]
    refused = []

    def submit(batches):
        client = http.client.HTTPConnection("127.0.0.1", service.port, timeout=90)
        for batch in batches:
            client.request("POST", "/jobs", batch, {"Content-Type": "application/json"})
            response = client.getresponse()
            response.read()
            if response.status != 202:
                refused.append(response.status)
        client.close()

    cpu, clock = service.cpu_seconds(), time.monotonic()
    in_parallel(submit, shares)
    clock, cpu = time.monotonic() - clock, service.cpu_seconds() - cpu
    if refused:
        raise RuntimeError(f"batches were answered with {refused}")
    return Rate(len(urls) / clock, len(urls) / cpu)


def in_parallel(body, arguments):
    threads = [threading.Thread(target=body, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def delays_while_decoding(service, urls, job, pause=0.005):
    """Seconds of each GET request for one job, one after the other, until the jobs of all URLs are done."""
    delays = []
    client = http.client.HTTPConnection("127.0.0.1", service.port, timeout=90)
    last = service.submit(batches_of(100, urls))
    waiter = threading.Thread(target=service.wait_until_idle, args=(last,))
    waiter.start()
    while waiter.is_alive():
        begin = time.monotonic()
        client.request("GET", f"/jobs/{job}")
        response = client.getresponse()
        response.read()
        delays.append(time.monotonic() - begin)
        if response.status != 200:
            raise RuntimeError(f"a job was answered with {response.status}")
        time.sleep(pause)
    waiter.join()
    client.close()
    service.expect_successes(len(urls) + 1)
    return delays


def cache_hits(service, urls):
    """The same jobs again after `jobs` has fetched them. The cache must answer each."""
    batches = batches_of(100, urls)
    before = service.request("GET", "/cache")
    cpu, clock = service.cpu_seconds(), time.monotonic()
    service.wait_until_idle(service.submit(batches))
    clock, cpu = time.monotonic() - clock, service.cpu_seconds() - cpu
    hits = service.request("GET", "/cache")["hits"] - before["hits"]
    if hits != len(urls):
        raise RuntimeError(f"{hits} of {len(urls)} jobs were hits; the cache before: {before}")
    return Rate(len(urls) / clock, len(urls) / cpu)


def seconds_for_the_living(service, living, dead, limit=60):
    """Seconds until all jobs of living origins are done. Jobs of dead origins are submitted between them.

    Both arguments have one array of URLs per origin. Each round of submission has one job of each origin.
    """
    origins = [[{"url": url, "tags": ["living"]} for url in urls] for urls in living]
    origins += [[{"url": url} for url in urls] for urls in dead]
    # The dead origins are first in each round, so that a delay caused by them is visible.
    batches = [batch for jobs in zip(*reversed(origins)) for batch in batches_of(len(jobs), jobs)]
    clock = time.monotonic()
    last = service.submit(batches)
    service.wait_until_idle(last, limit, tag="living")
    clock = time.monotonic() - clock
    service.expect_successes(sum(map(len, living)))
    return clock


def decodes(decoder, file, count):
    """libjpeg-turbo alone: the same number of decodes of the file, with one thread per core."""
    output = subprocess.run(
        [decoder, file, str(count // CORES), str(CORES)],
        check=True, capture_output=True, text=True, timeout=60).stdout
    rate, milliseconds = re.search(r"([\d.]+) images/s, ([\d.]+) CPU ms an image", output).groups()
    return Rate(float(rate), 1000 / float(milliseconds))


def requests(url, used, seconds):
    """GET requests of one URL over 64 connections, all with status 200. `used` returns the server's CPU seconds."""
    cpu = used()
    output = subprocess.run(
        ["wrk", "--threads", "1", "--connections", "64", "--duration", f"{seconds}s", url],
        check=True, capture_output=True, text=True, timeout=seconds + 20).stdout
    cpu = used() - cpu
    if "Non-2xx" in output or "Socket errors" in output:
        raise RuntimeError(f"{url}:\n{output}")
    count, duration = re.search(r"(\d+) requests in ([\d.]+)s", output).groups()
    return Rate(int(count) / float(duration), int(count) / cpu)


def hello_requests(hello, body_bytes, seconds):
    """The C server with a body of the same size."""
    port = free_port()
    server = subprocess.Popen([hello, str(port), "x" * body_bytes, str(CORES)], stdout=subprocess.DEVNULL)
    try:
        wait_for_port(port, server)
        return requests(f"http://127.0.0.1:{port}/", lambda: cpu_seconds(server.pid), seconds)
    finally:
        server.terminate()
        server.wait()


def bytes_per_queued_job(service, stalled, count):
    """Growth of resident memory per queued job, while the only worker waits for an origin that never answers."""
    warm_up = [stalled.url(f"warm-up/{number}.jpg") for number in range(2_000)]
    urls = [stalled.url(f"images/of/the/usual/length/{number:08}.jpg") for number in range(count)]
    service.submit(batches_of(1000, warm_up))
    before = settled_bytes(service)
    service.submit(batches_of(1000, urls))
    return (settled_bytes(service) - before) / count


def settled_bytes(service):
    """Resident memory after it has been constant within 1 % for half a second."""
    last = service.resident_bytes()
    for _ in range(20):
        time.sleep(0.5)
        now = service.resident_bytes()
        if abs(now - last) < last / 100:
            return now
        last = now
    return last
