#!/usr/bin/env python3
"""Records what clients see of the service while faults happen, and checks that a sequential order of events explains it.

    Tests/Histories/histories.py --service .build/release/imagefetch --store postgres --operations 10000

1. Processes start (services.py): one instance on SQLite; or three on PostgreSQL and an S3 server, with proxies between them.
2. Clients send requests at the same time (clients.py). Each request is recorded with its answer and its interval.
3. Meanwhile faults happen (faults.py): `kill -9`, SIGSTOP, crashes of PostgreSQL, a failover to its synchronous standby, links
   that break, stall or are slow, clocks of instances that jump and differ. Short runs have no failover.
4. When all faults have ended, every job must finish. Then each instance is read once more.
5. The rules (rules.py) check the recorded history alone; `--check FILE` does only that. A request without an answer may or may not
   have had its effect. report.py prints the operations that contradict a rule, and the exit status is 1.

The seed decides what each client asks and which faults happen. It does not decide how they interleave, so another run with the
same seed may not repeat a violation. The history does: `--keep FOLDER` keeps it.

Not covered: a loss of data that PostgreSQL has not synced.
"""

import argparse
import collections
import gc
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

import report
import rules
from clients import Client, Pool, Recorder
from faults import FAULTS, Faults
from services import Services

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Runs with fewer operations have no failover, because the start of a standby takes seconds.
LEAST_FOR_FAILOVER = 5_000
# Seconds within which every job must finish after the last fault.
RECOVERY = 40
UNFINISHED = ("/jobs?phase=queued&phase=loading&limit=1", "/batches?state=running&limit=1")


class Run:
    """What the threads of a run share."""

    def __init__(self, operations, seconds, recorder):
        self.operations, self.recorder = operations, recorder
        self.deadline = time.monotonic() + seconds
        # The instance that may miss changes now, and the one that may have missed some.
        self.focus = self.reviewed = None

    def may_continue(self):
        return self.done() < self.operations and time.monotonic() < self.deadline

    def done(self):
        return sum(self.recorder.counts.copy().values())


def parse():
    parser = argparse.ArgumentParser(description="Records histories of the service and checks them.")
    parser.add_argument("--service", type=pathlib.Path, help="the imagefetch to test")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=86_400, help="the clients stop after this time")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--faults", help="separated by commas, or none (default: all)")
    parser.add_argument("--weed", type=pathlib.Path, default=ROOT / ".build-s3/bin/weed", help="the S3 server")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the history and the logs")
    parser.add_argument("--check", type=pathlib.Path, help="checks a recorded history and starts nothing")
    parser.add_argument("--excerpts", type=int, default=1, help="how many excerpts to print for each rule")
    options = parser.parse_args()
    if options.faults is None:
        options.faults = [name for name in FAULTS if name != "failover" or options.operations >= LEAST_FOR_FAILOVER]
    else:
        options.faults = [] if options.faults == "none" else options.faults.split(",")
    if unknown := set(options.faults) - set(FAULTS):
        parser.error(f"unknown faults: {', '.join(unknown)}")
    if not options.check and not options.service:
        parser.error("name the service: --service")
    return options


def record(options, folder):
    """Runs the service and clients. Returns the path of the history."""
    services = Services(options.service.resolve(), options.store, folder, options.weed, options.faults)
    path = folder / "history.jsonl"
    recorder = Recorder(path, {
        "seed": options.seed, "store": options.store, "instances": len(services.instances),
        "command": f"Tests/Histories/histories.py --service {options.service} --store {options.store}"
                   f" --operations {options.operations} --clients {options.clients} --seed {options.seed}"
                   f" --faults {','.join(options.faults) or 'none'}"})
    run, pool = Run(options.operations, options.seconds, recorder), Pool()
    try:
        clients = [Client(number, options.seed, services, recorder, pool, run) for number in range(options.clients)]
        begin = time.monotonic()
        for client in clients:
            client.start()
        faults = Faults(options.seed, services, recorder, run, options.faults)
        try:
            faults.run()
        finally:
            run.deadline, run.focus, run.reviewed = 0, None, None
            faults.heal()
        for client in clients:
            client.join(60)
        seconds = time.monotonic() - begin
        print(f"{options.store}: {run.done()} operations in {seconds:.0f} s ({run.done() / seconds:.0f}/s),"
              f" faults: {', '.join(f'{count} {name}' for name, count in faults.counts.items()) or 'none'}")
        answers = collections.Counter()
        for (_, code), count in recorder.counts.items():
            answers[str(code or "none")] += count
        print("answers: " + ", ".join(f"{count} {code}" for code, count in sorted(answers.items())))
        for client in clients:
            if client.failure or client.is_alive():
                raise RuntimeError(f"client {client.number} failed") from client.failure
        reader = Client(options.clients, options.seed, services, recorder, Pool(), Run(0, 10 * RECOVERY, recorder))
        settle(reader, services, recorder, pool)
    finally:
        recorder.close()
        services.stop()
    return path


def settle(client, services, recorder, pool):
    """Waits until every job has finished, then reads all jobs once, and the newest ones from each instance."""
    for instance in services.instances:
        instance.wait_until_ready()
    deadline, start = time.monotonic() + RECOVERY, recorder.now()
    while time.monotonic() < deadline:
        answers = [client.operate("list", "GET", path, 0) for path in UNFINISHED]
        if all(answer.get("docs") == [] and not answer.get("next") for answer in answers):
            break
        time.sleep(0.1)
    recorder.write({"k": "settled", "s": start, "e": recorder.now()})
    cursor = ""
    while cursor is not None:
        page = client.operate("list", "GET", f"/jobs?limit=500{cursor and '&cursor=' + cursor}", 0,
                              fields={"inventory": True})
        cursor = page["next"]
    for known in pool.recent():
        for number in range(len(services.instances)):
            client.read(known, number)
    for known in list(pool.batches):
        client.read_batch(known.id)
        client.do_results(known)


def check(path, options):
    # A history has many objects and no cycles.
    gc.disable()
    begin = time.monotonic()
    history = rules.History(path)
    violations = rules.check(history)
    print(f"{history.size} operations, {len(history.jobs)} jobs, {len(history.batches)} batches checked"
          f" in {time.monotonic() - begin:.1f} s: {len(violations)} violations")
    report.show(history, violations, options.excerpts)
    return not violations


def main():
    options = parse()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    threading.stack_size(512 * 1024)
    if options.check:
        return check(options.check, options)
    # Users of PostgreSQL must be able to reach the folder.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="histories-"))
    folder.chmod(0o755)
    is_right = False
    try:
        is_right = check(record(options, folder), options)
    finally:
        if options.keep or not is_right:
            kept = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="violation-"))
            kept.mkdir(parents=True, exist_ok=True)
            for file in [*folder.glob("history.jsonl"), *folder.glob("*.log")]:
                shutil.copy(file, kept)
            print(f"seed {options.seed}; the history and the logs are in {kept}; check again with --check {kept}/history.jsonl")
        shutil.rmtree(folder, ignore_errors=True)
    return is_right


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
