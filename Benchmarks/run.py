#!/usr/bin/env python3
"""Compares imagefetch with libjpeg-turbo alone, a Python pool, SQLite and a C server on libmicrohttpd.

All sides run on the same cores, one after the other, and share them with the origin and the
client. Compare the ratios of the medians, not the absolute figures. Takes about five minutes. README.md
explains the figures.
"""

import argparse
import contextlib
import pathlib
import signal
import statistics
import sys
import tempfile
import time

import growth
import listening
import measures
import peers
from origin import Nginx, Stalled
from images import photograph, write_distinct
from programs import compile_c
from service import DEFAULTS, Service

LARGE, SMALL = 400, 6_000
SUBMITS, BATCH = 40_000, 100
# The number of origins that answer, of origins that never do, and of jobs for each.
LIVING, DEAD, JOBS = 90, 10, 100
LISTENERS = 5_000
# The number of workers. A quarter of them is reserved for origins that have answered.
WORKERS = 10_000
DRIPPING = WORKERS * 3 // 4


class Benchmark:
    def __init__(self, binary, python, folder, rate, queue):
        self.binary, self.python, self.folder, self.started = binary, python, folder, 0
        self.queue = queue
        self.decoder = compile_c("codec/decode.c", folder / "decode", "-ljpeg", "-lpng", "-lz")
        self.inserts = compile_c("sqlite/inserts.c", folder / "inserts", "-lsqlite3")
        self.hello = compile_c("hello/hello.c", folder / "hello", "-lmicrohttpd")
        images = folder / "images"
        write_distinct(photograph(1600, 1250, 85), images / "large", LARGE)
        write_distinct(photograph(256, 192, 85), images / "small", max(SMALL, LIVING * JOBS))
        self.nginx, self.stalled = Nginx(folder), Stalled()
        many = folder / "many"
        many.mkdir()
        (many / "images").symlink_to(images)
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
        """Starts a new service."""
        self.started += 1
        service = Service(self.binary, self.folder / f"service-{self.started}", **options)
        try:
            yield service
        finally:
            service.stop()

    def round(self, number, parts, queued):
        """Measures each figure once. The two sides of a ratio follow each other, in a different order each time."""
        figures = {}
        if "jobs" in parts:
            for size, count in (("large", LARGE), ("small", SMALL)):
                self.measure_jobs(size, count, number, figures)
        if "origins" in parts:
            for name, dead in (("alone", []), ("with the dead", self.dead)):
                with self.service(**DEFAULTS) as service:
                    figures[name] = measures.seconds_for_the_living(service, self.living, dead)
        if "requests" in parts:
            with self.service() as service:
                self.measure_requests(service, figures)
        if "latency" in parts:
            with self.service() as service:
                self.measure_latency(service, figures)
        if "submits" in parts:
            self.measure_submits(figures)
        if "memory" in parts:
            with self.service(workers=1) as service:
                figures["queued"] = measures.bytes_per_queued_job(service, self.stalled, queued)
        if "listeners" in parts:
            self.measure_listening(figures)
        if "images" in parts:
            with self.service() as service:
                self.measure_images(service, figures)
        if "growth" in parts:
            self.measure_growth(figures)
        if number == 0:
            self.measure_once(parts, figures)
        return figures

    def measure_once(self, parts, figures):
        """Figures that take long and hardly differ between rounds."""
        if "dripping" in parts:
            settings = {"workers": WORKERS, "max_per_host": WORKERS}
            with self.service(**settings) as service:
                figures["dripping"] = growth.bytes_per_transfer(service, DRIPPING)
        if "queue" in parts:
            with self.service(workers=1, max_queued=3 * self.queue) as service:
                figures["long queue"], figures["submits at the end"] = growth.long_queue(
                    service, self.stalled, self.queue)
                figures["start with a queue"] = growth.start_seconds(service)
        if "start" in parts:
            with self.service() as service:
                figures["idle"] = measures.settled_bytes(service)
                figures["start"] = growth.start_seconds(service)
            figures["binary"] = growth.stripped_bytes(self.binary)

    def measure_images(self, service, figures):
        job = service.submit([b'[{"url": "%s"}]' % self.nginx.url("large/0.jpg").encode()])
        service.wait_until_idle(job)
        url = self.nginx.url("large/0.jpg")
        figures["nginx image"] = measures.requests(url, self.nginx.cpu_seconds, 3)
        url = f"http://127.0.0.1:{service.port}/jobs/{job}/image"
        figures["image"] = measures.requests(url, service.cpu_seconds, 3)

    def measure_growth(self, figures):
        urls = [self.nginx.url(f"small/{number}.jpg") for number in range(SMALL)]

        def start(workers):
            self.started += 1
            folder = self.folder / f"service-{self.started}"
            return Service(self.binary, folder, workers=workers)

        for jobs, in_flight, cost in growth.costs(start, urls):
            figures[f"cost of {jobs:,} jobs, {in_flight:,} in flight"] = cost

    def measure_jobs(self, size, count, number, figures):
        file = self.folder / f"images/{size}/0.jpg"
        urls = [self.nginx.url(f"{size}/{number}.jpg") for number in range(count)]
        sides = {
            "codec": lambda: measures.decodes(self.decoder, file, count),
            "imagefetch": lambda: self.measure_service(size, urls, figures),
            "Python": lambda: peers.pool_jobs(self.python, urls, self.folder),
        }
        turn = number % len(sides)
        for side in (list(sides) * 2)[turn:turn + len(sides)]:
            origin, client = self.nginx.cpu_seconds(), time.process_time()
            figures[f"{size} {side}"] = sides[side]()
            figures[f"{size} {side}, origin"] = (self.nginx.cpu_seconds() - origin) / count
            figures[f"{size} {side}, client"] = (time.process_time() - client) / count

    def measure_service(self, size, urls, figures):
        with self.service() as service:
            rate = measures.jobs(service, urls)
            if size == "small":
                figures["hits"] = measures.cache_hits(service, urls)
        return rate

    def measure_latency(self, service, figures):
        job = service.submit([b'[{"url": "%s"}]' % self.nginx.url("small/0.jpg").encode()])
        service.wait_until_idle(job)
        urls = [self.nginx.url(f"large/{number}.jpg") for number in range(LARGE)]
        figures["delays"] = measures.delays_while_decoding(service, urls, job)

    def measure_submits(self, figures):
        urls = [
            self.stalled.url(f"images/of/the/usual/length/{number:08}.jpg")
            for number in range(SUBMITS)]
        with self.service(workers=1) as service:
            figures["submits"] = measures.submits(service, urls, BATCH)
        # After the service has stopped, all jobs are in the one file.
        figures["inserts"] = peers.inserts(
            self.inserts, self.folder / f"inserts-{self.started}",
            self.folder / f"service-{self.started}/data/jobs.sqlite", BATCH)

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
        figures["get"] = measures.requests(f"{base}/jobs/{job}", service.cpu_seconds, 3)
        small = self.folder / "images/small/0.jpg"
        view = f"{base}/image?url={self.nginx.url('small/0.jpg')}"
        figures["small hello"] = measures.hello_requests(self.hello, small.stat().st_size, 3)
        for name, query in (("view", ""), ("view variant", "&width=100")):
            figures[name] = measures.requests(view + query, service.cpu_seconds, 3)


def print_table(rounds):
    """Yields the lines whose figures were measured."""
    row = "{:<34} {:>11} {:>11} {:>7} {:>7}"
    print(row.format("", "imagefetch", "compared", "ratio", "goal"))
    for name, ours, reference, goal in (
        ("2-megapixel JPEGs, codec alone", "large imagefetch", "large codec", "0.85"),
        ("2-megapixel JPEGs, Python pool", "large imagefetch", "large Python", ""),
        ("10 kB JPEGs, codec alone", "small imagefetch", "small codec", "0.40"),
        ("10 kB JPEGs, Python pool", "small imagefetch", "small Python", "2.00"),
        ("cache hits and misses", "hits", "small imagefetch", ""),
        ("durable submits, SQLite alone", "submits", "inserts", "0.50"),
        ("GET /jobs/{id}", "get", "hello", "0.75"),
        ("GET /jobs/{id}/image, 300 kB, nginx", "image", "nginx image", "0.80"),
        ("GET /image, 10 kB", "view", "small hello", ""),
        ("GET /image, a variant of it", "view variant", "small hello", ""),
    ):
        if ours not in rounds[0]:
            continue
        for unit, goal in (("wall", goal), ("cpu", "")):
            left, right = (
                [getattr(figures[key], unit) for figures in rounds] for key in (ours, reference))
            title = f"{name}, /s" if unit == "wall" else "  per CPU second of that side"
            ratio = statistics.median(left) / statistics.median(right)
            print(row.format(
                title, f"{statistics.median(left):,.0f}", f"{statistics.median(right):,.0f}",
                f"{ratio:.2f}", goal))
    if "alone" in rounds[0]:
        dead, alone = (median(rounds, key) for key in ("with the dead", "alone"))
        print(row.format(
            f"{LIVING} origins and {DEAD} dead ones, s", f"{dead:.2f}", f"{alone:.2f}",
            f"{dead / alone:.2f}", "1.05"))
    for title, figure, goal in single_figures(rounds):
        print(row.format(title, figure, "", "", goal))
    if "small codec" in rounds[0]:
        print_costs(rounds)


def single_figures(rounds):
    if "delays" in rounds[0]:
        delays = sorted(delay for figures in rounds for delay in figures["delays"])
        for percent, goal in ((50, ""), (99, "10.0")):
            milliseconds = delays[len(delays) * percent // 100] * 1000
            yield f"GET /jobs/{{id}} during decodes, p{percent} ms", f"{milliseconds:.1f}", goal
    if "queued" in rounds[0]:
        yield "memory of a queued job, bytes", f"{median(rounds, 'queued'):,.0f}", "2,048"
    if "listener" in rounds[0]:
        title = f"memory of one of {LISTENERS:,} listeners, bytes"
        yield title, f"{median(rounds, 'listener'):,.0f}", ""
        for name, count in (("one heard", "1"), ("all heard", f"{LISTENERS:,}")):
            milliseconds = median(rounds, name) * 1000
            yield f"a change to {count} listeners, ms", f"{milliseconds:.1f}", "50"
    once = rounds[0]
    for name, title, factor, form, goal in (
        ("dripping", f"one of {DRIPPING:,} transfers, KiB", 1 / 1024, ".1f", "64"),
        ("long queue", "one job of a long queue, bytes", 1, ",.0f", "1,000"),
        ("submits at the end", "  submits, end to start", 1, ".2f", "0.90"),
        ("start with a queue", "  start with them, s", 1, ".2f", "3.00"),
        ("start", "start, ms", 1000, ".0f", "100"),
        ("idle", "idle memory, MB", 1e-6, ".1f", "30"),
        ("binary", "stripped executable, MB", 1e-6, ".1f", "30"),
    ):
        if name in once:
            yield title, format(once[name] * factor, form), goal
    for name in (name for name in once if name.startswith("cost of ")):
        yield f"{name}, CPU ms", f"{median(rounds, name):.2f}", ""


def print_costs(rounds):
    """CPU milliseconds per job of all processes of each side. "Beyond decoding" is the part that the codec alone does not need."""
    row = "{:<34} {:>11} {:>11} {:>11}"
    print()
    print(row.format("CPU ms per job", "codec alone", "imagefetch", "Python"))
    sides = ("codec", "imagefetch", "Python")
    for size, title in (("large", "2-megapixel JPEGs"), ("small", "10 kB JPEGs")):
        own = [
            1000 / statistics.median(figures[f"{size} {side}"].cpu for figures in rounds)
            for side in sides]
        print(row.format(title, *(f"{cost:.2f}" for cost in own)))
        print(row.format("  beyond decoding", "", *(f"{cost - own[0]:.2f}" for cost in own[1:])))
        for part in ("origin", "client"):
            costs = [median(rounds, f"{size} {side}, {part}") * 1000 for side in sides[1:]]
            print(row.format(f"  the {part}, separately", "", *(f"{cost:.2f}" for cost in costs)))


def median(rounds, key):
    return statistics.median(figures[key] for figures in rounds)


PARTS = ("jobs", "origins", "requests", "latency", "submits", "memory", "listeners", "images",
         "growth", "dripping", "queue", "start")

# The other parts take long or start a service many times.
USUAL = PARTS[:8]


def parts_of(text):
    parts = text.split(",")
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: the parts are {', '.join(PARTS)}")
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--service", type=pathlib.Path, required=True, help="imagefetch, built")
    parser.add_argument(
        "--python", type=pathlib.Path, required=True, help="a Python with aiohttp and Pillow")
    parser.add_argument(
        "--only", type=parts_of, default=USUAL, metavar="PART,…", help=f"parts to run, of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queued", type=int, default=100_000, help="queued jobs for the memory figure")
    parser.add_argument("--long-queue", type=int, default=1_000_000, help="queued jobs for the part queue")
    parser.add_argument(
        "--origin-rate", type=int, default=0,
        help="bytes per second and response of the many origins; 0 for no limit")
    parser.add_argument("--limit", type=int, default=600, help="maximum seconds")
    options = parser.parse_args()

    def give_up(*_):
        raise TimeoutError(f"not done after {options.limit} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.alarm(options.limit)
    with tempfile.TemporaryDirectory(prefix="imagefetch-bench-") as folder:
        # Do not resolve the link: the Python of a virtual environment is a link to Debian's Python, which lacks aiohttp.
        benchmark = Benchmark(
            options.service.resolve(), options.python.absolute(), pathlib.Path(folder),
            options.origin_rate, options.long_queue)
        try:
            rounds = []
            for number in range(options.rounds):
                rounds.append(benchmark.round(number, options.only, options.queued))
                print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
        finally:
            benchmark.stop()
    print(f"{measures.CORES} cores; medians of {options.rounds} rounds")
    print_table(rounds)


if __name__ == "__main__":
    main()
