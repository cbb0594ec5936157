"""The rules that every history must obey. They know the contract (openapi.yaml, docs/scaling.md) and nothing of the code.

A rule is a function that yields violations. Its comment says what must hold, and what the contract allows nevertheless. An operation
without an answer, or with a 5xx, may have had its effect at any time after its start, or never.
"""

import bisect
import collections
import itertools
import json
from dataclasses import dataclass, field

from images import digest

FINISHED = frozenset(("success", "failure", "cancelled"))
FOREVER = float("inf")
# Milliseconds within which a client that waits must learn of an end. The contract says "within about 20 ms" for an idle machine.
PROMPT = 4_000
# Milliseconds after a fault in which clients may learn of an end later.
AFTERMATH = 8_000


@dataclass(slots=True)
class Seen:
    """What an operation showed of a job or batch: a version, and its document unless the answer was 304.

    It is a state of the time between start and end. An event that may be late has no start.
    """

    start: float
    end: float
    version: int
    doc: dict | None
    op: dict


@dataclass(slots=True)
class Subject:
    """A job or a batch: its operations and what they showed, in the order of the history."""

    id: str
    ops: list = field(default_factory=list)
    seen: list = field(default_factory=list)
    docs: dict = field(default_factory=dict)
    undone: set = field(default_factory=set)
    batch: str | None = None
    path: str | None = None

    def of(self, *kinds):
        return [op for op in self.ops if op["k"] in kinds]

    def documents(self):
        """What was seen with its document, by version, the earliest answer first."""
        return sorted((seen for seen in self.seen if seen.doc), key=lambda seen: (seen.version, seen.end))


@dataclass(slots=True)
class Violation:
    rule: str
    subject: Subject
    text: str
    ops: list


class History:
    """A recorded history, by jobs, batches and keys."""

    def __init__(self, path=None, records=()):
        self.jobs, self.batches, self.keys = {}, {}, collections.defaultdict(list)
        self.faults, self.inventory, self.reconnected, self.size = [], [], [], 0
        self.settled, self.about = None, {}
        for record in itertools.chain(records, read(path) if path else ()):
            self.add(record)

    @property
    def has_exact_progress(self):
        """Whether all clients see the progress of one process, which is not stored."""
        return self.about.get("instances") == 1 and not any("kill" in fault["what"] for fault in self.faults)

    def add(self, record):
        kind = record.get("k")
        if kind is None:
            self.about = record
        elif kind == "fault":
            self.faults.append(record)
        elif kind == "settled":
            self.settled = record
        else:
            self.add_operation(record)

    def add_operation(self, op):
        self.size += 1
        if "key" in op:
            self.keys[op["key"]].append(op)
        if "since" in op:
            self.reconnected.append(op)
        if op.get("inventory"):
            self.inventory.append(op)
        touched = {}
        if "job" in op:
            touched[op["job"]] = self.job(op["job"])
        if "batch" in op:
            touched[op["batch"]] = self.batch(op["batch"])
        if op.get("code") == 304:
            subject = next(iter(touched.values()))
            subject.seen.append(Seen(op["s"], op["e"], op["match"], None, op))
        for place, doc in enumerate(op.get("docs", ())):
            touched[doc["id"]] = subject = self.job(doc["id"])
            op["docs"][place] = self.show(subject, doc, op["e"], op)
        if "bdoc" in op:
            touched[op["bdoc"]["id"]] = subject = self.batch(op["bdoc"]["id"])
            op["bdoc"] = self.show(subject, op["bdoc"], op["e"], op)
        for place, event in enumerate(op.get("events", ())):
            time, _, doc = event
            touched[doc["id"]] = subject = self.batch(doc["id"]) if op["k"] == "batch-stream" else self.job(doc["id"])
            # The first event of a job or batch has the current state. Other events may arrive late.
            event[2] = self.show(subject, doc, time, op, is_current=place == 0 and op["k"] != "events")
        for subject in touched.values():
            subject.ops.append(op)

    def job(self, name):
        return self.jobs.get(name) or self.jobs.setdefault(name, Subject(name))

    def batch(self, name):
        return self.batches.get(name) or self.batches.setdefault(name, Subject(name))

    @staticmethod
    def show(subject, doc, time, op, is_current=True):
        """Adds what an operation showed. Returns the document, once for all operations that showed the same."""
        if "v" not in doc:
            return doc
        same = subject.docs.setdefault(doc["v"], [])
        if doc in same:
            doc = same[same.index(doc)]
        else:
            same.append(doc)
        subject.seen.append(Seen(op["s"] if is_current else -FOREVER, time, doc["v"], doc, op))
        subject.path = doc.get("u")
        if "b" in doc:
            subject.batch = doc["b"][0]
        return doc

    def restarts(self, job):
        """The operations that may have queued a finished job again."""
        again = [op for op in job.of("fetch") if may_have_happened(op)]
        if job.batch in self.batches:
            again += [op for op in self.batches[job.batch].of("retry-batch") if may_have_happened(op)]
        return again

    def purges(self, subject):
        """The operations that may have deleted a job or batch."""
        purges = [op for op in subject.of("purge", "purge-batch") if may_have_happened(op)]
        if subject.batch in self.batches:
            purges += self.purges(self.batches[subject.batch])
        return purges

    def is_calm(self, start, end):
        """Whether no fault can have delayed what happened in this interval. A clock that jumps is no reason for a delay."""
        return not any(fault["s"] < end and fault["e"] + AFTERMATH > start for fault in self.faults if "clock" not in fault)


def read(path):
    """The records of a file. Many lines are parsed at once, so that they share the names of members."""
    with open(path) as file:
        while lines := list(itertools.islice(file, 2_000)):
            yield from json.loads("[" + ",".join(lines) + "]")


def may_have_happened(op):
    code = op.get("code")
    return code is None or code < 300 or code >= 500


def has_happened(op):
    return op.get("code") is not None and op["code"] < 300


def ended(op):
    return FOREVER if op["e"] is None else op["e"]


def revision(version):
    """The number of stored changes. The other 20 bits count the progress reports of a loading job since the last one."""
    return version - 1 >> 20


RULES = []


def rule(name):
    def register(function):
        RULES.append((name, function))
        return function
    return register


def check(history):
    """All violations, at most one for each rule and subject."""
    leave_out_undone_claims(history)
    violations = []
    for name, function in RULES:
        found = set()
        for subject, text, ops in function(history):
            if id(subject) not in found:
                found.add(id(subject))
                violations.append(Violation(name, subject, text, ops))
    return violations


def leave_out_undone_claims(history):
    """A claim of a job is committed without waiting for the disk or the standby, so a crash or failover of PostgreSQL may undo it.

    The job was shown as loading before the crash, and with a lower revision afterwards. That revision is not checked.
    """
    crashes = [fault for fault in history.faults if "crash of PostgreSQL" in fault["what"]]
    for job in history.jobs.values() if crashes else ():
        claims = {}
        for seen in job.seen:
            if seen.doc and seen.doc["p"] == "loading":
                number = revision(seen.version)
                claims[number] = min(claims.get(number, FOREVER), seen.end)
        job.undone = {number for number, end in claims.items() for crash in crashes if end < crash["e"] and any(
            revision(seen.version) < number and (seen.end if seen.start < 0 else seen.start) > crash["s"]
            for seen in job.seen)}
        job.seen = [seen for seen in job.seen if revision(seen.version) not in job.undone]


# Versions


@rule("versions never go back")
def versions_grow(history):
    """An operation that starts after a client saw a version shows this version or a later one, through any instance.

    Allowed: operations at the same time show either. Events may be late, except the first of a job's own stream. A loading job's
    progress may be older at an instance that does not load it, or after a kill: then equal revisions count as equal. The same
    holds for batches, which have no progress. A crash of PostgreSQL may undo a claim (see leave_out_undone_claims).
    """
    for job in history.jobs.values():
        yield from going_back(job, (lambda version: version) if history.has_exact_progress else revision)
    for batch in history.batches.values():
        yield from going_back(batch, lambda version: version)


def going_back(subject, rank):
    """The operation that showed the oldest state: the one with the longest time since a newer version was answered."""
    finished = sorted(subject.seen, key=lambda seen: seen.end)
    # The answers that were newer than all before, and their ranks, which grow.
    newest, ranks, place, oldest = [], [], 0, None
    for seen in sorted(subject.seen, key=lambda seen: seen.start):
        while place < len(finished) and finished[place].end < seen.start:
            if not ranks or rank(finished[place].version) > ranks[-1]:
                newest.append(finished[place])
                ranks.append(rank(finished[place].version))
            place += 1
        newer = bisect.bisect_right(ranks, rank(seen.version))
        if newer < len(newest) and (oldest is None or seen.start - newest[newer].end > oldest[2]):
            oldest = newest[newer], seen, seen.start - newest[newer].end
    if oldest:
        newer, seen, age = oldest
        yield subject, (f"version {short(newer.version)} was answered {age:.1f} ms before the start of a request that"
                        f" still got version {short(seen.version)}"), [newer.op, seen.op]


def short(version):
    """A version in short form: the revision, and the number of progress reports if there are any."""
    return f"{revision(version)}" + (f"+{version - 1 & 0xFFFFF}" if version - 1 & 0xFFFFF else "") \
        if version > 1 << 20 else str(version)


@rule("one version has one content")
def versions_are_unique(history):
    """Two answers with the same version of a job or batch have the same members.

    Allowed: a loading job's progress and attempts, which instances learn at different times. `waiting_for`, `rate` and `eta` are not
    recorded.
    """
    for subject in [*history.jobs.values(), *history.batches.values()]:
        for version, (first, *others) in subject.docs.items():
            left_out = {"a"} if first["p"] == "loading" else set()
            for doc in others:
                differing = {key for key in doc.keys() | first.keys() if doc.get(key) != first.get(key)} - left_out
                if differing:
                    changes = ", ".join(f"{key} {first.get(key)} and {doc.get(key)}" for key in sorted(differing))
                    yield subject, f"version {short(version)} was shown with {changes}", [
                        next(seen.op for seen in subject.seen if seen.doc is shown) for shown in (first, doc)]


# The life of a job


@rule("a job has one final phase")
def jobs_end_once(history):
    """A finished job keeps its phase and its time of finishing. So a cancelled job stays cancelled.

    Allowed: `POST /jobs/{id}/fetch` or a retry of its batch may queue a failed or cancelled job again, each at most once. A success
    whose image is stored never changes.
    """
    for job in history.jobs.values():
        final, turns = None, []
        for seen in job.documents():
            doc = seen.doc
            if final and (doc["p"], doc.get("f")) != (final.doc["p"], final.doc.get("f")):
                again = [op for op in history.restarts(job) if op["s"] < seen.end]
                turns += [final.op, seen.op]
                if final.doc["p"] == "success" or len(turns) > 2 * len(again) or not any(is_later(op, final) for op in again):
                    yield job, (f"the job was {final.doc['p']} at version {short(final.version)}, finished at"
                                f" {final.doc.get('f')}, and is {doc['p']} at version {short(seen.version)}"
                                + (f", finished at {doc['f']}" if "f" in doc else "")
                                + ", but no request queued it again"), (
                                    turns[-2:] if final.doc["p"] == "success" else [*again, *turns])
                    break
            final = seen if doc["p"] in FINISHED else None


def is_later(op, final):
    """Whether a request to fetch again can have come after the end: its answer shows a later version, or none."""
    return all(doc["v"] > final.version for doc in op.get("docs", ()) if "v" in doc)


@rule("an answer shows its own change")
def answers_show_changes(history):
    """The answer to a change has the new tags and priority; the answer to a cancel shows a finished job."""
    for job in history.jobs.values():
        for op in job.ops:
            if op["k"] not in ("change", "cancel") or op.get("code") != 200:
                continue
            doc = op["docs"][0]
            if op["k"] == "cancel" and doc["p"] not in FINISHED:
                yield job, f"the answer to a cancel shows the job as {doc['p']}", [op]
            elif op["k"] == "change" and not shows(doc, op):
                yield job, f"the answer to a change to {op['patch']} has {doc['t']} and {doc['r']}", [op]


def shows(doc, op):
    patch = op["patch"]
    return doc["t"] == patch.get("tags", doc["t"]) and doc["r"] == patch.get("priority", doc["r"])


@rule("changes are not lost")
def changes_stay(history):
    """Each version has the tags of the last acknowledged change before it.

    Allowed: the tags of a change without an answer, if it started before. No two changes set equal tags.
    """
    for job in history.jobs.values():
        changes = [op for op in job.of("change") if "tags" in op["patch"]]
        sure = sorted(((op["docs"][0]["v"], op) for op in changes if has_happened(op) and shows(op["docs"][0], op)),
                      key=lambda change: change[0])
        others = [op for op in changes if may_have_happened(op) and not (has_happened(op) and shows(op["docs"][0], op))]
        place = 0
        for seen in job.documents():
            while place < len(sure) and sure[place][0] <= seen.version:
                place += 1
            if not place:
                continue
            change = sure[place - 1][1]
            if seen.doc["t"] != change["patch"]["tags"] and not any(
                    op["patch"]["tags"] == seen.doc["t"] and op["s"] < seen.end for op in others):
                yield job, (f"the last change before version {short(seen.version)} set {change['patch']['tags']},"
                            f" but this version has {seen.doc['t']}"), [change, seen.op]
                break


@rule("If-Match is refused exactly when it must be")
def conditions_hold(history):
    """A change with If-Match is made if the job has the revision of that tag, and refused with 412 if it has not.

    Allowed: progress does not invalidate a tag. An operation at the same time may have changed the job before or after.
    """
    for job in history.jobs.values():
        accepted = {}
        for op in job.of("change", "cancel", "fetch", "purge"):
            if "match" not in op:
                continue
            wanted = revision(op["match"])
            if has_happened(op):
                later = next((seen for seen in job.seen if revision(seen.version) > wanted and seen.end < op["s"]), None)
                if later:
                    yield job, (f"a request with If-Match {short(op['match'])} was accepted although version"
                                f" {short(later.version)} had been answered before"), [later.op, op]
                if op["k"] == "purge" or op["k"] == "change" and "tags" in op["patch"]:
                    before = accepted.setdefault(wanted, op)
                    if before is not op:
                        yield job, f"two changes with If-Match {short(op['match'])} were accepted", [before, op]
            elif op.get("code") == 412:
                later = next((seen for seen in job.seen if revision(seen.version) == wanted and seen.start > ended(op)), None)
                if later:
                    yield job, (f"a request with If-Match {short(op['match'])} was refused, but a request that started after the"
                                f" refusal still got version {short(later.version)}"), [op, later.op]


# What is stored and what is deleted


READS = ("read", "wait", "if-none-match", "image", "stream", "change", "cancel", "fetch", "purge")


@rule("a purged job stays deleted, any other stays stored")
def jobs_are_kept(history):
    """After an acknowledged purge a job is unknown to every instance. A job that no request purged is never unknown.

    Allowed: while a purge is in progress, or if it got no answer, both. Jobs of a purged batch count as purged.
    """
    for job in history.jobs.values():
        purges = history.purges(job)
        gone = min((op for op in purges if has_happened(op)), key=ended, default=None)
        if gone:
            for seen in job.seen:
                if seen.start > ended(gone):
                    yield job, "the job is shown after its purge was acknowledged", [gone, seen.op]
                    break
            for op in job.of("image"):
                if op.get("code") == 200 and op["s"] > ended(gone):
                    yield job, "the image is served after the job's purge was acknowledged", [first_of(job), gone, op]
        for op in job.ops:
            is_unknown = op.get("err") == "not_found" and op["k"] in READS or any(
                doc["id"] == job.id and doc["p"] == "gone" for doc in op.get("docs", ()))
            if is_unknown and not any(purge["s"] < ended(op) for purge in purges):
                yield job, "an accepted job is unknown, but no request purged it", [last_of(job, op), op]
                break
    for batch in history.batches.values():
        purges = history.purges(batch)
        gone = min((op for op in purges if has_happened(op)), key=ended, default=None)
        late = gone and next((seen for seen in batch.seen if seen.start > ended(gone)), None)
        if late:
            yield batch, "the batch is shown after its purge was acknowledged", [gone, late.op]
        for op in batch.ops:
            if op.get("err") == "not_found" and not any(purge["s"] < ended(op) for purge in purges):
                yield batch, "an accepted batch is unknown, but no request purged it", [last_of(batch, op), op]
                break


def first_of(subject):
    return min((seen for seen in subject.seen), key=lambda seen: seen.end).op if subject.seen else subject.ops[0]


def last_of(subject, op):
    """The last operation that showed a job or batch before another operation."""
    before = [seen for seen in subject.seen if seen.doc and seen.end < op["s"]]
    return max(before, key=lambda seen: seen.end).op if before else first_of(subject)


@rule("nothing acknowledged is lost")
def everything_is_listed(history):
    """At the end, the list of all jobs has every job and every line that was acknowledged, except purged ones."""
    if not history.inventory or any(op.get("code") != 200 for op in history.inventory):
        return
    listed = {doc["id"] for op in history.inventory for doc in op["docs"]}
    paths = {doc["u"] for op in history.inventory for doc in op["docs"]}
    for job in history.jobs.values():
        if job.seen and job.id not in listed and not history.purges(job):
            yield job, "the job is missing in the final list of all jobs", [
                last_of(job, history.inventory[0]), history.inventory[-1]]
    for batch in history.batches.values():
        if history.purges(batch):
            continue
        for op in batch.of("begin", "lines"):
            # Other lines were rejected.
            lost = [path for path in op["urls"] if path.endswith(".png") and path not in paths]
            if op.get("code") == 202 and lost:
                yield batch, f"lines that were acknowledged have no job: {lost[:3]}", [op, history.inventory[-1]]
                break


@rule("one key gives one job")
def keys_are_unique(history):
    """Requests with the same key get the same jobs or batch. No URL, each of which is sent once or with one key, gets two jobs."""
    for ops in history.keys.values():
        first = None
        for op in ops:
            ids = [doc["id"] for doc in op.get("docs", ())] + ([op["bdoc"]["id"]] if "bdoc" in op else [])
            if ids and first and ids != first[0]:
                subject = history.jobs.get(ids[0]) or history.batches.get(ids[0])
                yield subject, f"the key {op['key']} gave {first[0]} and {ids}", [first[1], op]
            first = first or ids and (ids, op)
    by_path = {}
    for job in history.jobs.values():
        if job.path and not job.path.startswith("/shared/"):
            other = by_path.setdefault(job.path, job)
            if other is not job:
                yield job, f"{job.path} was submitted once and has the jobs {other.id} and {job.id}", \
                    [first_of(other), first_of(job)]


@rule("images are those of the origin")
def images_are_right(history):
    """A success has the image of its URL, and its image is served with exactly these bytes.

    Allowed: 503 while a store is not available, and 404 `not_found` after a purge.
    """
    for job in history.jobs.values():
        if job.path is None:
            continue
        right = digest(job.path) if any(op["k"] == "image" for op in job.ops) or any(
            seen.doc and "h" in seen.doc for seen in job.seen) else None
        for seen in job.seen:
            if seen.doc and seen.doc.get("h", right) != right:
                yield job, f"the image of {job.path} has the digest {seen.doc['h']}, not {right}", [seen.op]
        for op in job.of("image"):
            if op.get("code") == 200 and op["h"] != right:
                yield job, f"other bytes than those of {job.path} were served", [last_of(job, op), op]
            if op.get("code") == 410 and not history.purges(job):
                yield job, "the image of a success is gone", [last_of(job, op), op]
            success = op.get("code") in (404, 410) and op.get("err") != "not_found" and max(
                (seen for seen in job.seen if seen.doc and seen.doc["p"] == "success" and seen.end < op["s"]),
                key=lambda seen: seen.end, default=None)
            if success:
                yield job, f"the image of a success was answered with {op['code']} {op.get('err')}", [success.op, op]


@rule("every job ends")
def jobs_end(history):
    """When all faults have ended, every job finishes within the time that the run waits, and so does every closed batch."""
    if history.settled is None:
        return
    for subject in [*history.jobs.values(), *history.batches.values()]:
        for seen in subject.seen:
            if seen.start >= history.settled["e"] and seen.doc and seen.doc["p"] in ("queued", "loading", "running"):
                waited = history.settled["e"] - history.settled["s"]
                first = next(other.op for other in subject.documents() if other.version == seen.version)
                yield subject, f"still {seen.doc['p']} {waited / 1000:.0f} s after the last fault", [first, seen.op]
                break


# Batches


@rule("counts of a batch add up")
def counts_are_right(history):
    """The counts of a batch sum up to its lines. Its lines, and without a retry its ends, never become fewer with the version.

    An acknowledged line is counted.
    """
    for batch in history.batches.values():
        is_retried = any(may_have_happened(op) for op in batch.of("retry-batch"))
        before = None
        for seen in batch.documents():
            doc = seen.doc
            if sum(doc["c"]) != doc["n"]:
                yield batch, f"counts {doc['c']} do not add up to {doc['n']} lines", [seen.op]
            if before and doc["n"] < before.doc["n"]:
                yield batch, f"{before.doc['n']} lines became {doc['n']}", [before.op, seen.op]
            if before and not is_retried and before.doc["p"] != "cancelled" and any(
                    now < then for now, then in zip(doc["c"][2:], before.doc["c"][2:])):
                yield batch, f"ends became fewer without a retry: {before.doc['c']}, then {doc['c']}", [before.op, seen.op]
            before = seen
        for op in batch.of("begin", "lines"):
            if op.get("code") == 202:
                least = len(op["urls"]) + op.get("from", 0)
                if op["bdoc"]["n"] < least:
                    yield batch, f"{least} lines were acknowledged, but {op['bdoc']['n']} are counted", [op]


@rule("a cancelled batch keeps its counts")
def cancelled_batches_stay(history):
    """After a cancel of a batch was acknowledged, its jobs that had not finished end as cancelled, so its counts stay.

    Allowed: a retry of the batch changes them again.
    """
    for batch in history.batches.values():
        retries = [op for op in batch.of("retry-batch") if may_have_happened(op)]
        for cancel in batch.of("cancel-batch"):
            if cancel.get("code") != 200 or cancel["bdoc"]["p"] != "cancelled":
                continue
            for seen in sorted(batch.seen, key=lambda seen: seen.end):
                if seen.doc is None or seen.start < ended(cancel):
                    continue
                if any(op["s"] < seen.end and ended(op) > cancel["s"] for op in retries):
                    break
                # Order of counts: queued, loading, success, failure, cancelled, rejected.
                if seen.doc["c"] != cancel["bdoc"]["c"] and seen.doc["n"] == cancel["bdoc"]["n"]:
                    yield batch, (f"the cancel was answered with {named(cancel['bdoc']['c'])}; a later request got"
                                  f" {named(seen.doc['c'])}"), [cancel, seen.op]
                    break


def named(counts):
    names = ("queued", "loading", "success", "failure", "cancelled", "rejected")
    return ", ".join(f"{count} {name}" for count, name in zip(counts, names) if count)


@rule("each line appears once in the results")
def lines_appear_once(history):
    """Results have each line once, in order, with the same job each time and its final phase.

    They are complete if they were followed to the regular end of the stream, or if the batch had finished before. Without that,
    lines that have not finished are missing.
    """
    for batch in history.batches.values():
        lines = {}
        retries = [op for op in batch.of("retry-batch") if may_have_happened(op)]
        closed = [seen for seen in batch.seen if seen.doc and seen.doc["p"] != "receiving"]
        for op in batch.of("results"):
            numbers = [line for line, *_ in op.get("lines", ())]
            if any(after <= before for before, after in itertools.pairwise(numbers)):
                yield batch, f"the results have the lines {numbers}", [op]
            for line, job, phase, _ in op.get("lines", ()):
                known = lines.setdefault(line, (job, op))
                if known[0] != job:
                    yield batch, f"line {line} has the jobs {known[0]} and {job}", [known[1], op]
                phases = {seen.doc["p"]: seen.op for seen in history.jobs[job].seen if seen.doc and seen.doc["p"] in FINISHED} \
                    if job in history.jobs and not retries else {}
                if phases and phase not in phases:
                    yield batch, f"line {line} is {phase} in the results, its job is {', '.join(phases)}", [*phases.values(), op]
            if op.get("end") != "end" or not closed or history.purges(batch):
                continue
            over = [seen for seen in closed if seen.doc["p"] == "finished" and seen.end < op["s"]]
            if op.get("follow") or over and not any(ended(retry) > over[0].start for retry in retries):
                count = closed[0].doc["n"]
                if numbers != list(range(1, count + 1)):
                    missing = sorted(set(range(1, count + 1)) - set(numbers))
                    yield batch, f"complete results of {count} lines are without the lines {missing}", [
                        closed[0].op, *(seen.op for seen in over[:1]), op]


# Streams


def events_of(op, subject):
    """The events of one job in a stream. Those of a stream of many jobs are sorted once."""
    if op["k"] != "events":
        return op.get("events", ())
    if "by_job" not in op:
        op["by_job"] = collections.defaultdict(list)
        for event in op.get("events", ()):
            op["by_job"][event[2]["id"]].append(event)
    return op["by_job"][subject.id]


@rule("events arrive in order, and a stream ends with the job")
def streams_are_in_order(history):
    """Versions never go back within a stream. The stream of a job ends after the `phase` event with its final phase, and not before.

    Allowed: several events with one version. A stream of many jobs lists them again after events were lost, with progress that may
    be older, and after a crash of PostgreSQL without a claim that it has undone. The first event of a stream is `phase`, also of a
    finished job. A stream also ends when its job is purged, or breaks off by a fault.
    """
    for subject in [*history.jobs.values(), *history.batches.values()]:
        for op in subject.of("stream", "events", "batch-stream"):
            events = [event for event in events_of(op, subject) if revision(event[2]["v"]) not in subject.undone]
            rank = revision if op["k"] == "events" and not history.has_exact_progress else int
            for place, (before, after) in enumerate(itertools.pairwise(events)):
                if rank(after[2]["v"]) < rank(before[2]["v"]):
                    yield subject, f"version {short(after[2]['v'])} came after {short(before[2]['v'])} in one stream", [op]
                if op["k"] == "stream" and place and before[1] == "phase" and before[2]["p"] in FINISHED:
                    yield subject, "an event came after the final phase", [op]
            if op["k"] == "events" or op.get("end") != "end":
                continue
            is_over = events and events[-1][2]["p"] in FINISHED | {"finished"}
            if not is_over and not any(purge["s"] < ended(op) for purge in history.purges(subject)):
                yield subject, "the service ended a stream before the end of what it follows", [op]


@rule("a client that waits learns of the end")
def ends_are_reported(history):
    """A stream of a job, or a request with `wait`, reports the end within seconds after another client has seen it.

    Allowed: longer while there are faults, and soon after.
    """
    for job in history.jobs.values():
        waiting = job.of("stream", "wait")
        if not waiting or not job.documents():
            continue
        first = {}
        for seen in job.documents():
            if seen.doc["p"] in FINISHED:
                first[seen.doc["f"]] = min(first.get(seen.doc["f"], seen), seen, key=lambda seen: seen.end)
        for op in waiting:
            if op.get("code") != 200 or op.get("end") == "cut":
                continue
            for known in first.values():
                due = max(known.end, op["s"]) + PROMPT
                arrival = min((seen.end for seen in job.seen if seen.op is op and seen.version >= known.version),
                              default=op["e"])
                if due < arrival and history.is_calm(max(known.end, op["s"]), arrival):
                    yield job, (f"the job's end at version {short(known.version)} was known {arrival - due + PROMPT:.0f} ms"
                                " before this client learned of it"), [known.op, op]
                    break


@rule("a client that reconnects misses no end")
def ends_are_repeated(history):
    """A client that reconnects to `/events` with a position gets the end of each job that finished since then.

    Required is only what is certain: the job was seen unfinished by a request that started after the position had arrived, and
    finished before the client reconnected. Purged jobs have no events. A job that was queued again has newer ones.
    """
    ends = sorted(((seen.end, job, seen) for job in history.jobs.values() for seen in job.documents()[-1:]
                   if seen.doc["p"] in FINISHED and not history.purges(job)), key=lambda end: end[0])
    for op in history.reconnected:
        if "complete" not in op:
            continue
        first = bisect.bisect_right(ends, op["since"], key=lambda end: end[0])
        last = bisect.bisect_left(ends, op["s"], key=lambda end: end[0])
        for _, job, final in ends[first:last]:
            before = next((seen for seen in job.seen if seen.start >= op["since"] and seen.doc
                           and seen.doc["p"] not in FINISHED), None)
            if before and not any(doc["v"] >= final.version for _, _, doc in events_of(op, job)):
                yield job, (f"the job was {before.doc['p']} after the client's position and {final.doc['p']} before it reconnected,"
                            " but it got no event of the end"), [before.op, final.op, op]
