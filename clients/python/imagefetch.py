"""A client of imagefetch, a service that fetches images from untrusted URLs.

    from imagefetch import Client

    client = Client("http://127.0.0.1:8080")
    job = client.fetch("https://example.org/cat.jpg")
    client.save(job, "cat.webp", width=320, format="webp")

`AsyncClient` has the same methods as coroutines. Needs only the standard library of Python 3.10 or newer.
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
    """The base class of all errors of this module."""


class Refused(Error):
    """The service refused a request. The attributes are members of its problem (RFC 9457)."""

    def __init__(self, status, problem, retry_after=None, service="The service"):
        super().__init__(problem.get("detail") or f"unexpected response from {service}: status {status}")
        self.status = status
        self.code = problem.get("code")
        self.errors = problem.get("errors", [])
        self.request_id = problem.get("request_id")
        self.retry_after = retry_after


class Unreachable(Error, OSError):
    """The service could not be reached, or did not respond in time."""


class TimedOut(Error, TimeoutError):
    """The job did not finish within the `timeout` of `fetch` or `wait`."""


class InvalidWebhook(Error):
    """A webhook message was not signed with the secret, or is too old."""


class Failed(Error):
    """The job failed. `code` is its failure code; `retryable` says whether a new attempt may succeed."""

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
    """A job as the service returns it. It has all members of the API; the most common ones are also properties."""

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
        """The received part of the image, from 0 to 1; None while its length is unknown."""
        return self["progress"]["fraction"]

    @property
    def image(self):
        """The image's properties, such as `width` and `sha256`; None unless the job succeeded."""
        return self["image"]


class _Request:
    """A request that either client can send."""

    # The timeout in seconds, if it differs from the client's own.
    limit = None
    # Whether the request was sent and the response has not arrived.
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


class _Response:
    def __init__(self, status, headers, body, service):
        self.status, self.headers, self.body, self.service = status, headers, body, service

    def json(self, *members):
        """Returns the body's JSON object. Raises `Refused` if it lacks one of the members."""
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
        """Returns the body's JSON object; an empty one if the body is anything else."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class _Pause:
    def __init__(self, seconds):
        self.seconds = seconds


def _values(value):
    """Returns the values of a query parameter: a list's elements, or a list of objects (`variants`) as JSON."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [json.dumps(value)] if value and isinstance(value[0], dict) else value


def _text(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def _id(job):
    return job if isinstance(job, str) else job["id"]


class _Steps:
    """The steps of each method, as generators that yield requests and pauses and receive responses. Both clients
    share these steps; they differ only in how they wait."""

    # The longest time in seconds that the service may delay a response. Common proxies have longer idle timeouts.
    _LONGEST_WAIT = 30.0
    # The timeout in seconds for reading the id of a job that is to be cancelled.
    _LAST_WAIT = 5.0

    def _request(self, request, accepted=(200,)):
        """Sends a request. Repeats it after `Retry-After` while the service is overloaded and `patience` lasts."""
        deadline = time.monotonic() + self.patience
        while True:
            request.is_under_way = True
            response = yield request
            request.is_under_way = False
            if response.status in accepted:
                return response
            refusal = response.refusal()
            pause = refusal.retry_after
            if response.status not in (429, 503) or pause is None or time.monotonic() + pause > deadline:
                raise refusal
            yield _Pause(pause)

    def _submit(self, source, options, key):
        return (yield from self._send_submission(self._submission(source, options, key)))

    def _submission(self, source, options, key):
        body = {"url": source, **options} if source is not None else options
        return _Request.of_json("POST", "/jobs", body, self._idempotency_header(key))

    def _submit_many(self, jobs, key):
        bodies = [{"url": job} if isinstance(job, str) else job for job in jobs]
        request = _Request.of_json("POST", "/jobs/batch", bodies, self._idempotency_header(key))
        response = yield from self._request(request, (202,))
        return [Job(job) for job in response.json("jobs")["jobs"]]

    def _upload(self, data, content_type, options, key):
        headers = {"Content-Type": content_type, **self._idempotency_header(key)}
        return (yield from self._send_submission(_Request("POST", "/jobs/upload", options, data, headers)))

    def _send_submission(self, request):
        response = yield from self._request(request, (202,))
        return response.job()

    @staticmethod
    def _idempotency_header(key):
        # If the request is sent again after a connection error, the key prevents a second job.
        return {"Idempotency-Key": key or str(uuid.uuid4())}

    def _job(self, job):
        response = yield from self._request(_Request("GET", f"/jobs/{_id(job)}"))
        return response.job()

    def _page(self, query):
        response = yield from self._request(_Request("GET", "/jobs", query))
        return response.json("jobs", "next_cursor")

    def _wait(self, job, timeout, progress):
        deadline = None if timeout is None else time.monotonic() + timeout
        headers = {}
        while True:
            # With `progress`, the first request returns the job immediately.
            left = 0.0 if progress and not headers else self._LONGEST_WAIT
            if deadline is not None:
                left = max(0.0, min(left, deadline - time.monotonic()))
            request = _Request("GET", f"/jobs/{_id(job)}", {"wait": round(left, 3)}, headers=headers, wait=left)
            response = yield from self._request(request, (200, 304))
            if response.status == 200:
                job = response.job()
                if progress:
                    # With the ETag, the next response arrives as soon as the job changes.
                    headers = {"If-None-Match": response.headers["ETag"]}
                    progress(job)
                if job.is_finished:
                    break
            if deadline is not None and time.monotonic() >= deadline:
                raise TimedOut(f"The job is still {job['phase'] if isinstance(job, dict) else 'running'}.")
        if job.phase == "failure":
            raise Failed(job)
        if job.phase == "cancelled":
            raise Cancelled(job)
        return job

    def _fetch(self, url, options, timeout, progress, key):
        request = self._submission(url, options, key)
        try:
            job = yield from self._send_submission(request)
        except (Exception, GeneratorExit):
            # The service refused the job or could not be reached. With a key of its own, the caller may submit again.
            raise
        except BaseException:
            # Interrupted by Ctrl-C or by cancelling the task. The job may exist; the same key returns its id.
            if request.is_under_way:
                request.limit = self._LAST_WAIT
                try:
                    response = yield request
                    if response.status == 202:
                        yield _Request("DELETE", f"/jobs/{response.job().id}")
                except Exception:
                    pass
            raise
        try:
            return (yield from self._wait(job, timeout, progress))
        except (Failed, Cancelled, GeneratorExit):
            raise
        except BaseException:
            # Interrupted by Ctrl-C, by cancelling the task or by `progress`: cancel the job.
            try:
                yield _Request("DELETE", f"/jobs/{job.id}")
            except OSError:
                pass
            raise

    def _image(self, job, variant):
        response = yield from self._request(_Request("GET", f"/jobs/{_id(job)}/image", variant))
        return response.body

    def _change(self, method, path, query=None, accepted=(200,)):
        response = yield from self._request(_Request(method, path, query), accepted)
        return response.job() if response.status == 200 else None

    def _edit(self, job, changes):
        request = _Request.of_json("PATCH", f"/jobs/{_id(job)}", changes)
        response = yield from self._request(request)
        return response.job()


class _Base(_Steps):
    """
    - base: the service's URL, including its path if a proxy serves it below one.
    - token: the client's token, if the service requires one (`auth.tokens`).
    - timeout: seconds until a response must arrive, in addition to the time that the service is asked to wait.
    - patience: how many seconds requests are repeated after 429 and 503, at the intervals of `Retry-After`.
    - context: an `ssl.SSLContext`; by default the system's certificates are trusted.
    """

    def __init__(self, base="http://127.0.0.1:8080", token=None, timeout=30.0, patience=60.0, context=None):
        parts = urllib.parse.urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("The service's URL must begin with http:// or https://.")
        self._host, self._path = parts.hostname, parts.path.rstrip("/")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        # The name in error messages, without user and password.
        self._name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._path}"
        self.timeout, self.patience = timeout, patience

    def _limit(self, request):
        return self.timeout + request.wait if request.limit is None else request.limit

    def _unreachable(self, error):
        return Unreachable(f"cannot reach {self._name}: {getattr(error, 'strerror', None) or error}")


class Client(_Base):
    __doc__ = "A client whose methods block. Any number of threads may share one." + _Base.__doc__

    def _run(self, steps):
        try:
            step = next(steps)
            while True:
                try:
                    response = time.sleep(step.seconds) if isinstance(step, _Pause) else self._send(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(response)
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
                response = connection.getresponse()
                return _Response(response.status, response.headers, response.read(), self._name)
            except ValueError as error:
                raise ConnectionError("the response is not HTTP") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def submit(self, url=None, *, idempotency_key=None, **options):
        """Submits one job and returns it, usually in the phase `queued`.

        The options are members of the API, such as `alternatives`, `priority`, `timeout`, `max_bytes`, `headers`,
        `tags`, `cache`, `variants` and `original`. `local` replaces the URL."""
        return self._run(self._submit(url, options, idempotency_key))

    def submit_many(self, jobs, *, idempotency_key=None):
        """Submits several jobs: URLs or dictionaries of the API's members. If one is invalid, none is submitted."""
        return self._run(self._submit_many(jobs, idempotency_key))

    def upload(self, data, content_type="application/octet-stream", *, idempotency_key=None, **options):
        """Submits a job for the bytes of an image instead of a URL."""
        return self._run(self._upload(data, content_type, options, idempotency_key))

    def job(self, job):
        """Returns the current state of a job."""
        return self._run(self._job(job))

    def jobs(self, **query):
        """Iterates over all jobs, newest first. Pages are requested when needed. `phase` and `tag` filter."""
        while True:
            page = self._run(self._page(query))
            yield from map(Job, page["jobs"])
            if page["next_cursor"] is None:
                return
            query = {**query, "cursor": page["next_cursor"]}

    def wait(self, job, *, timeout=None, progress=None):
        """Waits until the job has succeeded and returns it. Raises `Failed`, `Cancelled`, or `TimedOut` after `timeout`
        seconds.

        `progress` is called with the job, first immediately and then after each change, at most ten times a second."""
        return self._run(self._wait(job, timeout, progress))

    def fetch(self, url=None, *, timeout=None, progress=None, idempotency_key=None, **options):
        """Submits a job and waits for it. If the waiting ends early, by Ctrl-C, `timeout` or an exception of
        `progress`, the job is cancelled."""
        return self._run(self._fetch(url, options, timeout, progress, idempotency_key))

    def image(self, job, **variant):
        """Returns the bytes of the original image, or of a variant with `width`, `height`, `fit`, `format`, `quality` …

        `variant` is the name of one of the `variants` that the job was submitted with."""
        return self._run(self._image(job, variant))

    def save(self, job, path, **variant):
        """Writes the result of `image` to a file."""
        data = self.image(job, **variant)
        with open(path, "wb") as file:
            file.write(data)

    def cancel(self, job):
        """Cancels the job. A finished job is not changed."""
        return self._run(self._change("DELETE", f"/jobs/{_id(job)}"))

    def forget(self, job):
        """Deletes the job and its image."""
        self._run(self._change("DELETE", f"/jobs/{_id(job)}", {"purge": True}, (204,)))

    def fetch_again(self, job):
        """Queues a job again that failed, was cancelled, or whose image was deleted."""
        return self._run(self._change("POST", f"/jobs/{_id(job)}/fetch"))

    def edit(self, job, **changes):
        """Changes `priority` and `tags`, even while the job runs."""
        return self._run(self._edit(job, changes))


class AsyncClient(_Base):
    __doc__ = "A client for asyncio. It has the methods of `Client` as coroutines." + _Base.__doc__

    async def _run(self, steps):
        try:
            step = next(steps)
            while True:
                try:
                    if isinstance(step, _Pause):
                        response = await asyncio.sleep(step.seconds)
                    else:
                        response = await self._timed(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(response)
        except StopIteration as end:
            return end.value

    async def _timed(self, request):
        try:
            return await asyncio.wait_for(self._send(request), self._limit(request))
        except asyncio.TimeoutError as error:  # a class of its own in Python 3.10
            raise self._unreachable("no response in time") from error
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
                raise ConnectionError("the response is not HTTP")
            status = int(status)
            text = b""
            while not text.endswith(b"\r\n\r\n") and text != b"\r\n":
                text += await reader.readuntil(b"\r\n")
            fields = http.client.parse_headers(io.BytesIO(text))
            return _Response(status, fields, await self._content(reader, status, fields), self._name)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ConnectionError("the response is incomplete") from error
        except (ValueError, http.client.HTTPException) as error:
            raise ConnectionError("the response is not HTTP") from error

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
        """Submits a job and waits for it. Cancelling the task cancels the job."""
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
    """Returns the path and query of a signed image URL (`GET /image`), for `<img src>`. Append it to the service's URL.

    - key: one of the service's `view.keys`, in hexadecimal.
    - options: members of the variant and of the job."""
    members = {"url": url, **options, "expires": int(time.time()) + expires_in}
    query = urllib.parse.urlencode({name: _text(value) for name, value in members.items()})
    code = hmac.new(bytes.fromhex(key), f"/image?{query}".encode(), hashlib.sha256).digest()
    return f"/image?{query}&signature={base64.urlsafe_b64encode(code).decode().rstrip('=')}"


def verify_webhook(body, headers, secrets, *, tolerance=300):
    """Checks that a webhook message comes from the service, and returns its JSON: `type`, `timestamp` and `data`.

    - body: the request's body as it arrived, in bytes. Parsed and rewritten JSON does not match the signature.
    - headers: the request's header fields as a mapping. Case is ignored.
    - secrets: a secret (`whsec_…`), or several during a rotation: one must match.
    - tolerance: the most seconds by which `webhook-timestamp` may differ from this machine's clock.

    Raises `InvalidWebhook`. A message may arrive more than once; its `webhook-id` identifies it."""
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
    signatures = [text.encode() for text in fields["webhook-signature"].split()]
    is_valid = False
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        if not key:
            raise ValueError("A webhook secret is empty.")
        expected = b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
        for signature in signatures:
            # Compares in constant time.
            is_valid |= hmac.compare_digest(expected, signature)
    if not is_valid:
        raise InvalidWebhook("No signature of the message matches a secret.")
    return json.loads(body)
