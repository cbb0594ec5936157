"""Measures the time from an image's last byte until the job's success is reported."""

import json
import socket
import statistics
import threading
import time

from pictures import photograph

# Dimensions of images from 0.1 to 50 megapixels.
SIZES = ((365, 274), (1600, 1250), (4000, 3000), (8100, 6100))
HELD = 64


class Holding:
    """An origin that sends an image except for its end, and the end on command."""

    def __init__(self, body):
        self.body = body
        self.held, self.told = threading.Event(), threading.Event()
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
                client.sendall(self.body[:-HELD])
                self.held.set()
                self.told.wait(60)
                self.sent = time.monotonic()
                client.sendall(self.body[-HELD:])

    def stop(self):
        self.listener.close()


def delay(service, origin, number):
    """Seconds for one image. Everything except its end is decoded before the end is sent."""
    origin.held.clear()
    origin.told.clear()
    job = service.ask("POST", "/jobs", json.dumps({"url": origin.url(number)}))["id"]
    if not origin.held.wait(60):
        raise RuntimeError("the origin received no request")
    settled = service.cpu_seconds()
    while True:
        time.sleep(0.1)
        now = service.cpu_seconds()
        if now - settled < 0.02:
            break
        settled = now
    threading.Timer(0.1, origin.told.set).start()
    answer = service.ask("GET", f"/jobs/{job}?wait=60")
    told = time.monotonic()
    if answer["phase"] != "success":
        raise RuntimeError(f"{answer['phase']}: {answer['error']}")
    return told - origin.sent


def delays(start, count):
    """The medians in milliseconds, by image size.

    `start` starts a service.
    """
    for width, height in SIZES:
        origin, service = Holding(photograph(width, height, 85)), start()
        try:
            all = [delay(service, origin, number) for number in range(count)]
        finally:
            service.stop()
            origin.stop()
        yield f"{width * height / 1e6:.1f} megapixels", statistics.median(all) * 1000
