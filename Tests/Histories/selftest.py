"""Small histories by hand: for each rule some that it must refuse, and similar ones that the contract allows."""

import copy
import json
import pathlib
import tempfile
import unittest

import report
import rules
from images import digest

# Longer than one revision: the 20 bits of progress reports.
REVISION = 1 << 20


def version(revision, reports=0):
    return revision * REVISION + reports + 1


def job(revision, phase, reports=0, name="job", **members):
    short = {"id": name, "p": phase, "v": version(revision, reports), "t": ["a"], "r": "normal", "a": 1, "u": "/ok/1.png"}
    if phase in rules.FINISHED:
        short["f"] = "2026-01-01T00:00:00.000Z"
    if phase == "success":
        short["h"] = digest("/ok/1.png")
    return short | members


def batch(number, state, counts, **members):
    return {"id": "batch", "p": state, "v": number, "n": sum(counts), "c": counts} | members


class Recorded:
    """Builds a history in which each operation takes ten milliseconds and starts after the one before."""

    def __init__(self, instances=3):
        self.records, self.time = [{"instances": instances, "seed": 1, "command": "again"}], 0

    def add(self, kind, code=200, start=None, finish=0, instance=0, **fields):
        start = self.time if start is None else start
        finish = start + 10 if finish == 0 else finish
        self.time = max(self.time, start + 20, (finish or 0) + 10)
        record = {"n": len(self.records), "c": 0, "i": instance, "k": kind, "s": start, "e": finish} | fields
        if code is not None:
            record["code"] = code
        if kind not in ("submit", "list", "events", "begin") and "batch" not in fields:
            record.setdefault("job", "job")
        self.records.append(record)
        return self

    def shows(self, kind, *docs, **fields):
        return self.add(kind, docs=list(docs), **fields)

    def lost(self, kind, **fields):
        return self.add(kind, code=None, finish=None, **fields)

    def also(self, **record):
        self.records.append(record)
        return self

    def broken(self):
        violations = self.violations()
        for violation in violations:
            # The operations of an excerpt break the rule without any others.
            alone = [record for record in self.records if record.get("k") in (None, "settled")] + violation.ops
            assert violation.rule in {other.rule for other in rules.check(rules.History(records=copy.deepcopy(alone)))}, violation
            assert len(self.excerpt(violation)) <= 15
        return {violation.rule for violation in violations}

    def violations(self):
        return rules.check(rules.History(records=copy.deepcopy(self.records)))

    def excerpt(self, violation):
        return report.excerpt(rules.History(records=copy.deepcopy(self.records)), violation)


SUBMIT = job(0, "queued")
LIFE = [job(0, "queued"), job(1, "loading"), job(2, "success")]


class RuleTests(unittest.TestCase):
    def allows(self, recorded):
        self.assertEqual(recorded.broken(), set())

    def refuses(self, rule, recorded):
        self.assertEqual(recorded.broken(), {rule})

    def life(self, *phases, **options):
        """A history with a submission and a read of each phase."""
        recorded = Recorded(**options).shows("submit", SUBMIT, code=202)
        for number, phase in enumerate(phases, 1):
            recorded.shows("read", job(number, phase))
        return recorded

    def test_versions_never_go_back(self):
        rule = "versions never go back"
        self.allows(self.life("loading", "success"))
        self.refuses(rule, self.life("loading", "success").shows("read", job(1, "loading"), instance=1))
        # A read at the same time may show the state before.
        self.allows(self.life("loading").shows("read", job(2, "success")).shows("read", job(1, "loading"), start=35, finish=60))
        # Progress may be older at another instance, but not with one instance.
        lag = [job(1, "loading", 5), job(1, "loading", 3)]
        self.allows(Recorded().shows("read", lag[0]).shows("read", lag[1], instance=1))
        alone = Recorded(instances=1).shows("read", lag[0]).shows("read", lag[1])
        self.refuses(rule, alone)
        self.allows(alone.also(k="fault", what="kill -9 of instance 0", s=12, e=18))
        # A crash of PostgreSQL may undo a claim, but not a change that was acknowledged.
        claim = Recorded().shows("read", job(2, "loading")).shows("read", job(1, "queued"))
        self.refuses(rule, claim)
        self.allows(claim.also(k="fault", what="crash of PostgreSQL", s=5, e=18))
        change = Recorded().shows("read", job(2, "queued")).shows("read", job(1, "queued"))
        self.refuses(rule, change.also(k="fault", what="crash of PostgreSQL", s=5, e=18))
        # An event may be late, but a job's own stream begins with the current state.
        late = {"events": [[75, "phase", job(1, "loading")]], "end": "cut", "start": 70}
        self.allows(self.life("loading", "success").add("events", **late))
        self.refuses(rule, self.life("loading", "success").add("stream", **late))
        # 304 says that the version is still this one.
        self.refuses(rule, self.life("loading", "success").add("if-none-match", 304, match=version(1)))
        self.refuses(rule, Recorded().add("batch", batch="batch", bdoc=batch(5, "running", [1, 0, 1, 0, 0, 0])).add(
            "batch", batch="batch", bdoc=batch(4, "running", [2, 0, 0, 0, 0, 0])))

    def test_acknowledgement_before_the_commit_is_found(self):
        # The instance is killed after its answer, and the change is lost.
        lost = self.life("loading").shows("change", job(2, "loading", t=["b"]), patch={"tags": ["b"]}).shows(
            "read", job(1, "loading"))
        self.refuses("versions never go back", lost)

    def test_one_version_has_one_content(self):
        rule = "one version has one content"
        self.refuses(rule, self.life("loading", "failure").shows("read", job(2, "failure", t=["b"])))
        self.allows(self.life("loading").shows("read", job(1, "loading", a=2), instance=1))

    def test_a_job_has_one_final_phase(self):
        rule = "a job has one final phase"
        self.refuses(rule, self.life("loading", "cancelled", "success"))
        self.refuses(rule, self.life("loading", "failure", "queued"))
        # A late result of an instance that lost its claim: the job ends twice.
        self.refuses(rule, self.life("loading", "failure").shows("read", job(3, "failure", f="2026-01-01T00:00:09.000Z")))
        # A change of a finished job keeps its end.
        self.allows(self.life("loading", "failure").shows(
            "change", job(3, "failure", t=["b"]), patch={"tags": ["b"]}))
        again = self.life("loading", "failure").shows("fetch", job(3, "queued"))
        self.allows(copy.deepcopy(again).shows("read", job(4, "failure", f="2026-01-01T00:00:09.000Z")))
        # One request does not queue it twice.
        self.refuses(rule, again.shows("read", job(4, "failure", f="2026-01-01T00:00:09.000Z")).shows(
            "read", job(5, "queued")))
        # A request without an answer may have happened; one that was refused has not.
        self.allows(self.life("loading", "failure").lost("fetch").shows("read", job(3, "queued")))
        self.refuses(rule, self.life("loading", "failure").add("fetch", 412, match=version(0)).shows("read", job(3, "queued")))
        # The image of a success is stored, so it is not fetched again.
        self.refuses(rule, self.life("loading", "success").lost("fetch").shows("read", job(3, "queued")))

    def test_an_answer_shows_its_own_change(self):
        rule = "an answer shows its own change"
        self.refuses(rule, self.life("loading").shows("cancel", job(1, "loading")))
        self.refuses(rule, self.life("loading").shows("change", job(2, "loading", t=["b"]), patch={"tags": ["c"]}))
        self.allows(self.life("loading").shows("change", job(2, "loading", r="high"), patch={"priority": "high"}))

    def test_changes_are_not_lost(self):
        rule = "changes are not lost"
        changed = self.life("loading").shows("change", job(2, "loading", t=["b"]), patch={"tags": ["b"]})
        self.refuses(rule, copy.deepcopy(changed).shows("read", job(3, "success")))
        self.allows(copy.deepcopy(changed).shows("read", job(3, "success", t=["b"])))
        # A change without an answer may have its effect at any time.
        late = changed.lost("change", patch={"tags": ["c"]}, start=25)
        self.allows(copy.deepcopy(late).shows("read", job(3, "success", t=["b"])))
        self.allows(late.shows("read", job(3, "success", t=["c"])))

    def test_if_match(self):
        rule = "If-Match is refused exactly when it must be"
        changed = self.life("loading", "failure")
        self.refuses(rule, copy.deepcopy(changed).shows(
            "change", job(3, "failure", t=["b"]), match=version(1), patch={"tags": ["b"]}))
        self.refuses(rule, copy.deepcopy(changed).add("change", 412, match=version(2), patch={"tags": ["b"]}).shows(
            "read", job(2, "failure")))
        self.allows(copy.deepcopy(changed).add("change", 412, match=version(1), patch={"tags": ["b"]}).shows(
            "read", job(2, "failure")))
        # Progress does not invalidate a tag.
        self.allows(Recorded().shows("read", job(1, "loading", 4)).shows(
            "change", job(2, "loading", t=["b"]), match=version(1), patch={"tags": ["b"]}))
        # Two changes at the same time: one must be refused.
        first = changed.shows("change", job(3, "failure", t=["b"]), match=version(2), patch={"tags": ["b"]}, start=70)
        self.allows(copy.deepcopy(first).add("change", 412, match=version(2), patch={"tags": ["c"]}, start=70))
        self.refuses(rule, first.shows(
            "change", job(4, "failure", t=["c"]), match=version(2), patch={"tags": ["c"]}, start=70))

    def test_a_purged_job_stays_deleted(self):
        rule = "a purged job stays deleted, any other stays stored"
        purged = self.life("loading", "success").add("purge", 204)
        self.allows(copy.deepcopy(purged).add("read", 404, err="not_found"))
        self.refuses(rule, copy.deepcopy(purged).shows("read", job(2, "success"), instance=1))
        self.refuses(rule, purged.add("image", 200, h=digest("/ok/1.png"), u="/ok/1.png"))
        self.refuses(rule, self.life("loading").add("read", 404, err="not_found"))
        self.allows(self.life("loading").lost("purge").add("read", 404, err="not_found").shows("read", job(1, "loading")))
        self.refuses(rule, Recorded().add("begin", 202, bdoc=batch(1, "receiving", [0] * 6), urls=[]).add(
            "batch", 404, batch="batch", err="not_found"))

    def test_nothing_acknowledged_is_lost(self):
        rule = "nothing acknowledged is lost"
        self.refuses(rule, self.life("loading", "success").shows("list", inventory=True))
        self.allows(self.life("loading", "success").shows("list", job(2, "success"), inventory=True))
        self.allows(self.life("loading", "success").lost("purge").shows("list", inventory=True))
        begun = Recorded().add("begin", 202, bdoc=batch(1, "running", [1] + [0] * 5), urls=["/ok/1.png"])
        self.refuses(rule, copy.deepcopy(begun).shows("list", inventory=True))
        self.allows(begun.shows("list", job(2, "success", b=["batch", 1]), inventory=True))

    def test_one_key_gives_one_job(self):
        rule = "one key gives one job"
        again = self.life().shows("submit", SUBMIT, code=202, key="key")
        self.allows(copy.deepcopy(again).lost("submit", key="key").shows("submit", SUBMIT, code=202, key="key"))
        # The answer was lost, and so was the key.
        self.refuses(rule, again.shows("submit", job(0, "queued", name="other", u="/ok/2.png"), code=202, key="key"))
        # The store repeated a commit whose answer it did not get.
        self.refuses(rule, self.life().shows("list", SUBMIT, job(0, "queued", name="other")))

    def test_images_are_those_of_the_origin(self):
        rule = "images are those of the origin"
        done = self.life("loading", "success")
        self.allows(copy.deepcopy(done).add("image", 200, h=digest("/ok/1.png"), u="/ok/1.png").add("image", 503))
        self.refuses(rule, copy.deepcopy(done).add("image", 200, h="other", u="/ok/1.png"))
        self.refuses(rule, copy.deepcopy(done).add("image", 410, err="image_gone"))
        self.refuses(rule, done.add("image", 404, err="image_unavailable"))

    def test_every_job_ends(self):
        settled = self.life("loading").also(k="settled", s=50, e=90)
        self.refuses("every job ends", copy.deepcopy(settled).shows("read", job(1, "loading"), start=100))
        self.allows(settled.shows("read", job(2, "success"), start=100))

    def test_counts_of_a_batch_add_up(self):
        rule = "counts of a batch add up"

        def counted(*counts, state="running"):
            recorded = Recorded()
            for number, count in enumerate(counts, 1):
                recorded.add("batch", batch="batch", bdoc=batch(number, state, count, n=2))
            return recorded
        self.allows(counted([2, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0]))
        self.refuses(rule, counted([2, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]))
        self.refuses(rule, counted([0, 0, 1, 1, 0, 0], [1, 0, 1, 0, 0, 0]))
        self.refuses(rule, Recorded().add(
            "lines", 202, batch="batch", urls=["a", "b"], bdoc=batch(1, "receiving", [2, 0, 0, 0, 0, 0]), **{"from": 1}))

    def test_a_cancelled_batch_keeps_its_counts(self):
        cancelled = Recorded().add("cancel-batch", batch="batch", bdoc=batch(3, "cancelled", [0, 0, 1, 0, 1, 0]))
        self.allows(copy.deepcopy(cancelled).add("batch", batch="batch", bdoc=batch(4, "cancelled", [0, 0, 1, 0, 1, 0])))
        self.refuses("a cancelled batch keeps its counts", copy.deepcopy(cancelled).add(
            "batch", batch="batch", bdoc=batch(4, "cancelled", [0, 0, 2, 0, 0, 0])))
        self.allows(cancelled.add("retry-batch", batch="batch", bdoc=batch(4, "cancelled", [0, 0, 1, 0, 1, 0])).add(
            "batch", batch="batch", bdoc=batch(5, "running", [1, 0, 1, 0, 0, 0])))

    def test_each_line_appears_once(self):
        rule = "each line appears once in the results"

        def results(*numbers, **options):
            lines = [[number, f"job {number}", "success", None] for number in numbers]
            return Recorded().add("batch", batch="batch", bdoc=batch(3, "finished", [0, 0, 3, 0, 0, 0])).add(
                "results", batch="batch", lines=lines, **options)
        self.allows(results(1, 2, 3, end="end"))
        self.allows(results(1, 2, end="cut"))
        self.refuses(rule, results(1, 3, end="end"))
        self.refuses(rule, results(1, 2, 2, 3, end="end"))
        self.refuses(rule, results(1, 2, end="end", follow=True))
        self.refuses(rule, results(1, 2, 3, end="end").add(
            "results", batch="batch", lines=[[1, "another job", "success", None]], end="cut"))

    def test_events_arrive_in_order(self):
        rule = "events arrive in order, and a stream ends with the job"

        def stream(*events, end="end"):
            return Recorded().also(
                n=1, c=0, i=0, k="stream", job="job", s=0, e=100, code=200, end=end,
                events=[[number, name, doc] for number, (name, doc) in enumerate(events, 1)])
        queued, loading, success = (("phase", doc) for doc in LIFE)
        self.allows(stream(queued, loading, ("image", LIFE[2]), success))
        self.allows(stream(success, ("image", LIFE[2])))
        self.allows(stream(queued, end="cut"))
        self.refuses(rule, stream(loading, queued, end="left"))
        self.refuses(rule, stream(queued, loading))
        self.refuses(rule, stream(queued, success, ("image", LIFE[2])))
        self.allows(stream(queued).add("purge", 204, start=50))

        def listed(*docs):
            return Recorded().add("events", end="left", finish=100, start=0, events=[
                [10 * number, "phase", doc] for number, doc in enumerate(docs, 1)])
        # A stream of many jobs may list older progress, but no older revision, except one that a crash has undone.
        self.allows(listed(job(1, "loading", 5), job(1, "loading", 3)))
        self.refuses(rule, listed(job(2, "loading"), job(1, "queued")))
        self.allows(listed(job(2, "loading"), job(1, "queued")).also(k="fault", what="crash of PostgreSQL", s=12, e=18))
        self.refuses(rule, listed(job(2, "success"), job(1, "loading")))

    def test_a_client_that_waits_learns_of_the_end(self):
        rule = "a client that waits learns of the end"
        late = self.life("loading", "success").shows("wait", job(2, "success"), start=30, finish=7_000, instance=1)
        self.refuses(rule, copy.deepcopy(late))
        self.allows(late.also(k="fault", what="kill -9 of instance 1", s=0, e=100))
        self.allows(self.life("loading", "success").shows("wait", job(2, "success"), start=30, finish=300, instance=1))

    def test_a_client_that_reconnects_misses_no_end(self):
        done = self.life("loading", "success")
        missed = {"start": 70, "since": 15, "complete": 75, "end": "left"}
        self.refuses("a client that reconnects misses no end", copy.deepcopy(done).add("events", events=[], **missed))
        self.allows(copy.deepcopy(done).add("events", events=[[74, "phase", job(2, "success")]], **missed))
        # The job may have finished before the position.
        self.allows(done.add("events", events=[], **missed | {"since": 45}))


class ReportTests(unittest.TestCase):
    def test_an_excerpt_has_only_what_a_violation_needs(self):
        recorded = RuleTests().life("loading", "failure")
        for number in range(100):
            recorded.shows("read", job(2, "failure"), instance=number % 3)
            recorded.shows("submit", job(0, "queued", name=f"{number}", u=f"/{number}.png"), code=202)
            recorded.add("change", 412, match=version(1), patch={"tags": ["no"]})
        recorded.also(k="fault", what="long before", s=10, e=50).also(
            k="fault", what="clock of instance 2 set to +3.0 s", s=60, e=60, clock=[2, 3])
        recorded.shows("change", job(3, "failure", t=["b"]), patch={"tags": ["b"]})
        time = recorded.time
        recorded.lost("cancel").shows("read", job(3, "failure", t=["b"])).also(k="fault", what="kill", s=time, e=time + 30)
        recorded.shows("read", job(2, "failure"), instance=2).shows("change", job(4, "failure", t=["c"]), patch={"tags": ["c"]})
        [violation] = recorded.violations()
        self.assertEqual([line[:1] + line[39:] for line in recorded.excerpt(violation)], [
            "  operation",
            "  clock of instance 2 set to +3.0 s",
            "> change patch {'tags': ['b']} -> 200 failure version 3 normal b finished 00:00:00.000",
            "  kill",
            "  cancel -> no answer",
            "> read -> 200 failure version 2 normal a finished 00:00:00.000"])

    def test_a_long_excerpt_has_the_changes_and_faults_next_to_the_contradiction(self):
        recorded = RuleTests().life("loading", "failure").shows("change", job(3, "failure", t=["b"]), patch={"tags": ["b"]})
        for number in range(40):
            recorded.lost("change", patch={"tags": [f"{number}"]}).also(
                k="fault", what=f"fault {number}", s=recorded.time, e=recorded.time + 5)
        recorded.shows("read", job(2, "failure"))
        lines = recorded.excerpt(recorded.violations()[0])
        self.assertEqual(len(lines), 15)
        self.assertIn("fault 39", "".join(lines))
        self.assertNotIn("fault 35", "".join(lines))
        self.assertIn("(69 other changes and faults of this time are left out)", lines[-1])


class FileTests(unittest.TestCase):
    def test_a_recorded_file_is_checked_like_the_run(self):
        records = RuleTests().life("loading", "cancelled", "success").records
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "history.jsonl")
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
            self.assertEqual([violation.rule for violation in rules.check(rules.History(path))],
                             ["a job has one final phase"])

    def test_every_rule_has_a_test(self):
        source = pathlib.Path(__file__).read_text()
        for name, function in rules.RULES:
            self.assertIn(f'"{name}"', source)
            self.assertTrue(function.__doc__)


if __name__ == "__main__":
    unittest.main()
