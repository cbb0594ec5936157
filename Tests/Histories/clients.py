"""Clients that use the service at the same time and record every request with its answer and its interval."""

import collections
import contextlib
import http.client
import itertools
import json
import random
import threading
import time
import urllib.parse

from images import shortened
from origin import address

FINISHED = ("success", "failure", "cancelled")
PRIORITIES = ["very_low", "low", "normal", "high", "very_high"]
# Seconds that a stream or a request with `wait` takes at most.
LONGEST = 8
WAIT = 6

# How often each operation is chosen.
OPERATIONS = {
    "submit": 8, "array": 1, "read": 26, "read-changed": 8, "wait": 4, "if-none-match": 6, "image": 8, "stream": 3, "events": 0.5,
    "change": 14, "cancel": 6, "fetch": 5, "purge": 2, "list": 1,
    "begin": 1.5, "lines": 1.5, "close": 1, "batch": 6, "batch-stream": 0.5, "results": 2, "cancel-batch": 0.7,
    "retry-batch": 0.7, "purge-batch": 0.2,
}
# While an instance starts or has slow links: it is read, and other instances change what it may still remember.
FOCUSED = {"read": 30, "read-changed": 4, "change": 14, "fetch": 2, "cancel": 2, "purge": 2, "image": 2, "submit": 4}
# After that: does it still remember what has changed?
REVIEW = {"read-changed": 1}
KINDS = {"ok": 40, "shared": 10, "slow": 15, "big": 8, "flaky": 6, "down": 5, "missing": 6, "junk": 2, "hang": 8}


class Unsent(Exception):
    """The request did not reach the service."""


class Lost(Exception):
    """The answer did not arrive. The request may have had its effect, or may have it later."""


class Recorder:
    """Writes a history: one JSON document per line, first the description of the run, then operations as they end.

    Members of an operation: `n` number, `c` client, `i` instance, `k` kind, `s` and `e` start and end in milliseconds (`e` is null
    if no answer arrived), `code` the status, `err` the code of a problem, `job`, `batch`, `key`, `match` the version in If-Match or
    If-None-Match, `patch`, `urls`, `docs` the jobs in the answer, `bdoc` the batch in it, `events` with the time of arrival,
    `lines` of results, `end` how a stream ended: `end` by the service, `cut` by a fault, `left` by the client. For a stream of all
    jobs: `position` the last event ID and the time when it arrived, `complete` the time of the first one, `since` the time of the
    position that the client reconnected with.
    """

    def __init__(self, path, description):
        self.file, self.lock, self.begin = path.open("w"), threading.Lock(), time.monotonic()
        self.numbers, self.counts = itertools.count(1), collections.Counter()
        self.write(description)

    def now(self):
        return round((time.monotonic() - self.begin) * 1000, 2)

    def write(self, record):
        line = json.dumps(record, separators=(",", ":")) + "\n"
        with self.lock:
            # Clients may still run after an error.
            if not self.file.closed:
                self.file.write(line)

    def add(self, record):
        self.counts[record["k"], record.get("code")] += 1
        self.write(record)

    def fault(self, name, start, **more):
        self.write({"k": "fault", "what": name, "s": start, "e": self.now()} | more)

    def close(self):
        with self.lock:
            self.file.close()


def job_document(job):
    """The members of a job that rules are about."""
    short = {"id": job["id"], "p": job["phase"]}
    if job["phase"] == "gone":
        return short
    short |= {"v": job["version"], "t": job["tags"], "r": job["priority"], "a": job["attempts"],
              "u": urllib.parse.urlsplit(job["source"]["url"]).path}
    for key, value in (
            ("f", job["finished_at"]), ("x", job["error"] and job["error"]["code"]),
            ("h", job["image"] and job["image"]["sha256"][:16]),
            ("b", job["batch"] and [job["batch"]["id"], job["batch"]["line"]])):
        if value is not None:
            short[key] = value
    return short


def has_changed(record):
    return record.get("code") in (200, 204) and record["k"] in ("change", "purge")


def batch_document(batch):
    if batch["state"] == "gone":
        return {"id": batch["id"], "p": "gone"}
    counts = batch["counts"]
    order = ("queued", "loading", "success", "failure", "cancelled", "rejected")
    return {"id": batch["id"], "p": batch["state"], "v": batch["version"], "n": batch["received"],
            "c": [counts[name] for name in order]}


class Known:
    """What clients know about a job or batch: its last versions and its last phase or state."""

    def __init__(self, document):
        self.id, self.path = document["id"], document.get("u")
        self.versions = collections.deque(maxlen=3)
        self.state = self.received = None
        self.note(document)

    def note(self, document):
        if "v" in document and (not self.versions or document["v"] > self.versions[-1]):
            self.versions.append(document["v"])
            self.state, self.received = document["p"], document.get("n")


class Pool:
    """The jobs and batches that clients use. Most operations are about a few, so that clients meet."""

    def __init__(self):
        self.lock = threading.Lock()
        self.known, self.hot, self.batches = {}, collections.deque(), collections.deque()
        self.old, self.purged = collections.deque(), collections.deque(maxlen=8)
        # Changed or purged in the last seconds.
        self.changed = collections.deque(maxlen=600)
        self.keys = collections.deque(maxlen=30)
        self.urls = itertools.count(1)

    def note(self, document):
        with self.lock:
            known = self.known.get(document["id"])
            if known:
                known.note(document)

    def add(self, document, places, size):
        with self.lock:
            if document["p"] == "gone" or document["id"] in self.known:
                return
            self.known[document["id"]] = known = Known(document)
            places.append(known)
            if len(places) > size:
                self.retire(places.popleft())

    def add_job(self, document):
        self.add(document, self.hot, 30)

    def add_batch(self, document):
        self.add(document, self.batches, 6)

    def retire(self, known):
        """Moves a job from the hot ones to the old ones, and forgets the oldest one. A batch is forgotten at once."""
        if known.path:
            self.old.append(known)
            known = self.old.popleft() if len(self.old) > 500 else None
        if known:
            self.known.pop(known.id, None)

    def pick(self, rng, phase=None):
        """A job: mostly a hot one, sometimes an old or a purged one; with this phase, if there is one."""
        with self.lock:
            place = rng.choices((self.hot, self.old, self.purged), (85, 12, 3))[0] or self.hot
            wanted = [known for known in place if phase in (None, known.state)] or place
            return rng.choice(wanted) if wanted else None

    def pick_batch(self, rng):
        with self.lock:
            return rng.choice(self.batches) if self.batches else None

    def remove(self, known, places):
        with self.lock, contextlib.suppress(ValueError):
            places.remove(known)

    def pick_changed(self, rng):
        """A job that was changed lately. An instance that missed the change may still show the earlier state."""
        with self.lock:
            changed = list(self.changed)[-rng.choice((100, self.changed.maxlen)):]
            return rng.choice(changed) if changed else None

    def recent(self):
        """The jobs that were changed last, and the hot ones."""
        with self.lock:
            return list({known.id: known for known in [*self.changed, *self.hot]}.values())


class Client(threading.Thread):
    """Sends one request after the other, to instances at random. The seed decides its choices, but not their timing."""

    def __init__(self, number, seed, services, recorder, pool, run):
        super().__init__(daemon=True)
        self.number, self.rng = number, random.Random(f"{seed}-{number}")
        self.services, self.recorder, self.pool, self.shared = services, recorder, pool, run
        self.connections, self.keys = {}, itertools.count(1)
        self.failure = None

    def run(self):
        try:
            while self.shared.may_continue():
                self.step()
        except Exception as error:
            self.failure, self.shared.deadline = error, 0
            raise

    def step(self):
        weights = OPERATIONS
        if self.shared.focus is not None and self.rng.random() < 0.8:
            weights = FOCUSED
        elif self.shared.reviewed is not None and self.rng.random() < 0.6:
            weights = REVIEW
        name = self.rng.choices(list(weights), list(weights.values()))[0]
        try:
            getattr(self, "do_" + name.replace("-", "_"))()
        except (Unsent, Lost):
            # Another instance may answer.
            time.sleep(0.005)

    # Requests

    def instance(self, is_change=False):
        focus, count = self.shared.focus, len(self.services.instances)
        if focus is None or count == 1 or self.rng.random() < 0.2:
            return self.rng.randrange(count)
        return self.rng.choice([number for number in range(count) if number != focus]) if is_change else focus

    def send(self, instance, method, path, body, headers, timeout):
        """Sends a request. Returns the response, whose body was not read."""
        connection = self.connections.get(instance)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.services.instances[instance].port, timeout=2)
            try:
                connection.connect()
            except OSError:
                raise Unsent from None
            self.connections[instance] = connection
        try:
            connection.sock.settimeout(timeout)
            connection.request(method, path, body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException):
            self.drop(instance)
            raise Lost from None

    def drop(self, instance):
        connection = self.connections.pop(instance, None)
        if connection:
            connection.close()

    def operate(self, kind, method, path, instance=None, body=None, headers=(), longer=0, fields=None, read=None):
        """Sends a request and records it. `read` reads an answer that is no JSON into the record."""
        if instance is None:
            instance = self.instance()
        headers = dict(headers)
        # Some clients give up before the answer.
        timeout = self.rng.uniform(0.005, 1) if self.rng.random() < 0.02 else 10 + longer
        record = {"n": next(self.recorder.numbers), "c": self.number, "i": instance, "k": kind,
                  "s": self.recorder.now(), "e": None} | (fields or {})
        try:
            response = self.send(instance, method, path, body, headers, timeout)
            if read and response.status == 200:
                record["code"] = 200
                read(record, response, instance)
                record["e"] = self.recorder.now()
            else:
                content = self.content(response, instance)
                record["e"], record["code"] = self.recorder.now(), response.status
                self.note(record, content)
            if response.will_close:
                self.drop(instance)
        except Unsent:
            raise
        except Lost:
            self.recorder.add(record)
            raise
        self.recorder.add(record)
        if record["code"] in (429, 503):
            time.sleep(0.02)
        return record

    def content(self, response, instance):
        try:
            return response.read()
        except (OSError, http.client.HTTPException):
            self.drop(instance)
            raise Lost from None

    def note(self, record, content):
        """Records the jobs, the batch or the problem in an answer."""
        if not content:
            return
        answer = json.loads(content)
        if "phase" in answer:
            record["docs"] = [job_document(answer)]
        elif "jobs" in answer and isinstance(answer["jobs"], list):
            record["docs"] = list(map(job_document, answer["jobs"]))
            record["next"] = answer.get("next_cursor")
        elif "batches" in answer:
            # Listed batches are not checked. A true `next` means that there are any.
            record["docs"], record["next"] = [], answer["next_cursor"] or len(answer["batches"])
        elif "state" in answer:
            record["bdoc"] = batch_document(answer)
            self.pool.note(record["bdoc"])
        elif "code" in answer:
            record["err"] = answer["code"]
        for document in record.get("docs", []):
            self.pool.note(document)

    # Jobs

    def url(self):
        kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        # New shared URLs come up all the time, because jobs share a load only until the response is cached.
        shared = int(time.monotonic() * 1.5) * 4 + self.rng.randrange(4)
        number = shared if kind == "shared" else next(self.pool.urls)
        return f"http://{address(kind)}:{self.services.origin.ports[0]}/{kind}/{number}.png"

    def new_key(self):
        return f"key-{self.number}-{next(self.keys)}"

    def submit(self, kind, path, body, media_type, key, urls):
        """Submits; with a key again and again until an answer arrives, as clients should."""
        headers = {"Content-Type": media_type} if body else {}
        fields = {"urls": [urllib.parse.urlsplit(url).path for url in urls]}
        if key:
            headers["Idempotency-Key"] = fields["key"] = key
        for _ in range(8):
            try:
                return self.operate(kind, "POST", path, self.instance(True), body, headers, fields=fields)
            except (Unsent, Lost):
                if not key or not self.shared.may_continue():
                    raise
                time.sleep(self.rng.uniform(0, 0.3))
        raise Lost

    def do_submit(self):
        if self.pool.keys and self.rng.random() < 0.06:
            record = self.submit(*self.rng.choice(self.pool.keys))
        else:
            url, key = self.url(), self.new_key() if self.rng.random() < 0.3 else None
            body = json.dumps({"url": url, "tags": [f"first-{self.number}"]})
            arguments = ("submit", "/jobs", body, "application/json", key, [url])
            if key:
                self.pool.keys.append(arguments)
            record = self.submit(*arguments)
        self.note_new(record)

    def do_array(self):
        urls = [self.url() for _ in range(self.rng.randint(2, 5))]
        body = json.dumps([{"url": url} for url in urls])
        self.note_new(self.submit("submit", "/jobs", body, "application/json", self.new_key(), urls))

    def note_new(self, record):
        for document in record.get("docs", []):
            self.pool.add_job(document)

    def job(self, phase=None):
        known = self.pool.pick(self.rng, phase)
        if known is None:
            raise Unsent
        return known

    def read(self, known, instance=None):
        return self.operate("read", "GET", f"/jobs/{known.id}", instance, fields={"job": known.id})

    def do_read(self):
        self.read(self.job("success" if self.shared.focus is not None else None))

    def do_read_changed(self):
        known = self.pool.pick_changed(self.rng)
        if known:
            self.read(known, self.shared.reviewed)

    def do_wait(self):
        known = self.job("loading" if self.rng.random() < 0.5 else "queued")
        self.operate("wait", "GET", f"/jobs/{known.id}?wait={WAIT}", longer=WAIT, fields={"job": known.id})

    def do_if_none_match(self):
        known = self.job()
        version = self.version(known)
        self.operate("if-none-match", "GET", f"/jobs/{known.id}", headers={"If-None-Match": f'"{version}"'},
                     fields={"job": known.id, "match": version})

    def version(self, known):
        """The last known version, or an older one."""
        return self.rng.choice(known.versions) if self.rng.random() < 0.3 else known.versions[-1]

    def do_image(self):
        known = self.job("success")

        def read(record, response, instance):
            record["h"] = shortened(self.content(response, instance))
        self.operate("image", "GET", f"/jobs/{known.id}/image", fields={"job": known.id, "u": known.path}, read=read)

    def alter(self, kind, method, known, path="", body=None, headers=(), share=0.4, **fields):
        """Changes a job, sometimes with If-Match, and often reads it at once from another instance."""
        headers, fields = dict(headers), {"job": known.id} | fields
        if self.rng.random() < share:
            fields["match"] = version = self.version(known)
            headers["If-Match"] = f'"{version}"'
        instance = self.instance(True)
        record = self.operate(kind, method, f"/jobs/{known.id}{path}", instance, body, headers, fields=fields)
        if has_changed(record):
            self.pool.changed.append(known)
        if self.rng.random() < 0.5:
            others = [number for number in range(len(self.services.instances)) if number != instance] or [instance]
            self.read(known, self.rng.choice(others))
        return record

    def do_change(self):
        known = self.job("success" if self.shared.focus is not None or self.rng.random() < 0.5 else None)
        patch = {}
        if self.rng.random() < 0.8:
            # No two changes set equal tags, so a read shows which change it saw.
            patch["tags"] = [f"tag-{self.number}-{next(self.keys)}"]
        if not patch or self.rng.random() < 0.3:
            patch["priority"] = self.rng.choice(PRIORITIES)
        self.alter("change", "PATCH", known, body=json.dumps(patch),
                   headers={"Content-Type": "application/merge-patch+json"}, patch=patch)

    def do_cancel(self):
        phase = self.rng.choice(["loading", "queued", None])
        self.alter("cancel", "DELETE", self.job(phase), share=0.25)

    def do_fetch(self):
        phase = self.rng.choice(["failure", "cancelled", None])
        self.alter("fetch", "POST", self.job(phase), "/fetch", share=0.25)

    def do_purge(self):
        known = self.job()
        record = self.alter("purge", "DELETE", known, "?purge=true", share=0.25)
        if record.get("code") == 204:
            self.pool.remove(known, self.pool.hot)
            self.pool.purged.append(known)

    def do_list(self):
        self.operate("list", "GET", "/jobs?limit=10")

    # Streams

    def lines(self, record, response, instance, seconds):
        """Yields the lines of a stream until it ends or the time is over, and records which of these happened."""
        deadline, rest, record["end"] = min(time.monotonic() + seconds, self.shared.deadline + 1), b"", "left"
        try:
            while (left := deadline - time.monotonic()) > 0:
                self.connections[instance].sock.settimeout(max(0.01, left))
                # `readline` would hide that a stream broke off.
                piece = response.read1(65_536)
                if not piece:
                    record["end"] = "end"
                    return
                *complete, rest = (rest + piece).split(b"\n")
                yield from complete
        except TimeoutError:
            pass
        except (OSError, http.client.HTTPException):
            record["end"] = "cut"
        self.drop(instance)

    def follow(self, record, response, instance, seconds, short):
        """Reads server-sent events."""
        record["events"], event = [], {}
        for line in self.lines(record, response, instance, seconds):
            name, _, value = line.decode().partition(": ")
            if name in ("event", "data"):
                event[name] = value
            elif name == "id" and value.startswith("at-"):
                # The client has all events until then.
                record["position"] = [self.recorder.now(), value]
                record.setdefault("complete", self.recorder.now())
            elif not name and "data" in event:
                record["events"].append([self.recorder.now(), event["event"], short(json.loads(event["data"]))])
                self.pool.note(record["events"][-1][2])
                event = {}

    def listen(self, kind, path, seconds, short, headers=(), **fields):
        return self.operate(kind, "GET", path, headers=headers, fields=fields,
                            read=lambda *answer: self.follow(*answer, seconds, short))

    def patience(self):
        return self.rng.uniform(0.1, 2) if self.rng.random() < 0.3 else LONGEST

    def do_stream(self):
        known = self.job("loading" if self.rng.random() < 0.7 else None)
        self.listen("stream", f"/jobs/{known.id}/events", self.patience(), job_document, job=known.id)

    def do_events(self):
        record = self.listen("events", "/events", self.rng.uniform(0.5, 3), job_document)
        if "position" in record:
            # Reconnects, often at another instance.
            time.sleep(self.rng.uniform(0, 1))
            since, position = record["position"]
            self.listen("events", "/events", self.rng.uniform(0.3, 2), job_document, {"Last-Event-ID": position}, since=since)

    # Batches

    def content_of(self, urls):
        return "".join(url + "\n" for url in urls)

    def new_lines(self):
        urls = [self.url() for _ in range(self.rng.randint(3, 25))]
        if self.rng.random() < 0.2:
            urls[0] = "ftp://rejected/"
        return urls

    def do_begin(self):
        is_open = self.rng.random() < 0.3
        urls = [] if is_open else self.new_lines()
        key = self.new_key() if self.rng.random() < 0.5 else None
        path = "/batches?open=true" if is_open else "/batches"
        arguments = ("begin", path, self.content_of(urls), "text/uri-list", key, urls)
        record = self.submit(*arguments)
        if "bdoc" in record and record["bdoc"]["p"] != "gone":
            self.pool.add_batch(record["bdoc"])
            if key and self.rng.random() < 0.5:
                self.submit(*arguments)
            if self.rng.random() < 0.4:
                # Lines are cancelled while they load.
                time.sleep(self.rng.uniform(0, 0.3))
                self.alter_batch("cancel-batch", "DELETE", record["bdoc"]["id"])
                time.sleep(self.rng.uniform(0, 1))
                self.read_batch(record["bdoc"]["id"])

    def batch(self):
        known = self.pool.pick_batch(self.rng)
        if known is None:
            raise Unsent
        return known

    def read_batch(self, batch, headers=(), **fields):
        self.operate("batch", "GET", f"/batches/{batch}", headers=headers, fields={"batch": batch} | fields)

    def alter_batch(self, kind, method, batch, path="", body=None, headers=(), **fields):
        record = self.operate(kind, method, f"/batches/{batch}{path}", self.instance(True), body, headers,
                              fields={"batch": batch} | fields)
        if self.rng.random() < 0.5:
            self.read_batch(batch)
        return record

    def do_batch(self):
        known = self.batch()
        if self.rng.random() < 0.3:
            version = self.version(known)
            self.read_batch(known.id, {"If-None-Match": f'"{version}"'}, match=version)
        else:
            self.read_batch(known.id)

    def do_lines(self):
        known, urls = self.batch(), self.new_lines()
        self.alter_batch(
            "lines", "POST", known.id, f"/lines?from={known.received}", self.content_of(urls),
            {"Content-Type": "text/uri-list"}, urls=[urllib.parse.urlsplit(url).path for url in urls],
            **{"from": known.received})

    def do_close(self):
        self.alter_batch("close", "POST", self.batch().id, "/close")

    def do_retry_batch(self):
        self.alter_batch("retry-batch", "POST", self.batch().id, "/retry")

    def do_cancel_batch(self):
        self.alter_batch("cancel-batch", "DELETE", self.batch().id)

    def do_purge_batch(self):
        known = self.batch()
        record = self.alter_batch("purge-batch", "DELETE", known.id, "?purge=true")
        if record.get("code") == 204:
            self.pool.remove(known, self.pool.batches)

    def do_batch_stream(self):
        known = self.batch()
        self.listen("batch-stream", f"/batches/{known.id}/events", self.patience(), batch_document, batch=known.id)

    def do_results(self, known=None):
        known = known or self.batch()
        query = "?follow=true" if known.state != "receiving" and self.rng.random() < 0.5 else ""

        def read(record, response, instance):
            record["lines"] = []
            for line in self.lines(record, response, instance, LONGEST):
                result = json.loads(line)
                image = result["image"]
                record["lines"].append([result["line"], result["job"], result["phase"], image and image["sha256"][:16]])

        self.operate("results", "GET", f"/batches/{known.id}/results{query}", read=read,
                     fields={"batch": known.id} | ({"follow": True} if query else {}))
