"""A client of imagefetch, which fetches images from URLs that nobody vouches for.

    from imagefetch import Client

    client = Client("http://127.0.0.1:8080")
    job = client.fetch("https://example.org/cat.jpg")
    client.save(job, "cat.webp", width=320, format="webp")

`AsyncClient` has the same methods, to be awaited. Nothing but the standard library is needed; Python 3.10 or newer.
"""

import asyncio
import base64
import hashlib
import hmac
import http.client
import io
import json
import ssl
import time
import urllib.parse
import uuid

__all__ = [
    "AsyncClient", "Cancelled", "Client", "Error", "Failed", "InvalidWebhook", "Job", "Refused", "TimedOut",
    "Unreachable", "signed_path", "verify_webhook",
]


class Error(Exception):
    """Why there is no image, or no answer."""


class Refused(Error):
    """The service did not do as asked. The arguments are its words; the attributes what RFC 9457 has."""

    def __init__(self, status, problem, retry_after=None, service="The service"):
        super().__init__(problem.get("detail") or f"{service} answers with {status}: not as an imagefetch service does")
        self.status = status
        self.code = problem.get("code")
        self.errors = problem.get("errors", [])
        self.request_id = problem.get("request_id")
        self.retry_after = retry_after


class Unreachable(Error, OSError):
    """The service could not be asked, or has not answered."""


class TimedOut(Error, TimeoutError):
    """The job has not finished within the `timeout` of `fetch` or `wait`."""


class InvalidWebhook(Error):
    """A webhook message was not signed with the secret, or is too old."""


class Failed(Error):
    """The job was given up. `code` is for programs, `retryable` whether it may succeed later."""

    def __init__(self, job):
        error = job["error"] or {}
        super().__init__(error.get("detail") or "The job failed.")
        self.job = job
        self.code = error.get("code")
        self.retryable = error.get("retryable", False)
        self.origin_status = error.get("origin_status")


class Cancelled(Error):
    """The job was cancelled."""

    def __init__(self, job):
        super().__init__("The job was cancelled.")
        self.job = job


class Job(dict):
    """A job as the service tells it: all members of the API, and the most wanted of them as properties."""

    @property
    def id(self):
        return self["id"]

    @property
    def phase(self):
        """`queued`, `loading`, `success`, `failure` or `cancelled`."""
        return self["phase"]

    @property
    def is_finished(self):
        return self.phase not in ("queued", "loading")

    @property
    def fraction(self):
        """How much of the image is there, from 0 to 1; None while its length is not known."""
        return self["progress"]["fraction"]

    @property
    def image(self):
        """What is known of the image of a job that succeeded, such as `width` and `sha256`; else None."""
        return self["image"]


class _Request:
    """What is to be sent, whoever sends it."""

    # Seconds for an answer, in place of the client's own.
    limit = None
    # It was sent, and its answer has not come.
    is_under_way = False

    def __init__(self, method, path, query=None, body=None, headers=None, wait=0.0):
        members = [(k, v) for k, v in (query or {}).items() if v is not None]
        if members:
            texts = [(k, _text(each)) for k, v in members for each in _values(v)]
            path += "?" + urllib.parse.urlencode(texts)
        self.method, self.path, self.body, self.headers, self.wait = method, path, body, headers or {}, wait

    @classmethod
    def of_json(cls, method, path, value, headers=None, **rest):
        body = json.dumps(value).encode()
        return cls(method, path, body=body, headers={"Content-Type": "application/json", **(headers or {})}, **rest)


class _Answer:
    def __init__(self, status, headers, body, service):
        self.status, self.headers, self.body, self.service = status, headers, body, service

    def json(self, *members):
        """The object that it is; one that lacks such members is another server's."""
        value = self._object()
        if not all(name in value for name in members):
            raise Refused(self.status, {}, None, self.service)
        return value

    def job(self):
        return Job(self.json("id", "phase"))

    def refusal(self):
        after = self.headers.get("Retry-After") or ""
        seconds = float(after) if after.isdecimal() else None
        return Refused(self.status, self._object(), seconds, self.service)

    def _object(self):
        """Without members where it is none."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class _Pause:
    def __init__(self, seconds):
        self.seconds = seconds


def _values(value):
    """What stands in a query: a list's elements one by one; lists of objects, such as `variants`, as JSON."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [json.dumps(value)] if value and isinstance(value[0], dict) else value


def _text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def _id(job):
    return job if isinstance(job, str) else job["id"]


class _Steps:
    """What the methods do, as generators: each yields requests and pauses, and is given the answers. So both clients
    do the same, and only the waiting differs."""

    # How long the service is to hold back an answer, in seconds: below the idle timeouts of common proxies.
    _LONGEST_WAIT = 30.0
    # For the id of a job that nobody waits for any more, in seconds.
    _LAST_WAIT = 5.0

    def _ask(self, request, accepted=(200,)):
        """Asks, and asks again where the service says that it has no room just now."""
        deadline = time.monotonic() + self.patience
        while True:
            request.is_under_way = True
            answer = yield request
            request.is_under_way = False
            if answer.status in accepted:
                return answer
            refusal = answer.refusal()
            pause = refusal.retry_after
            if answer.status not in (429, 503) or pause is None or time.monotonic() + pause > deadline:
                raise refusal
            yield _Pause(pause)

    def _submit(self, source, options, key):
        return (yield from self._submitted(self._submission(source, options, key)))

    def _submission(self, source, options, key):
        body = {"url": source, **options} if source is not None else options
        return _Request.of_json("POST", "/jobs", body, self._keyed(key))

    def _submit_many(self, jobs, key):
        bodies = [{"url": job} if isinstance(job, str) else job for job in jobs]
        request = _Request.of_json("POST", "/jobs/batch", bodies, self._keyed(key))
        answer = yield from self._ask(request, (202,))
        return [Job(job) for job in answer.json("jobs")["jobs"]]

    def _upload(self, data, content_type, options, key):
        headers = {"Content-Type": content_type, **self._keyed(key)}
        return (yield from self._submitted(_Request("POST", "/jobs/upload", options, data, headers)))

    def _submitted(self, request):
        answer = yield from self._ask(request, (202,))
        return answer.job()

    @staticmethod
    def _keyed(key):
        # Sent again after a connection broke, the same key makes no second job.
        return {"Idempotency-Key": key or str(uuid.uuid4())}

    def _job(self, job):
        answer = yield from self._ask(_Request("GET", f"/jobs/{_id(job)}"))
        return answer.job()

    def _page(self, query):
        answer = yield from self._ask(_Request("GET", "/jobs", query))
        return answer.json("jobs", "next_cursor")

    def _wait(self, job, timeout, progress):
        deadline = None if timeout is None else time.monotonic() + timeout
        headers = {}
        while True:
            # Who wants progress is told at once how the job is.
            left = 0.0 if progress and not headers else self._LONGEST_WAIT
            if deadline is not None:
                left = max(0.0, min(left, deadline - time.monotonic()))
            request = _Request("GET", f"/jobs/{_id(job)}", {"wait": round(left, 3)}, headers=headers, wait=left)
            answer = yield from self._ask(request, (200, 304))
            if answer.status == 200:
                job = answer.job()
                if progress:
                    # With it the next answer comes as soon as anything has changed.
                    headers = {"If-None-Match": answer.headers["ETag"]}
                    progress(job)
                if job.is_finished:
                    break
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(f"The job is still {job['phase'] if isinstance(job, dict) else 'under way'}.")
        if job.phase == "failure":
            raise Failed(job)
        if job.phase == "cancelled":
            raise Cancelled(job)
        return job

    def _fetch(self, url, options, timeout, progress, key):
        request = self._submission(url, options, key)
        try:
            job = yield from self._submitted(request)
        except (Exception, GeneratorExit):
            # Refused or out of reach: whoever gave the key may submit again.
            raise
        except BaseException:
            # Given up, by Ctrl-C or by cancelling the task: a job may have been made, and the same key gives its id.
            if request.is_under_way:
                request.limit = self._LAST_WAIT
                try:
                    answer = yield request
                    if answer.status == 202:
                        yield _Request("DELETE", f"/jobs/{answer.job().id}")
                except Exception:
                    pass
            raise
        try:
            return (yield from self._wait(job, timeout, progress))
        except (Failed, Cancelled, GeneratorExit):
            raise
        except BaseException:
            # Whoever gives up waiting, by Ctrl-C, by cancelling the task or in `progress`, no longer wants it.
            try:
                yield _Request("DELETE", f"/jobs/{job.id}")
            except OSError:
                pass
            raise

    def _image(self, job, variant):
        answer = yield from self._ask(_Request("GET", f"/jobs/{_id(job)}/image", variant))
        return answer.body

    def _change(self, method, path, query=None, accepted=(200,)):
        answer = yield from self._ask(_Request(method, path, query), accepted)
        return answer.job() if answer.status == 200 else None

    def _edit(self, job, changes):
        request = _Request.of_json("PATCH", f"/jobs/{_id(job)}", changes)
        answer = yield from self._ask(request)
        return answer.job()


class _Base(_Steps):
    """
    - base: the service's URL, with the path below which a proxy has it, if any.
    - token: where the service has tokens (`auth.tokens`).
    - timeout: seconds for an answer, beside what it is asked to wait.
    - patience: seconds for which 429 and 503 are waited out as `Retry-After` says.
    - context: an `ssl.SSLContext`; the system's certificates without it.
    """

    def __init__(self, base="http://127.0.0.1:8080", token=None, timeout=30.0, patience=60.0, context=None):
        parts = urllib.parse.urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("The service's URL begins with http:// or https://.")
        self._host, self._path = parts.hostname, parts.path.rstrip("/")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        # As errors name it: without a user and a password.
        self._name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._path}"
        self.timeout, self.patience = timeout, patience

    def _limit(self, request):
        return self.timeout + request.wait if request.limit is None else request.limit

    def _unreachable(self, error):
        return Unreachable(f"{self._name} is out of reach: {getattr(error, 'strerror', None) or error}")


class Client(_Base):
    __doc__ = "A service, asked by a thread that waits; any number of threads may share one." + _Base.__doc__

    def _run(self, steps):
        try:
            wanted = next(steps)
            while True:
                try:
                    answer = time.sleep(wanted.seconds) if isinstance(wanted, _Pause) else self._send(wanted)
                except BaseException as error:
                    wanted = steps.throw(error)
                else:
                    wanted = steps.send(answer)
        except StopIteration as end:
            return end.value

    def _send(self, request):
        kind = http.client.HTTPSConnection if self._context else http.client.HTTPConnection
        more = {"context": self._context} if self._context else {}
        connection = kind(self._host, self._port, timeout=self._limit(request), **more)
        try:
            headers = {**self._headers, **request.headers, "Connection": "close"}
            connection.request(request.method, self._path + request.path, request.body, headers)
            try:
                answer = connection.getresponse()
                return _Answer(answer.status, answer.headers, answer.read(), self._name)
            except ValueError as error:
                raise ConnectionError("it speaks no HTTP") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def submit(self, url=None, *, idempotency_key=None, **options):
        """Submits one job and gives it as it is then, mostly `queued`.

        The options are the API's: `alternatives`, `priority`, `timeout`, `max_bytes`, `headers`, `tags`, `cache`,
        `variants`, `original` …; or, in place of a URL, `local`."""
        return self._run(self._submit(url, options, idempotency_key))

    def submit_many(self, jobs, *, idempotency_key=None):
        """Submits URLs, or dictionaries of a job's members, all of them or, where one is wrong, none."""
        return self._run(self._submit_many(jobs, idempotency_key))

    def upload(self, data, content_type="application/octet-stream", *, idempotency_key=None, **options):
        """Submits the bytes of an image that is here already."""
        return self._run(self._upload(data, content_type, options, idempotency_key))

    def job(self, job):
        """The job of that id as it is now."""
        return self._run(self._job(job))

    def jobs(self, **query):
        """All jobs, newest first, each page asked for when it is needed; `phase`, `tag` choose some."""
        while True:
            page = self._run(self._page(query))
            yield from map(Job, page["jobs"])
            if page["next_cursor"] is None:
                return
            query = {**query, "cursor": page["next_cursor"]}

    def wait(self, job, *, timeout=None, progress=None):
        """The job once it is a success. Raises `Failed`, `Cancelled`, or `TimeoutError` after as many seconds.

        `progress` is called with the job at once and whenever something has changed, at most ten times a second."""
        return self._run(self._wait(job, timeout, progress))

    def fetch(self, url=None, *, timeout=None, progress=None, idempotency_key=None, **options):
        """Submits and waits. Whatever ends the waiting early, such as Ctrl-C or what `progress` raises, cancels the
        job."""
        return self._run(self._fetch(url, options, timeout, progress, idempotency_key))

    def image(self, job, **variant):
        """The image's bytes, the origin's own; or with `width`, `height`, `fit`, `format`, `quality` … a variant's.

        `variant` names one of the `variants` that the job was submitted with."""
        return self._run(self._image(job, variant))

    def save(self, job, path, **variant):
        """Writes `image` to a file."""
        data = self.image(job, **variant)
        with open(path, "wb") as file:
            file.write(data)

    def cancel(self, job):
        """Stops what has not finished; a job that has stays as it is."""
        return self._run(self._change("DELETE", f"/jobs/{_id(job)}"))

    def forget(self, job):
        """Removes the job and its image."""
        self._run(self._change("DELETE", f"/jobs/{_id(job)}", {"purge": True}, (204,)))

    def fetch_again(self, job):
        """Queues a job again that failed, was cancelled, or whose image is no longer kept."""
        return self._run(self._change("POST", f"/jobs/{_id(job)}/fetch"))

    def edit(self, job, **changes):
        """Changes `priority` and `tags`, also of a job that runs."""
        return self._run(self._edit(job, changes))


class AsyncClient(_Base):
    __doc__ = "A service, asked by tasks of asyncio. The methods are `Client`'s, to be awaited." + _Base.__doc__

    async def _run(self, steps):
        try:
            wanted = next(steps)
            while True:
                try:
                    if isinstance(wanted, _Pause):
                        answer = await asyncio.sleep(wanted.seconds)
                    else:
                        answer = await self._timed(wanted)
                except BaseException as error:
                    wanted = steps.throw(error)
                else:
                    wanted = steps.send(answer)
        except StopIteration as end:
            return end.value

    async def _timed(self, request):
        try:
            return await asyncio.wait_for(self._send(request), self._limit(request))
        except asyncio.TimeoutError as error:  # of Python 3.10 a class of its own
            raise self._unreachable("it has not answered in time") from error
        except OSError as error:
            raise self._unreachable(error) from error

    async def _send(self, request):
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._context, limit=1 << 20)
        try:
            body = request.body or b""
            host = f"[{self._host}]" if ":" in self._host else self._host
            headers = {"Host": f"{host}:{self._port}", **self._headers, **request.headers, "Connection": "close"}
            if body or request.method not in ("GET", "DELETE"):
                headers["Content-Length"] = str(len(body))
            head = [f"{request.method} {self._path}{request.path} HTTP/1.1"]
            head += [f"{name}: {value}" for name, value in headers.items()]
            writer.write("\r\n".join(head + ["", ""]).encode("latin-1") + body)
            await writer.drain()
            return await self._read(reader)
        finally:
            writer.close()

    async def _read(self, reader):
        try:
            line = await reader.readuntil(b"\r\n")
            version, status = line.split(b" ", 2)[:2]
            if not version.startswith(b"HTTP/"):
                raise ConnectionError("it speaks no HTTP")
            status = int(status)
            text = b""
            while not text.endswith(b"\r\n\r\n") and text != b"\r\n":
                text += await reader.readuntil(b"\r\n")
            fields = http.client.parse_headers(io.BytesIO(text))
            return _Answer(status, fields, await self._content(reader, status, fields), self._name)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ConnectionError("its answer broke off") from error
        except (ValueError, http.client.HTTPException) as error:
            raise ConnectionError("it speaks no HTTP") from error

    @staticmethod
    async def _content(reader, status, fields):
        if status in (204, 304):
            return b""
        if "chunked" in fields.get("Transfer-Encoding", ""):
            content = b""
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                content += await reader.readexactly(size)
                await reader.readexactly(2)
            return content
        length = fields.get("Content-Length")
        return await reader.read() if length is None else await reader.readexactly(int(length))

    async def submit(self, url=None, *, idempotency_key=None, **options):
        return await self._run(self._submit(url, options, idempotency_key))

    async def submit_many(self, jobs, *, idempotency_key=None):
        return await self._run(self._submit_many(jobs, idempotency_key))

    async def upload(self, data, content_type="application/octet-stream", *, idempotency_key=None, **options):
        return await self._run(self._upload(data, content_type, options, idempotency_key))

    async def job(self, job):
        return await self._run(self._job(job))

    async def jobs(self, **query):
        while True:
            page = await self._run(self._page(query))
            for job in page["jobs"]:
                yield Job(job)
            if page["next_cursor"] is None:
                return
            query = {**query, "cursor": page["next_cursor"]}

    async def wait(self, job, *, timeout=None, progress=None):
        return await self._run(self._wait(job, timeout, progress))

    async def fetch(self, url=None, *, timeout=None, progress=None, idempotency_key=None, **options):
        """Submits and waits. Cancelling the task cancels the job."""
        return await self._run(self._fetch(url, options, timeout, progress, idempotency_key))

    async def image(self, job, **variant):
        return await self._run(self._image(job, variant))

    async def save(self, job, path, **variant):
        data = await self.image(job, **variant)
        with open(path, "wb") as file:
            file.write(data)

    async def cancel(self, job):
        return await self._run(self._change("DELETE", f"/jobs/{_id(job)}"))

    async def forget(self, job):
        await self._run(self._change("DELETE", f"/jobs/{_id(job)}", {"purge": True}, (204,)))

    async def fetch_again(self, job):
        return await self._run(self._change("POST", f"/jobs/{_id(job)}/fetch"))

    async def edit(self, job, **changes):
        return await self._run(self._edit(job, changes))


def signed_path(key, url, *, expires_in=86_400, **options):
    """Path and query of a signed image URL (`GET /image`), for `<img src>`: to be put behind the service's address.

    - key: one of `view.keys`, in hexadecimal.
    - options: the variant's members and the job's."""
    members = {"url": url, **options, "expires": int(time.time()) + expires_in}
    query = urllib.parse.urlencode({name: _text(value) for name, value in members.items()})
    code = hmac.new(bytes.fromhex(key), f"/image?{query}".encode(), hashlib.sha256).digest()
    return f"/image?{query}&signature={base64.urlsafe_b64encode(code).decode().rstrip('=')}"


def verify_webhook(body, headers, secrets, *, tolerance=300):
    """Checks that a webhook message comes from the service, and returns its JSON: `type`, `timestamp` and `data`.

    - body: the request's body as it arrived, in bytes. JSON that was parsed and written again has another signature.
    - headers: the request's header fields, as a mapping; upper and lower case are the same.
    - secrets: a secret (`whsec_…`), or a list of them while one replaces another: one has to match.
    - tolerance: seconds by which `webhook-timestamp` may differ from this machine's clock.

    Raises `InvalidWebhook`. A message may arrive more than once: remember its `webhook-id`."""
    fields = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not fields.get(name)]
    if missing:
        raise InvalidWebhook(f"The message has no {missing[0]}.")
    timestamp = fields["webhook-timestamp"]
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 16):
        raise InvalidWebhook("webhook-timestamp is not a number of seconds.")
    if abs(time.time() - int(timestamp)) > tolerance:
        raise InvalidWebhook("webhook-timestamp is too far from this machine's clock.")
    body = body.encode() if isinstance(body, str) else bytes(body)
    signed = f"{fields['webhook-id']}.{timestamp}.".encode() + body
    given = [text.encode() for text in fields["webhook-signature"].split()]
    is_valid = False
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        if not key:
            raise ValueError("A webhook secret is empty.")
        expected = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
        for signature in given:
            # In constant time.
            is_valid |= hmac.compare_digest(expected, signature)
    if not is_valid:
        raise InvalidWebhook("No signature of the message fits the secret.")
    return json.loads(body)
