"""Measures what each kind of transaction costs PostgreSQL, as CPU seconds of its connection: a fixed part for each
transaction and a part for each job in it. To separate the parts, the same work is done in few transactions and in many.
"""

import json
import pathlib
import time

from service import batches_of

FILE = pathlib.Path(__file__).with_name("costs.json")
SINGLE, BATCHES, BATCH = 1_000, 100, 100
ALONE, TOGETHER = 300, 3_000
# Events sent to another instance, which wakes up for each.
EVENTS = 200


class Costs:
    def __init__(self, benchmark):
        self.benchmark, self.postgres = benchmark, benchmark.postgres

    def measure(self):
        few, many = self.submits(BATCHES, BATCH), self.submits(SINGLE, 1)
        costs = {"submit": line((1, many), (BATCH, few))}
        alone, together = self.jobs(1, ALONE), self.jobs(64, TOGETHER)
        for lane, name in (("claim", "claim"), ("write", "complete")):
            costs[name] = line(alone[lane], together[lane])
        costs["wake"], costs["notify"] = self.events()
        costs["log bytes of a job"] = together["log"]
        return costs

    def submits(self, count, size):
        """Seconds of a transaction with this number of jobs."""
        benchmark = self.benchmark
        with benchmark.cluster(1, workers=1) as (service,):
            urls = [benchmark.stalled.url(f"images/of/the/usual/length/{job:08}.jpg") for job in range(count * size)]
            batches = batches_of(size, urls)
            service.submit(batches[:5])
            before = self.postgres.connection_seconds()
            service.submit(batches[5:])
            return (self.postgres.connection_seconds() - before)["submit", 1] / (count - 5)

    def jobs(self, workers, count):
        """For each lane the jobs per transaction and its seconds; also the bytes of the log per job."""
        benchmark = self.benchmark
        with benchmark.cluster(1, workers=workers) as (service,):
            def run(urls):
                service.wait_until_idle(service.submit(batches_of(100, urls)))

            urls = [benchmark.nginx.url(f"small/{job}.jpg") for job in range(count + 50)]
            run(urls[:50])
            self.postgres.track(True)
            before, log = self.postgres.connection_seconds(), self.postgres.log_bytes()
            run(urls[50:])
            used, log = self.postgres.connection_seconds() - before, self.postgres.log_bytes() - log
            claims = self.postgres.calls("UPDATE queue SET state = %, instance")
            ends = self.postgres.calls("UPDATE jobs SET phase")
            self.postgres.track(False)
            return {
                "claim": (count / claims, used["claim", 1] / claims),
                "write": (count / ends, used["write", 1] / ends), "log": round(log / count)}

    def events(self):
        """Seconds of the server for one instance that receives an event, and for the instance that sends it."""
        with self.benchmark.cluster(2, workers=1) as (first, _):
            # Its worker now waits, so it sends no events.
            first.submit(batches_of(1, [self.benchmark.stalled.url("0.jpg")]))
            time.sleep(2)
            before = self.postgres.connection_seconds()
            for number in range(EVENTS):
                first.submit(batches_of(1, [self.benchmark.stalled.url(f"{number + 1}.jpg")]))
                time.sleep(0.025)
            used = self.postgres.connection_seconds() - before
        return used["news", 2] / EVENTS, used["news", 1] / EVENTS


def line(few, many):
    """From two points (jobs per transaction, seconds), returns the seconds per transaction and per job in it."""
    (n, short), (m, long) = sorted((few, many))
    each = max(0, (long - short) / (m - n))
    return [short - n * each, each]


def record(costs):
    rounded = {
        name: [round(part * 1e6, 1) for part in cost] if isinstance(cost, list) else
        cost if name.startswith("log") else round(cost * 1e6, 1) for name, cost in costs.items()}
    FILE.write_text(json.dumps(rounded, indent=2) + "\n")
    return rounded
