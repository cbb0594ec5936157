#!/usr/bin/env python3
"""Simulates many instances on one PostgreSQL, to find its limits as instances and jobs increase.

    Benchmarks/scale.py [--cores 32] [--flush-ms 1] [--batch 1]

The cost of a transaction is from costs.json, which `cluster.py --only costs` measures as CPU time of connections.
Assumptions are marked. Origins, object store and the instances' cores are not simulated, because they grow with the instances.
A job is submitted at a random instance, claimed by one with an idle worker, loaded, and completed. Each of an instance's
lanes has one transaction in progress; requests that arrive meanwhile join the next one. Completions are batched over some time.
"""

import argparse
import heapq
import json
import pathlib
import random
import statistics

MS = 1e-3
US = 1e-6
# Measured, in CPU microseconds: for a transaction, and for each job in it; for waking one listener for one notification,
# and for sending one. Also the bytes of the log for a job from submission to end.
MEASURED = json.loads(pathlib.Path(__file__).with_name("costs.json").read_text())
COST = {name: [part * US for part in MEASURED[name]] for name in ("submit", "claim", "complete")}
LOG_BYTES = MEASURED["log bytes of a job"]
WAKE, NOTIFY = MEASURED["wake"] * US, MEASURED["notify"] * US
# From the sources: at most one notification per instance in 20 ms, completions 10 ms apart, 512 requests per transaction, 7
# connections; periodic queries per second, each counted as an empty claim.
NOTIFY_EVERY, COMPLETE_EVERY, MAX_REQUESTS, CONNECTIONS, QUERIES = 20 * MS, 10 * MS, 512, 7, 5
LOAD = 0.2  # assumed: seconds from claim to end, for origins that answer after 200 ms


class Server:
    """Cores that process work in order, and a log whose flush covers all waiting commits."""

    def __init__(self, cores, flush):
        self.free, self.flush, self.busy = [0.0] * cores, flush, 0.0
        self.flushing_until, self.next_until = 0.0, 0.0

    def compute(self, now, seconds):
        start = max(now, heapq.heappop(self.free))
        heapq.heappush(self.free, start + seconds)
        self.busy += seconds
        return start + seconds

    def commit(self, now):
        if now >= self.next_until:
            self.next_until = now + self.flush
        elif now >= self.flushing_until:
            # A flush is in progress: the next one covers this commit.
            self.flushing_until, self.next_until = self.next_until, self.next_until + self.flush
        return self.next_until


class Simulation:
    def __init__(self, instances, rate, options):
        self.n, self.rate, self.batch = instances, rate, options.batch
        self.server = Server(options.cores, options.flush_ms * MS)
        # One and a half times the average number of busy workers.
        self.idle = [max(4, int(1.5 * rate * LOAD / instances) + 2) for _ in range(instances)]
        self.events, self.order = [], 0
        self.waiting = {lane: [[] for _ in range(instances)] for lane in ("submit", "complete")}
        self.is_busy = {lane: [False] * instances for lane in ("submit", "claim", "complete")}
        self.queue, self.head, self.is_notifying = [], 0, [False] * instances
        self.ended, self.acknowledged, self.sizes = [], [], {lane: [] for lane in COST}
        self.next_ends, self.is_paced = [0.0] * instances, [False] * instances
        self.claims = self.notifications = 0

    def at(self, moment, action, *arguments):
        self.order += 1
        heapq.heappush(self.events, (moment, self.order, action, arguments))

    def run(self, seconds):
        self.at(0, self.arrive)
        for instance in range(self.n):
            self.at(random.random(), self.poll, instance)
        while self.events and self.events[0][0] < seconds:
            now, _, action, arguments = heapq.heappop(self.events)
            action(now, *arguments)
        return self

    def arrive(self, now):
        instance = random.randrange(self.n)
        self.waiting["submit"][instance].append([now] * self.batch)
        self.work(now, "submit", instance)
        self.at(now + random.expovariate(self.rate / self.batch), self.arrive)

    def work(self, now, lane, instance):
        """Starts a transaction with the requests that wait for the lane, unless one is in progress."""
        if self.is_busy[lane][instance] or not self.waiting[lane][instance]:
            return
        if lane == "complete":
            if now < self.next_ends[instance]:
                if not self.is_paced[instance]:
                    self.is_paced[instance] = True
                    self.at(self.next_ends[instance], self.end_pause, instance)
                return
            self.next_ends[instance] = now + COMPLETE_EVERY
        self.is_busy[lane][instance] = True
        some = self.waiting[lane][instance][:MAX_REQUESTS]
        self.waiting[lane][instance] = self.waiting[lane][instance][MAX_REQUESTS:]
        jobs = [moment for request in some for moment in request]
        fixed, each = COST[lane]
        self.sizes[lane].append(len(jobs))
        computed = self.server.compute(now, fixed + each * len(jobs))
        self.at(computed, self.commit, lane, instance, jobs)

    def end_pause(self, now, instance):
        self.is_paced[instance] = False
        self.work(now, "complete", instance)

    def commit(self, now, lane, instance, jobs):
        self.at(self.server.commit(now), self.done, lane, instance, jobs)

    def done(self, now, lane, instance, jobs):
        self.is_busy[lane][instance] = False
        if lane == "submit":
            self.acknowledged += [now - moment for moment in jobs]
            self.queue += jobs
            self.claim(now, instance)
            self.notify(now, instance)
        else:
            self.ended += [now - moment - LOAD for moment in jobs]
            self.idle[instance] += len(jobs)
            self.claim(now, instance)
        self.work(now, lane, instance)

    def claim(self, now, instance):
        if self.is_busy["claim"][instance] or self.idle[instance] == 0:
            return
        count = min(self.idle[instance], len(self.queue) - self.head)
        jobs = self.queue[self.head:self.head + count]
        self.head += count
        self.is_busy["claim"][instance] = True
        self.idle[instance] -= count
        self.claims += 1
        if count:
            self.sizes["claim"].append(count)
        fixed, each = COST["claim"]
        self.at(self.server.compute(now, fixed + each * count), self.claimed, instance, jobs)

    def claimed(self, now, instance, jobs):
        self.is_busy["claim"][instance] = False
        for moment in jobs:
            self.at(now + random.expovariate(1 / LOAD), self.loaded, instance, moment, now)

    def loaded(self, now, instance, moment, began):
        # Subtract the load's duration, which does not depend on the store.
        self.waiting["complete"][instance].append([moment + now - began - LOAD])
        self.work(now, "complete", instance)

    def notify(self, now, instance):
        if self.n > 1 and not self.is_notifying[instance]:
            self.is_notifying[instance] = True
            self.at(now + NOTIFY_EVERY, self.notified, instance)

    def notified(self, now, instance):
        self.is_notifying[instance] = False
        self.notifications += 1
        received = self.server.compute(now, NOTIFY)
        self.server.compute(now, WAKE * (self.n - 1))
        for other in range(self.n):
            if other != instance and self.head < len(self.queue):
                self.at(received, self.claim, other)

    def poll(self, now, instance):
        for _ in range(QUERIES):
            self.server.compute(now, COST["claim"][0])
        self.claim(now, instance)
        self.at(now + 1, self.poll, instance)


def percentile(values, share):
    return sorted(values)[int(len(values) * share)] / MS if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=32, help="cores of PostgreSQL's machine")
    parser.add_argument("--flush-ms", type=float, default=1, help="milliseconds of a log flush on its disk")
    parser.add_argument("--batch", type=int, default=1, help="jobs in one POST")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--instances", type=int, nargs="+", default=[1, 3, 10, 30, 100])
    options = parser.parse_args()
    random.seed(1)
    print("instances  jobs/s  ended/s  cores busy  jobs a submit/claim/end  notified/s  202 p50/p99 ms  connections  log MB/s")
    for rate in options.rates:
        for instances in options.instances:
            run = Simulation(instances, rate, options).run(options.seconds)
            sizes = [statistics.fmean(run.sizes[lane]) if run.sizes[lane] else 0 for lane in COST]
            print(
                f"{instances:9} {rate:7} {len(run.ended) / options.seconds:8.0f}"
                f" {min(options.cores, run.server.busy / options.seconds):11.1f}"
                f" {sizes[0]:10.1f}{sizes[1]:7.1f}{sizes[2]:7.1f}"
                f" {run.notifications * (instances - 1) / options.seconds:11.0f}"
                f" {percentile(run.acknowledged, 0.5):9.1f}{percentile(run.acknowledged, 0.99):7.1f}"
                f" {instances * CONNECTIONS:11} {rate * LOG_BYTES / 1e6:9.1f}")


if __name__ == "__main__":
    main()
