#!/usr/bin/env python3
"""Compares instances on PostgreSQL and S3 with one on SQLite and files, and many instances with one.

All sides run on the same cores, one after the other, in a different order in each round. They share the cores with
PostgreSQL, the S3 server, the origins and the client, so compare the ratios. Takes about five minutes.
"""

import argparse
import contextlib
import pathlib
import signal
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

import costs
import measures
from backends import ObjectStore, PostgreSQL
from origin import Delayed, Nginx, Stalled
from images import photograph, write_distinct
from service import DEFAULTS, Service, batches_of

# Many, so that the last jobs, which run without others, have little influence.
LARGE, SMALL = 1_600, 4_000
SUBMITS, BATCH = 40_000, 100
# The number of slow origins: with the default limit of transfers per origin, together they keep all workers busy.
LATE_MS, LATE_ORIGINS, WORKERS, SECONDS = 200, 40, 4, 8
SIZES = (1, 2, 4, 8)
IDLE = 3


class Benchmark:
    def __init__(self, binary, weed, folder, profile):
        self.binary, self.folder, self.profile, self.started = binary, folder, profile, 0
        # If root starts it, PostgreSQL runs as another user.
        folder.chmod(0o711)
        images = folder / "images"
        write_distinct(photograph(1600, 1250, 85), images / "large", LARGE)
        write_distinct(photograph(256, 192, 85), images / "small", SMALL)
        self.stopping = contextlib.ExitStack()
        self.nginx = self.stopped_at_end(Nginx(folder))
        self.stalled = self.stopped_at_end(Stalled())
        addresses = [f"127.0.3.{number + 1}" for number in range(LATE_ORIGINS)]
        self.late = self.stopped_at_end(Delayed(images / "small", addresses, LATE_MS))
        self.postgres = self.stopped_at_end(PostgreSQL(folder / "postgres"))
        self.objects = self.stopped_at_end(ObjectStore(weed, folder / "s3"))

    def stopped_at_end(self, server):
        self.stopping.callback(server.stop)
        return server

    def stop(self):
        self.stopping.close()

    @contextlib.contextmanager
    def alone(self, **options):
        """Starts a new service on SQLite and files."""
        with self.running(1, {}, options) as services:
            yield services[0]

    @contextlib.contextmanager
    def cluster(self, count, **options):
        """Starts the instances of a new service on PostgreSQL and S3."""
        environment = self.objects.settings() | {"IMAGEFETCH_STORAGE_JOBS": self.postgres.database()}
        with self.running(count, environment, options) as services:
            yield services

    @contextlib.contextmanager
    def running(self, count, environment, options):
        with contextlib.ExitStack() as stack:
            services = []
            for _ in range(count):
                self.started += 1
                folder = self.folder / f"service-{self.started}"
                services.append(Service(self.binary, folder, environment=environment, **options))
                services[-1].look_pause = 0.02
                stack.callback(services[-1].stop)
            yield services

    def round(self, number, parts):
        """Measures each figure once. The two sides of a ratio follow each other, in a different order each time."""
        figures = {}
        if "jobs" in parts:
            for size, count in (("large", LARGE), ("small", SMALL)):
                urls = [self.nginx.url(f"{size}/{job}.jpg") for job in range(count)]
                self.compare_sides(number, size, figures, lambda service: measures.jobs(service, urls), count)
        if "submits" in parts:
            urls = [self.stalled.url(f"images/of/the/usual/length/{job:08}.jpg") for job in range(SUBMITS)]
            self.compare_sides(
                number, "submits", figures, lambda service: measures.submits(service, urls, BATCH), SUBMITS,
                workers=1)
        if "reads" in parts:
            figures["reads"] = self.measure_reads()
            figures["busy reads"] = self.measure_busy_reads()
        if "scale" in parts:
            for count in SIZES[::1 if number % 2 == 0 else -1]:
                figures[f"scale {count}"] = self.measure_scale(count)
        if "costs" in parts and number == 0:
            figures["costs"] = costs.Costs(self).measure()
        if "idle" in parts and number == 0:
            figures["idle"] = self.measure_idle()
        return figures

    def compare_sides(self, number, name, figures, measure, count, **options):
        for side in ("alone", "shared")[::1 if number % 2 == 0 else -1]:
            with contextlib.ExitStack() as stack:
                if side == "alone":
                    service = stack.enter_context(self.alone(**options))
                else:
                    service = stack.enter_context(self.cluster(1, **options))[0]
                if self.profile:
                    self.postgres.track(True)
                used = {
                    "PostgreSQL": self.postgres.cpu_seconds, "S3": self.objects.cpu_seconds,
                    "origin": self.nginx.cpu_seconds, "client": time.process_time}
                before = {part: seconds() for part, seconds in used.items()}
                figures[f"{name} {side}"] = measure(service)
                for part, seconds in used.items():
                    figures[f"{name} {side}, {part}"] = (seconds() - before[part]) / count
                if self.profile and side == "shared":
                    print_statements(name, self.postgres.statements(), count)

    def measure_reads(self):
        """Seconds of GET requests at one instance for jobs that another instance accepted, from their 202 until their end."""
        delays = []
        with self.cluster(2) as (first, second):
            for number in range(200):
                job = first.submit(batches_of(1, [self.late.url(f"{number}.jpg", number)]))
                while seconds_of_get(second, job, delays)["phase"] in ("queued", "loading"):
                    time.sleep(0.01)
        return delays

    def measure_busy_reads(self):
        """The same for one job, while both instances decode 2-megapixel JPEGs on all cores."""
        with self.cluster(2) as (first, second):
            job = first.submit(batches_of(1, [self.nginx.url("small/0.jpg")]))
            first.wait_until_idle(job)
            urls = [self.nginx.url(f"large/{number}.jpg") for number in range(LARGE)]
            last = first.submit(batches_of(BATCH, urls))
            waiter = threading.Thread(target=first.wait_until_idle, args=(last,))
            waiter.start()
            delays = []
            while waiter.is_alive():
                seconds_of_get(second, job, delays)
                time.sleep(0.005)
            waiter.join()
        return delays

    def measure_idle(self):
        """Transactions and statements per second and instance, including BEGIN and COMMIT."""
        with self.cluster(IDLE):
            # Wait until the first queries after the start are done.
            time.sleep(5)
            self.postgres.track(True)
            transactions, cpu, clock = self.postgres.transactions(), self.postgres.cpu_seconds(), time.monotonic()
            time.sleep(15)
            clock = time.monotonic() - clock
            statements = self.postgres.statements()
            transactions = self.postgres.transactions() - transactions
            cpu = self.postgres.cpu_seconds() - cpu
            self.postgres.track(False)
            if self.profile:
                print_statements("idle", statements, clock * IDLE)
        calls = sum(int(calls) for calls, *_ in statements)
        return transactions / clock / IDLE, calls / clock / IDLE, cpu / clock / IDLE

    def measure_scale(self, count):
        """Jobs per second of instances whose workers wait for slow origins, without the first and last tenth."""
        jobs = count * WORKERS * 1000 // LATE_MS * SECONDS
        urls = [f"{self.late.url(f'{job % SMALL}.jpg', job)}?{job}" for job in range(jobs)]
        settings = DEFAULTS | {"workers": WORKERS}
        with self.cluster(count, **settings) as services:
            if self.profile:
                self.postgres.track(True)
            database = self.postgres.cpu_seconds()
            used = sum(service.cpu_seconds() for service in services)
            for number, batch in enumerate(batches_of(BATCH, urls)):
                last = services[number % count].submit([batch])
            services[0].wait_until_idle(last, 120)
            used = sum(service.cpu_seconds() for service in services) - used
            database = self.postgres.cpu_seconds() - database
            ends = self.postgres.ends()
            if self.profile:
                print_statements(f"{count} instances", self.postgres.statements(), jobs)
        if len(ends) != jobs:
            raise RuntimeError(f"{len(ends)} of {jobs} jobs succeeded")
        tenth = len(ends) // 10
        seconds = (ends[-tenth] - ends[tenth]) / 1000
        return Scale((jobs - 2 * tenth) / seconds, used / jobs, database / jobs)


@dataclass
class Scale:
    """Jobs per second of all instances, and CPU seconds per job of the instances and of PostgreSQL."""

    rate: float
    cpu: float
    database: float


def seconds_of_get(service, job, delays):
    """Reads a job and records how long the GET request took."""
    begin = time.monotonic()
    found = service.request("GET", f"/jobs/{job}")
    delays.append(time.monotonic() - begin)
    return found


def print_statements(name, statements, count):
    print(f"{name}: statements per job, of {count:,.0f} jobs", file=sys.stderr)
    for calls, milliseconds, text in statements[:24]:
        print(f"  {int(calls) / count:8.3f} {float(milliseconds) * 1000 / count:8.1f} µs  {text}", file=sys.stderr)


def print_table(rounds):
    row = "{:<44} {:>11} {:>11} {:>7} {:>7}"
    print(row.format("", "PG and S3", "SQLite", "ratio", "goal"))

    def medians(key, unit):
        return statistics.median(getattr(figures[key], unit) for figures in rounds)

    for name, title, goal in (
        ("large", "2-megapixel JPEGs", 0.9), ("small", "10 kB JPEGs", 0.6), ("submits", "durable submits", None),
    ):
        if f"{name} alone" not in rounds[0]:
            continue
        ours, reference = (medians(f"{name} {side}", "wall") for side in ("shared", "alone"))
        if goal:
            # Subtract the S3 server's CPU time from the time of a job.
            objects = median(rounds, f"{name} shared, S3")
            apart = 1 / (1 / ours - objects / measures.CORES)
            print(row.format(f"{title}, /s", f"{ours:,.0f}", f"{reference:,.0f}", f"{ours / reference:.2f}", ""))
            print(row.format("  without the S3 server's cost", f"{apart:,.0f}", f"{reference:,.0f}", f"{apart / reference:.2f}", f"{goal}"))
        else:
            print(row.format(f"{title}, /s", f"{ours:,.0f}", f"{reference:,.0f}", f"{ours / reference:.2f}", "10,000"))
        costs = [1000 / medians(f"{name} {side}", "cpu") for side in ("shared", "alone")]
        print(row.format("  CPU ms, imagefetch", *(f"{cost:.3f}" for cost in costs), f"{costs[1] / costs[0]:.2f}", ""))
        for part in ("PostgreSQL", "S3", "origin", "client"):
            costs = [median(rounds, f"{name} {side}, {part}") * 1000 for side in ("shared", "alone")]
            print(row.format(f"  CPU ms, {part}", *(f"{cost:.3f}" for cost in costs), "", ""))
    for key, title, goal in (
        ("reads", "GET at another instance, p{} ms", "20"), ("busy reads", "  during decodes on all cores, p{} ms", ""),
    ):
        if key in rounds[0]:
            delays = sorted(delay for figures in rounds for delay in figures[key])
            for percent in (50, 99):
                figure = delays[len(delays) * percent // 100] * 1000
                print(row.format(title.format(percent), f"{figure:.1f}", "", "", goal if percent == 99 else ""))
    if "idle" in rounds[0]:
        transactions, statements, cpu = rounds[0]["idle"]
        print(row.format("an idle instance's transactions, /s", f"{transactions:.2f}", "", "", "5"))
        print(row.format("  statements with BEGIN and COMMIT, /s", f"{statements:.2f}", "", "", ""))
        print(row.format("  PostgreSQL's CPU ms a second", f"{cpu * 1000:.1f}", "", "", ""))
    if "scale 1" in rounds[0]:
        print()
        row = "{:<44} {:>11} {:>11} {:>7} {:>7}"
        print(row.format(f"origins that answer after {LATE_MS} ms", "jobs/s", "each", "ratio", "goal"))
        one = medians("scale 1", "rate")
        for count in SIZES:
            rate = medians(f"scale {count}", "rate")
            print(row.format(
                f"{count} of {WORKERS} workers", f"{rate:,.1f}", f"{rate / count:,.1f}", f"{rate / count / one:.2f}", "0.90"))
            costs = [medians(f"scale {count}", part) * 1000 for part in ("cpu", "database")]
            print(row.format("  CPU ms, imagefetch and PostgreSQL", *(f"{cost:.3f}" for cost in costs), "", ""))


def median(rounds, key):
    return statistics.median(figures[key] for figures in rounds)


PARTS = ("jobs", "submits", "reads", "idle", "scale", "costs")
# The last part is for the simulation.
USUAL = PARTS[:-1]


def parts_of(text):
    parts = text.split(",")
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: the parts are {', '.join(PARTS)}")
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--service", type=pathlib.Path, required=True, help="imagefetch, built")
    parser.add_argument("--weed", type=pathlib.Path, required=True, help="SeaweedFS")
    parser.add_argument("--only", type=parts_of, default=USUAL, metavar="PART,…", help=f"parts to run, of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print PostgreSQL's statements, which costs some percent")
    parser.add_argument("--limit", type=int, default=900, help="maximum seconds")
    options = parser.parse_args()

    def give_up(*_):
        raise TimeoutError(f"not done after {options.limit} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.alarm(options.limit)
    with tempfile.TemporaryDirectory(prefix="imagefetch-bench-") as folder:
        benchmark = Benchmark(options.service.resolve(), options.weed.resolve(), pathlib.Path(folder), options.profile)
        try:
            rounds = []
            for number in range(options.rounds):
                rounds.append(benchmark.round(number, options.only))
                print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
        finally:
            benchmark.stop()
    print(f"{measures.CORES} cores; medians of {options.rounds} rounds")
    print_table(rounds)
    if "costs" in rounds[0]:
        print(f"{costs.FILE.name}, microseconds: {costs.record(rounds[0]['costs'])}")


if __name__ == "__main__":
    main()
