"""Tests of the module with a real service, at API, and an origin, at ORIGIN. The origin has only /photo.jpg (480 x 320)
and /slow.jpg, whose response never ends. The project's tests run this file."""

import asyncio
import hashlib
import http.server
import os
import signal
import tempfile
import threading
import unittest
import unittest.mock
import urllib.error
import urllib.request
import uuid

from imagefetch import (
    AsyncClient, Cancelled, Client, Error, Failed, InvalidWebhook, Refused, TimedOut, Unreachable, signed_path, verify_webhook,
)

API = os.environ["API"]
ORIGIN = os.environ["ORIGIN"]
PHOTO = ORIGIN + "/photo.jpg"
# Distinguishes these jobs from those of earlier runs in the same service.
RUN = uuid.uuid4().hex


def photo():
    with urllib.request.urlopen(PHOTO) as answer:
        return answer.read()


class Stop(Exception):
    pass


class Busy:
    """A service that accepts only the second request."""

    def __enter__(self):
        self.keys, self.tokens = [], set()
        busy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                busy.keys.append(self.headers["Idempotency-Key"])
                busy.tokens.add(self.headers["Authorization"])
                isFull = len(busy.keys) != 2
                self.send_response(503 if isFull else 202)
                if isFull:
                    self.send_header("Retry-After", "0" if len(busy.keys) == 1 else "9")
                self.end_headers()
                self.wfile.write(b'{"code": "queue_full"}' if isFull else b'{"id": "1", "phase": "queued"}')

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()


class Other:
    """A server that is not an imagefetch service."""

    def __enter__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"<title>Another server</title>")

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_error(501)

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()


class Raw:
    """A server that responds to every request with these bytes."""

    def __init__(self, answer):
        self.answer = answer

    @classmethod
    def of_json(cls, status, text):
        return cls(b"HTTP/1.1 %d X\r\n\r\n%s" % (status, text))

    def __enter__(self):
        raw = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.wfile.write(raw.answer)

            do_POST = do_GET

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()


# Responses that are not valid HTTP.
BROKEN = [
    b"", b"\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 \r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"SSH-2.0 200\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101 + b"\r\n", b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}",
]
# Invalid lengths: the synchronous client then reads until the connection ends.
WRONG_LENGTHS = [b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n{}" % length for length in (b"abc", b"-5", b"")]
# Bodies that are neither a job nor a list of jobs.
NO_JOBS = [b"[1]", b'"ok"', b"1", b"null", b"{}", b'{"status": "ok"}', b'{"jobs": []}', b"[" * 100_000, b"\xff"]


class Late:
    """The service behind a proxy that delays the first response and calls `taken` when it has received it."""

    def __init__(self, taken):
        self.taken, self.keys, self.over = taken, [], threading.Event()

    def __enter__(self):
        late = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_POST(self):
                late.keys.append(self.headers["Idempotency-Key"])
                is_first = len(late.keys) == 1
                status, content = self.passed_on()
                if is_first:
                    late.taken()
                    late.over.wait(30)
                else:
                    self.answer(status, content)

            def do_DELETE(self):
                self.answer(*self.passed_on())

            def passed_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                names = [name for name in ("Content-Type", "Idempotency-Key") if name in self.headers]
                fields = {name: self.headers[name] for name in names}
                request = urllib.request.Request(API + self.path, body or None, fields, method=self.command)
                with urllib.request.urlopen(request) as answer:
                    return answer.status, answer.read()

            def answer(self, status, content):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(content)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()


class SyncTests(unittest.TestCase):
    def setUp(self):
        self.client = Client(API)

    def test_fetches_and_saves(self):
        seen = []
        job = self.client.fetch(PHOTO, progress=lambda job: seen.append(job.phase), tags=["sync"])
        self.assertEqual((job.phase, seen[-1], job.is_finished), ("success", "success", True))
        self.assertEqual((job.image["width"], job.image["height"], job.fraction), (480, 320, 1))
        data = self.client.image(job)
        self.assertEqual(hashlib.sha256(data).hexdigest(), job.image["sha256"])
        with tempfile.TemporaryDirectory() as folder:
            self.client.save(job, folder + "/a.webp", width=32, format="webp")
            with open(folder + "/a.webp", "rb") as file:
                self.assertEqual(file.read()[8:12], b"WEBP")

    def test_raises_what_the_job_failed_with(self):
        with self.assertRaises(Failed) as raised:
            self.client.fetch(ORIGIN + "/none.jpg")
        error = raised.exception
        self.assertEqual((error.code, error.origin_status, error.retryable), ("origin_status", 404, False))
        self.assertEqual(str(error), "The origin responded with 404.")
        with self.assertRaises(Failed) as raised:
            self.client.fetch("http://10.0.0.1/a.jpg")
        self.assertEqual(raised.exception.code, "blocked_address")

    def test_raises_what_was_refused(self):
        with self.assertRaises(Refused) as raised:
            self.client.submit("ftp://example.org/a.jpg", priority="urgent")
        error = raised.exception
        self.assertEqual((error.status, error.code), (422, "invalid_url"))
        self.assertEqual(sorted(each["pointer"] for each in error.errors), ["/priority", "/url"])
        with self.assertRaises(Refused) as raised:
            self.client.job("0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88")
        self.assertEqual(raised.exception.status, 404)

    def test_submits_many_and_lists_them_all(self):
        jobs = self.client.submit_many([PHOTO, {"url": PHOTO, "tags": ["many" + RUN]}] + [{"url": PHOTO, "tags": ["many" + RUN]}] * 4)
        self.assertEqual(len(jobs), 6)
        for job in jobs:
            self.assertEqual(self.client.wait(job).phase, "success")
        listed = [job.id for job in self.client.jobs(tag="many" + RUN, phase=["success", "failure"], limit=2)]
        self.assertEqual(listed, [job.id for job in reversed(jobs[1:])])

    def test_repeats_nothing_that_has_a_key(self):
        jobs = [self.client.submit(PHOTO, idempotency_key=RUN) for _ in range(2)]
        self.assertEqual(jobs[0].id, jobs[1].id)

    def test_keeps_variants_alone(self):
        wanted = [{"name": "thumb", "width": 32}]
        for job in (
            self.client.fetch(PHOTO, variants=wanted, original="drop"),
            self.client.wait(self.client.upload(photo(), variants=wanted, original="drop")),
        ):
            thumb, = job.image["variants"]
            self.assertEqual(len(self.client.image(job, variant="thumb")), thumb["bytes"])
            with self.assertRaises(Refused) as raised:
                self.client.image(job)
            self.assertEqual((raised.exception.status, raised.exception.code), (410, "image_gone"))

    def test_uploads(self):
        job = self.client.wait(self.client.upload(photo(), "image/jpeg", tags=["a", "b"], max_pixels=1_000_000))
        self.assertEqual((job["source"]["captured"]["bytes"], job["tags"]), (len(photo()), ["a", "b"]))
        self.assertEqual(self.client.image(job), photo())

    def test_cancels_edits_fetches_again_and_forgets(self):
        job = self.client.submit(ORIGIN + "/slow.jpg", cache="no-store")
        self.assertEqual(self.client.edit(job, priority="high", tags=["x"])["tags"], ["x"])
        self.assertEqual(self.client.cancel(job).phase, "cancelled")
        with self.assertRaises(Cancelled):
            self.client.wait(job)
        self.assertFalse(self.client.fetch_again(job).is_finished)
        self.client.forget(job)
        with self.assertRaises(Refused):
            self.client.job(job)

    def test_cancels_what_nobody_waits_for_any_more(self):
        jobs = []

        def stop(job):
            jobs.append(job)
            raise Stop

        with self.assertRaises(Stop):
            self.client.fetch(ORIGIN + "/slow.jpg", progress=stop, cache="no-store")
        self.assertEqual(self.client.job(jobs[0]).phase, "cancelled")
        with self.assertRaises(TimeoutError) as late:
            self.client.fetch(ORIGIN + "/slow.jpg", timeout=0.2, cache="no-store", tags=["late" + RUN])
        self.assertIsInstance(late.exception, TimedOut)
        self.assertIsInstance(late.exception, Error)
        self.assertEqual([job.phase for job in self.client.jobs(tag="late" + RUN)], ["cancelled"])

    def test_ctrl_c_cancels_what_was_submitted_before_its_answer_came(self):
        # The parent process may have ignored or blocked SIGINT, as a shell does for background commands.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self.addCleanup(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
        main = threading.get_ident()
        with Late(lambda: signal.pthread_kill(main, signal.SIGINT)) as late:
            with self.assertRaises(KeyboardInterrupt):
                Client(late.url).fetch(ORIGIN + "/slow.jpg", cache="no-store", tags=["early" + RUN])
        self.assertEqual((len(late.keys), len(set(late.keys))), (2, 1))
        self.assertEqual([job.phase for job in self.client.jobs(tag="early" + RUN)], ["cancelled"])

    def test_another_thread_can_cancel(self):
        job = self.client.submit(ORIGIN + "/slow.jpg", cache="no-store")
        canceller = threading.Thread(target=lambda: Client(API).cancel(job))
        canceller.start()
        with self.assertRaises(Cancelled):
            self.client.wait(job)
        canceller.join()

    def test_waits_as_retry_after_says_and_no_longer_than_its_patience(self):
        with Busy() as busy:
            client = Client(busy.url, token="secret", patience=5)
            self.assertEqual(client.submit(PHOTO).id, "1")
            self.assertEqual((len(busy.keys), len(set(busy.keys)), busy.tokens), (2, 1, {"Bearer secret"}))
            with self.assertRaises(Refused) as raised:
                client.submit(PHOTO)
            self.assertEqual((raised.exception.code, raised.exception.retry_after), ("queue_full", 9))

    def test_raises_where_nobody_is(self):
        with self.assertRaises(Error) as raised:
            Client("http://user:secret@127.0.0.1:1/below/").fetch(PHOTO)
        self.assertIsInstance(raised.exception, Unreachable)
        self.assertIsInstance(raised.exception, OSError)
        self.assertEqual(str(raised.exception), "cannot reach http://127.0.0.1:1/below: Connection refused")

    def test_raises_where_another_server_is(self):
        with Other() as other:
            client = Client(other.url)
            for ask, status in ((client.submit, 501), (client.job, 200)):
                with self.assertRaises(Refused) as raised:
                    ask("a")
                words = f"unexpected response from {other.url}: status {status}"
                self.assertEqual((raised.exception.status, str(raised.exception)), (status, words))

    def test_raises_where_an_answer_is_no_http(self):
        for answer in BROKEN:
            with self.subTest(answer[:80]), Raw(answer) as raw:
                with self.assertRaisesRegex(Unreachable, f"^cannot reach {raw.url}: "):
                    Client(raw.url).job("a")
        for answer in WRONG_LENGTHS:
            with self.subTest(answer), Raw(answer) as raw, self.assertRaises(Refused):
                Client(raw.url).job("a")

    def test_raises_where_an_answer_is_no_job(self):
        for text in NO_JOBS:
            with self.subTest(text[:80]):
                with Raw.of_json(200, text) as raw:
                    client = Client(raw.url)
                    words = f"^unexpected response from {raw.url}: status 200$"
                    for ask in (client.job, client.wait, client.fetch_again, lambda job: next(client.jobs())):
                        with self.assertRaisesRegex(Refused, words):
                            ask("a")
                with Raw.of_json(202, text) as raw, self.assertRaises(Refused) as raised:
                    Client(raw.url).submit("a")
                self.assertEqual(raised.exception.status, 202)
                with Raw.of_json(500, text) as raw, self.assertRaises(Refused) as raised:
                    Client(raw.url).job("a")
                self.assertEqual((raised.exception.status, raised.exception.code), (500, None))
        with Raw.of_json(202, b"[1]") as raw, self.assertRaises(Refused):
            Client(raw.url).submit_many(["a"])
        with Raw(b"HTTP/1.1 503 X\r\nRetry-After: \xb2\r\n\r\n") as raw, self.assertRaises(Refused) as raised:
            Client(raw.url).job("a")
        self.assertEqual((raised.exception.status, raised.exception.retry_after), (503, None))

    def test_raises_where_no_answer_comes(self):
        with Late(lambda: None) as late:
            with self.assertRaises(Unreachable) as raised:
                Client(late.url, timeout=0.2).submit(PHOTO)
        self.assertEqual(str(raised.exception), f"cannot reach {late.url}: timed out")

    def test_signs_image_urls(self):
        path = signed_path(os.environ["VIEW_KEY"], PHOTO, width=20, placeholder=False)
        with urllib.request.urlopen(API + path) as answer:
            self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "image/jpeg"))
        with self.assertRaises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(API + path.replace("width=20", "width=21"))
        raised.exception.close()
        self.assertEqual(raised.exception.code, 403)


class AsyncTests(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.client = AsyncClient(API)

    async def test_fetches_many_at_once(self):
        seen = []
        jobs = await asyncio.gather(
            *(self.client.fetch(PHOTO + f"?{n}", tags=["async" + RUN], progress=seen.append) for n in range(20)))
        self.assertEqual({job.phase for job in jobs}, {"success"})
        self.assertGreaterEqual(len(seen), 20)
        listed = [job.id async for job in self.client.jobs(tag="async" + RUN, limit=7)]
        self.assertEqual(sorted(listed), sorted(job.id for job in jobs))
        self.assertEqual(await self.client.image(jobs[0]), photo())
        with tempfile.TemporaryDirectory() as folder:
            await self.client.save(jobs[0], folder + "/a.png", width=10, format="png")
            with open(folder + "/a.png", "rb") as file:
                self.assertEqual(file.read()[1:4], b"PNG")

    async def test_raises_as_the_other_one_does(self):
        with self.assertRaises(Failed):
            await self.client.fetch(ORIGIN + "/none.jpg")
        with self.assertRaises(Refused):
            await self.client.submit("none")
        with self.assertRaises(OSError):
            await AsyncClient("http://127.0.0.1:1").submit(PHOTO)
        with self.assertRaisesRegex(Unreachable, "^cannot reach http://127.0.0.1:1: .*('127.0.0.1', 1)"):
            await AsyncClient("http://127.0.0.1:1").submit(PHOTO)
        with Other() as other, self.assertRaisesRegex(Refused, "^unexpected response from .*: status 501"):
            await AsyncClient(other.url).submit(PHOTO)
        with Late(lambda: None) as late, self.assertRaisesRegex(Unreachable, "no response in time"):
            await AsyncClient(late.url, timeout=0.2).submit(PHOTO)

    async def test_raises_where_an_answer_is_no_http(self):
        for answer in BROKEN + WRONG_LENGTHS:
            with self.subTest(answer[:80]), Raw(answer) as raw:
                with self.assertRaisesRegex(Unreachable, f"^cannot reach {raw.url}: "):
                    await AsyncClient(raw.url).job("a")

    async def test_raises_where_an_answer_is_no_job(self):
        for text in NO_JOBS:
            with self.subTest(text[:80]):
                with Raw.of_json(200, text) as raw:
                    client = AsyncClient(raw.url)
                    for ask in (client.job, client.wait, client.fetch_again, lambda job: anext(client.jobs())):
                        with self.assertRaises(Refused):
                            await ask("a")
                for status in (202, 500):
                    with Raw.of_json(status, text) as raw, self.assertRaises(Refused) as raised:
                        await AsyncClient(raw.url).submit("a")
                    self.assertEqual(raised.exception.status, status)

    async def test_cancelling_the_task_cancels_the_job(self):
        under_way = asyncio.Event()
        task = asyncio.create_task(self.client.fetch(
            ORIGIN + "/slow.jpg", cache="no-store", tags=["left" + RUN], progress=lambda job: under_way.set()))
        await under_way.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual([job.phase async for job in self.client.jobs(tag="left" + RUN)], ["cancelled"])

    async def test_cancelling_the_task_cancels_what_was_submitted_before_its_answer_came(self):
        loop, taken = asyncio.get_running_loop(), asyncio.Event()
        with Late(lambda: loop.call_soon_threadsafe(taken.set)) as late:
            task = asyncio.create_task(AsyncClient(late.url).fetch(
                ORIGIN + "/slow.jpg", cache="no-store", tags=["soon" + RUN]))
            await taken.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        self.assertEqual([job.phase async for job in self.client.jobs(tag="soon" + RUN)], ["cancelled"])

    async def test_uploads_edits_and_forgets(self):
        job = await self.client.wait(await self.client.upload(photo()))
        self.assertEqual((await self.client.edit(job, tags=["y"]))["tags"], ["y"])
        self.assertEqual((await self.client.fetch_again(job)).phase, "success")
        self.assertEqual((await self.client.cancel(job)).phase, "success")
        self.assertEqual(len(await self.client.submit_many([PHOTO])), 1)
        await self.client.forget(job)
        with self.assertRaises(Refused):
            await self.client.job(job)


class Receiver:
    """Receives webhook messages and stores them."""

    def __enter__(self):
        self.messages, self.arrived = [], threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.messages.append((body, self.headers))
                self.send_response(204)
                self.end_headers()
                receiver.arrived.set()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class WebhookTests(unittest.TestCase):
    """Uses messages of the real service, which signs each with two secrets."""

    @classmethod
    def setUpClass(cls):
        cls.secrets = os.environ["WEBHOOK_SECRETS"].split(",")
        with Receiver() as receiver:
            cls.job = Client(API).fetch(PHOTO, notify={"url": receiver.url})
            assert receiver.arrived.wait(30)
            (cls.body, fields), = receiver.messages
        cls.headers = dict(fields.items())
        cls.fields = {name.lower(): value for name, value in cls.headers.items()}
        cls.signatures = cls.fields["webhook-signature"].split(" ")

    def refuses(self, words, body=None, headers=None, secrets=None, **rest):
        with self.assertRaises(InvalidWebhook) as refused:
            verify_webhook(body or self.body, headers or self.headers, secrets or self.secrets, **rest)
        self.assertIsInstance(refused.exception, Error)
        self.assertIn(words, str(refused.exception))

    def test_takes_a_message_by_either_secret(self):
        self.assertEqual(len(self.signatures), 2)
        for secrets in [*self.secrets, self.secrets, self.secrets[1:]]:
            message = verify_webhook(self.body, self.headers, secrets)
            self.assertEqual(message["type"], "job.success")
            self.assertEqual(message["data"]["id"], self.job.id)
        upper = {name.upper(): value for name, value in self.headers.items()}
        self.assertEqual(verify_webhook(self.body.decode(), upper, self.secrets[0]), message)

    def test_takes_one_of_several_signatures(self):
        for signature in self.signatures:
            several = f"v1a,other v1,{'A' * 43}= {signature} v2,{signature[3:]}"
            verify_webhook(self.body, {**self.fields, "webhook-signature": several}, self.secrets)
        self.refuses("No signature", headers={**self.fields, "webhook-signature": self.signatures[0]},
                     secrets=self.secrets[1])
        self.refuses("No signature", headers={**self.fields, "webhook-signature": f"v2{self.signatures[0][2:]}"})

    def test_refuses_what_was_changed(self):
        self.refuses("No signature", body=self.body + b" ")
        self.refuses("No signature", body=self.body.replace(b"job.success", b"job.failure"))
        self.refuses("No signature", headers={**self.fields, "webhook-id": "other"})
        self.refuses("No signature", secrets="whsec_" + "A" * 43 + "=")
        later = str(int(self.fields["webhook-timestamp"]) + 1)
        self.refuses("No signature", headers={**self.fields, "webhook-timestamp": later})
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
            self.refuses(f"no {name}", headers={**self.fields, name: ""})

    def test_refuses_an_empty_secret(self):
        for secrets in ("", "whsec_", [""]):
            with self.assertRaises(ValueError):
                verify_webhook(self.body, self.headers, secrets)

    def test_refuses_an_old_message_and_one_of_the_future(self):
        now = int(self.fields["webhook-timestamp"])
        for moment in (now + 3_600, now - 3_600):
            with unittest.mock.patch("time.time", return_value=moment):
                self.refuses("too far")
                verify_webhook(self.body, self.headers, self.secrets, tolerance=3_700)
        for text in ("-1", "1e9", "٣", "1" * 16):
            self.refuses("not a number", headers={**self.fields, "webhook-timestamp": text})


if __name__ == "__main__":
    unittest.main()
