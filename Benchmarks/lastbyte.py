"""Measures the time from an image's last byte until the job's success is reported."""

import json
import socket
import statistics
import threading
import time

from images import photograph

# Dimensions of images from 0.1 to 50 megapixels.
SIZES = ((365, 274), (1600, 1250), (4000, 3000), (8100, 6100))
END_BYTES = 64


class PausingOrigin:
    """An origin that sends an image except for its last bytes, and these on command."""

    def __init__(self, body):
        self.body = body
        self.paused, self.resumed = threading.Event(), threading.Event()
        self.sent = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()

    def url(self, number):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/{number}.jpg"

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client.recv(65536)
                client.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"
                    b"Connection: close\r\n\r\n" % len(self.body))
                client.sendall(self.body[:-END_BYTES])
                self.paused.set()
                self.resumed.wait(60)
                self.sent = time.monotonic()
                client.sendall(self.body[-END_BYTES:])

    def stop(self):
        self.listener.close()


def delay(service, origin, number):
    """Seconds for one image. Everything except its end is decoded before the end is sent."""
    origin.paused.clear()
    origin.resumed.clear()
    job = service.request("POST", "/jobs", json.dumps({"url": origin.url(number)}))["id"]
    if not origin.paused.wait(60):
        raise RuntimeError("the origin received no request")
    settled = service.cpu_seconds()
    while True:
        time.sleep(0.1)
        now = service.cpu_seconds()
        if now - settled < 0.02:
            break
        settled = now
    threading.Timer(0.1, origin.resumed.set).start()
    answer = service.request("GET", f"/jobs/{job}?wait=60")
    finished = time.monotonic()
    if answer["phase"] != "success":
        raise RuntimeError(f"{answer['phase']}: {answer['error']}")
    return finished - origin.sent


def delays(start, count):
    """The medians in milliseconds, by image size.

    `start` starts a service.
    """
    for width, height in SIZES:
        origin, service = PausingOrigin(photograph(width, height, 85)), start()
        try:
            all = [delay(service, origin, number) for number in range(count)]
        finally:
            service.stop()
            origin.stop()
        yield f"{width * height / 1e6:.1f} megapixels", statistics.median(all) * 1000
