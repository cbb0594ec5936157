#!/usr/bin/env python3
"""Measures imagefetch beside libjpeg-turbo alone and beside a C server on libmicrohttpd.

Both sides run on the same cores in the same run, by turns, and share them with the origin and the
client: read the ratios of the medians, not the absolute figures. Takes some two or three minutes.
"""

import argparse
import contextlib
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

import listening
import measures
from origin import Nginx, Stalled
from pictures import photograph, write_distinct
from service import DEFAULTS, Service

HERE = pathlib.Path(__file__).parent
LARGE, SMALL = 400, 6_000
# Origins that answer and that never do, and jobs for each.
LIVING, DEAD, JOBS = 90, 10, 100
LISTENERS = 5_000


def compile_c(source, target, *libraries):
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", target, HERE / source,
         *libraries],
        check=True)
    return target


class Benchmark:
    def __init__(self, binary, folder, rate):
        self.binary, self.folder, self.started = binary, folder, 0
        self.decoder = compile_c("codec/decode.c", folder / "decode", "-ljpeg", "-lpng", "-lz")
        self.hello = compile_c("hello/hello.c", folder / "hello", "-lmicrohttpd")
        pictures = folder / "pictures"
        write_distinct(photograph(1600, 1250, 85), pictures / "large", LARGE)
        write_distinct(photograph(256, 192, 85), pictures / "small", max(SMALL, LIVING * JOBS))
        self.nginx, self.stalled = Nginx(folder), Stalled()
        many = folder / "many"
        many.mkdir()
        (many / "pictures").symlink_to(pictures)
        addresses = [f"127.0.1.{number + 1}" for number in range(LIVING)]
        self.many = Nginx(many, addresses, rate)
        self.living = [
            [self.many.url(f"small/{number * JOBS + job}.jpg", address) for job in range(JOBS)]
            for number, address in enumerate(addresses)]
        self.silent = [Stalled(f"127.0.2.{number + 1}") for number in range(DEAD)]
        self.dead = [
            [origin.url(f"small/{job}.jpg") for job in range(JOBS)] for origin in self.silent]

    def stop(self):
        for origin in (self.nginx, self.many, self.stalled, *self.silent):
            origin.stop()

    @contextlib.contextmanager
    def service(self, **options):
        """A service that nothing happened to yet."""
        self.started += 1
        service = Service(self.binary, self.folder / f"service-{self.started}", **options)
        try:
            yield service
        finally:
            service.stop()

    def round(self, queued):
        """One figure of each, both sides of a ratio right after one another."""
        figures = {}
        for size, count in (("large", LARGE), ("small", SMALL)):
            file = self.folder / f"pictures/{size}/0.jpg"
            figures[f"{size} decodes"] = measures.decodes(self.decoder, file, count)
            urls = [self.nginx.url(f"{size}/{number}.jpg") for number in range(count)]
            with self.service() as service:
                figures[f"{size} jobs"] = measures.jobs(service, urls)
                if size == "small":
                    figures["hits"] = measures.cache_hits(service, urls)
        for name, dead in (("alone", []), ("beside the dead", self.dead)):
            with self.service(**DEFAULTS) as service:
                figures[name] = measures.seconds_for_the_living(service, self.living, dead)
        with self.service() as service:
            self.measure_requests(service, figures)
        with self.service(workers=1) as service:
            figures["queued"] = measures.bytes_per_queued_job(service, self.stalled, queued)
        self.measure_listening(figures)
        return figures

    def measure_listening(self, figures):
        with self.service() as service:
            figures["listener"] = listening.bytes_per_listener(
                service, self.stalled, LISTENERS, measures.settled_bytes)
        with self.service() as service:
            for name, count in (("one heard", 1), ("all heard", LISTENERS)):
                figures[name] = listening.median_delay(service, self.stalled, count)

    def measure_requests(self, service, figures):
        job = service.submit([b'[{"url": "%s"}]' % self.nginx.url("large/0.jpg").encode()])
        service.wait_until_idle(job)
        service.connection.request("GET", f"/jobs/{job}")
        body_bytes = len(service.connection.getresponse().read())
        base = f"http://127.0.0.1:{service.port}"
        figures["hello"] = measures.hello_requests(self.hello, body_bytes, 3)
        figures["get"] = measures.requests(f"{base}/jobs/{job}", service.process.pid, 3)
        small = self.folder / "pictures/small/0.jpg"
        view = f"{base}/image?url={self.nginx.url('small/0.jpg')}"
        figures["small hello"] = measures.hello_requests(self.hello, small.stat().st_size, 3)
        for name, query in (("view", ""), ("view variant", "&width=100")):
            figures[name] = measures.requests(view + query, service.process.pid, 3)


def print_table(rounds):
    row = "{:<34} {:>11} {:>11} {:>7} {:>7}"
    print(row.format("", "imagefetch", "beside it", "ratio", "goal"))
    for name, ours, beside, goal in (
        ("2-megapixel JPEGs", "large jobs", "large decodes", "0.85"),
        ("10 kB JPEGs", "small jobs", "small decodes", ""),
        ("cache hits beside misses", "hits", "small jobs", ""),
        ("GET /jobs/{id}", "get", "hello", "0.60"),
        ("GET /image, 10 kB", "view", "small hello", ""),
        ("GET /image, a variant of it", "view variant", "small hello", ""),
    ):
        for unit, goal in (("wall", goal), ("cpu", "")):
            left, right = (
                [getattr(figures[key], unit) for figures in rounds] for key in (ours, beside))
            title = f"{name}, a second" if unit == "wall" else "  a CPU second of the process"
            ratio = statistics.median(left) / statistics.median(right)
            print(row.format(
                title, f"{statistics.median(left):,.0f}", f"{statistics.median(right):,.0f}",
                f"{ratio:.2f}", goal))
    dead, alone = (
        statistics.median(figures[key] for figures in rounds)
        for key in ("beside the dead", "alone"))
    print(row.format(
        f"{LIVING} origins beside {DEAD} dead ones, s", f"{dead:.2f}", f"{alone:.2f}",
        f"{dead / alone:.2f}", "1.05"))
    queued = statistics.median(figures["queued"] for figures in rounds)
    print(row.format("memory of a queued job, bytes", f"{queued:,.0f}", "", "", "2,048"))
    listener = statistics.median(figures["listener"] for figures in rounds)
    print(row.format(f"memory of one of {LISTENERS:,} listeners, bytes", f"{listener:,.0f}", "", "", ""))
    for name, title in (("one heard", "1"), ("all heard", f"{LISTENERS:,}")):
        delay = statistics.median(figures[name] for figures in rounds) * 1000
        print(row.format(f"a change to {title} listeners, ms", f"{delay:.1f}", "", "", "50"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--service", type=pathlib.Path, required=True, help="imagefetch, built")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queued", type=int, default=100_000, help="jobs to queue for the memory")
    parser.add_argument(
        "--origin-rate", type=int, default=0,
        help="bytes a second and response of the many origins; 0 is as fast as they go")
    parser.add_argument("--limit", type=int, default=420, help="seconds after which to give up")
    options = parser.parse_args()

    def give_up(*_):
        raise TimeoutError(f"not done after {options.limit} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.alarm(options.limit)
    with tempfile.TemporaryDirectory(prefix="imagefetch-bench-") as folder:
        benchmark = Benchmark(options.service.resolve(), pathlib.Path(folder), options.origin_rate)
        try:
            rounds = []
            for number in range(options.rounds):
                rounds.append(benchmark.round(options.queued))
                print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
        finally:
            benchmark.stop()
    print(f"{measures.CORES} cores; medians of {options.rounds} rounds")
    print_table(rounds)


if __name__ == "__main__":
    main()
