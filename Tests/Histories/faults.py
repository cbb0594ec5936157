"""Faults that a run causes, one after the other, with calm times in between. All of them end before the run does."""

import random
import signal
import time

from services import BUCKET_LINK, LEASE

# Faults by name, with how often each is chosen, and whether it needs PostgreSQL.
FAULTS = {
    "kill": (5, False), "stop": (3, False), "database": (2, True), "bucket": (1, True), "cut": (2, True),
    "stall": (5, True), "slow": (1, True), "clock": (4, False), "failover": (3, True),
}

# Seconds by which a clock may differ from the right time.
OFFSET = 10

# Faults between two calm times, and their least duration in seconds.
ROUND, CALM = 8, 12


class Faults:
    def __init__(self, seed, services, recorder, run, names):
        self.rng = random.Random(f"{seed}-faults")
        self.services, self.recorder, self.shared = services, recorder, run
        self.names = [name for name in names if services.store == "postgres" or not FAULTS[name][1]]
        self.counts = dict.fromkeys(self.names, 0)

    def run(self):
        """Causes faults until the run has no operations left."""
        while self.shared.may_continue():
            # In calm times, clients that wait must learn of ends soon.
            is_calm = self.names and sum(self.counts.values()) % ROUND == ROUND - 1
            self.pause(*((CALM, 2 * CALM) if is_calm else (0.3, 1.5)))
            if self.names and self.shared.may_continue():
                name = self.rng.choices(self.names, [FAULTS[name][0] for name in self.names])[0]
                self.counts[name] += 1
                getattr(self, name)()
            self.check_instances()

    def check_instances(self):
        """An instance must not end. Only one that was still starting may do so because of a fault, with status 70."""
        for number, instance in enumerate(self.services.instances):
            if (status := instance.process.poll()) is not None:
                if status != 70:
                    raise RuntimeError(f"instance {number} ended with status {status}: {instance.log.read_text()[-2000:]}")
                print(f"instance {number} ended with status 70 and starts again")
                instance.start()

    def pause(self, least, most):
        """Waits; less long if the run ends."""
        deadline = time.monotonic() + self.rng.uniform(least, most)
        while time.monotonic() < deadline and self.shared.may_continue():
            time.sleep(0.02)

    def instance(self):
        number = self.rng.randrange(len(self.services.instances))
        return number, self.services.instances[number]

    def kill(self):
        """`kill -9`, and a start after a while. The restarted instance is read at once."""
        number, instance = self.instance()
        start = self.recorder.now()
        instance.kill()
        self.pause(0, self.rng.choice([0.05, 1.5, 4]))
        # A slow start gives clients time to read from an instance that is not complete yet.
        is_slow = self.services.links and self.rng.random() < 0.75
        if is_slow:
            self.services.links.command(number, "slow", self.rng.choice([0.5, 1]))
        instance.start()
        self.shared.focus = number
        self.pause(0.3, 1)
        if is_slow:
            self.services.links.command(number, "open", 1)
        self.recorder.fault(f"kill -9 and {'slow ' if is_slow else ''}start of instance {number}", start)
        self.review(number)

    def stop(self):
        """SIGSTOP, for less or more than a lease."""
        number, instance = self.instance()
        start = self.recorder.now()
        instance.process.send_signal(signal.SIGSTOP)
        self.pause(*self.rng.choice([(0.1, 1), (LEASE, LEASE + 2)]))
        instance.process.send_signal(signal.SIGCONT)
        self.recorder.fault(f"SIGSTOP of instance {number}", start)

    def database(self):
        """A crash of PostgreSQL, and a start after a while."""
        start = self.recorder.now()
        self.services.database.crash()
        self.pause(0, 1.5)
        self.services.database.start()
        if self.services.standby:
            self.services.database.wait_for_standby()
        self.recorder.fault("crash of PostgreSQL", start)

    def failover(self):
        """A crash of the primary. Its synchronous standby takes over, and a while later there is a new standby."""
        services, start = self.services, self.recorder.now()
        services.database.crash()
        self.pause(0, 1.5)
        services.database, services.standby = services.standby, services.database
        services.database.query("SELECT pg_promote()")
        self.recorder.fault("crash of PostgreSQL, and failover to its standby", start)
        self.pause(0, 2)
        services.standby.follow(services.database)

    def bucket(self):
        """The S3 server answers nothing for a while."""
        start = self.recorder.now()
        self.services.bucket.process.send_signal(signal.SIGSTOP)
        self.pause(0.2, 3)
        self.services.bucket.process.send_signal(signal.SIGCONT)
        self.recorder.fault("SIGSTOP of the S3 server", start)

    def link(self, fault, share, least, most):
        number, _ = self.instance()
        link = BUCKET_LINK if self.rng.random() < 0.25 else number
        start = self.recorder.now()
        self.services.links.command(link, fault, share)
        self.pause(least, most)
        self.services.links.command(link, "open", 1)
        self.recorder.fault(f"{fault}: " + ("all links to the bucket" if link == BUCKET_LINK else
                                            f"link of instance {number} to the database"), start)

    def cut(self):
        self.link("cut", self.rng.choice([0.4, 1]), 0, 1.5)

    def slow(self):
        self.link("slow", self.rng.choice([0.5, 1]), 0.5, 2)

    def stall(self):
        """Some connections of an instance stand still for a moment, or all for longer than a lease."""
        number, _ = self.instance()
        if self.rng.random() < 0.2:
            self.link("stall", 1, 0.2, 3.5)
            return
        start = self.recorder.now()
        self.shared.focus = number
        for _ in range(self.rng.randint(2, 6)):
            self.services.links.command(number, "stall", 0.5)
            self.pause(0.1, 0.3)
            self.services.links.command(number, "open", 1)
            self.pause(0.05, 0.2)
        self.recorder.fault(f"short stalls: some connections of instance {number} to the database", start)
        self.review(number)

    def clock(self):
        """The clock of an instance jumps, and is wrong until the next jump or the end of the run."""
        number, instance = self.instance()
        self.set_clock(number, 0 if instance.offset and self.rng.random() < 0.4 else self.rng.uniform(-OFFSET, OFFSET))

    def set_clock(self, number, offset):
        start = self.recorder.now()
        self.services.instances[number].set_clock(offset)
        self.recorder.fault(f"clock of instance {number} set to {offset:+.1f} s", start, clock=[number, offset])

    def review(self, number):
        """Clients read from this instance what was changed meanwhile."""
        self.shared.focus, self.shared.reviewed = None, number
        self.pause(0.3, 1)
        self.shared.reviewed = None

    def heal(self):
        """Ends every fault, also one that an exception left behind."""
        for number, instance in enumerate(self.services.instances):
            if instance.offset:
                self.set_clock(number, 0)
            if instance.process.poll() is None:
                instance.process.send_signal(signal.SIGCONT)
            else:
                instance.start()
