#!/usr/bin/env python3
"""Measures how much hostile clients slow down a normal client: the milliseconds of its requests, alone and during each attack.

    python3 Benchmarks/hostile.py --service .build/release/imagefetch [--crowd 10000]

During each attack, one client reads a job every 5 ms, 2,000 times. The attacks: silent connections, header sections that
arrive one field at a time, floods of fields, half a body, and event streams and images that are not read.
"""

import argparse
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer

HOST = b"Host: localhost\r\n"


def png(extra):
    def chunk(kind, data):
        body = kind + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    head = (1).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"teSt", bytes(extra))
        + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    )


class Origin(BaseHTTPRequestHandler):
    def do_GET(self):
        body = png(8 << 20 if self.path == "/large" else 100)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def start(executable, folder, connections):
    environment = dict(
        os.environ,
        IMAGEFETCH_SERVER_PORT="0",
        IMAGEFETCH_SERVER_MAX_CONNECTIONS=str(connections),
        IMAGEFETCH_SERVER_REQUEST_TIMEOUT="10m",
        IMAGEFETCH_STORAGE_PATH=folder + "/data",
        IMAGEFETCH_FETCH_ALLOW_NETWORKS="127.0.0.1/32",
        IMAGEFETCH_FETCH_ALLOW_PORTS="",
        IMAGEFETCH_LOG_FORMAT="json",
    )
    process = subprocess.Popen([executable, "serve"], env=environment, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if '"listening"' in line:
            threading.Thread(target=lambda: [None for _ in process.stderr], daemon=True).start()
            return process, int(json.loads(line)["port"])
    sys.exit("the service did not start")


def run_job(port, url):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/jobs?wait=30", json.dumps({"url": url}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        job = json.load(answer)
    assert job["phase"] == "success", job
    return job["id"]


def measure(port, job, count):
    """The sorted times of requests over one connection, in milliseconds."""
    client = socket.create_connection(("127.0.0.1", port))
    request = b"GET /jobs/" + job.encode() + b" HTTP/1.1\r\n" + HOST + b"\r\n"
    times = []
    for _ in range(count):
        began = time.perf_counter()
        client.sendall(request)
        text = b""
        while b"\r\n\r\n" not in text:
            text += client.recv(65536)
        head, body = text.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += client.recv(65536)
        times.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.005)
    client.close()
    return sorted(times)


def crowd(port, count, words):
    clients = []
    for number in range(count):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        if words(number):
            client.sendall(words(number))
        clients.append(client)
    return clients


def memory(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--service", required=True)
    parser.add_argument("--crowd", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=2_000)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    origin = HTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        process, port = start(options.service, folder, 2 * options.crowd + 1000)
        try:
            compare(process, port, origin.server_port, options)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def compare(process, port, origin, options):
    job = run_job(port, f"http://127.0.0.1:{origin}/small")
    large = run_job(port, f"http://127.0.0.1:{origin}/large")
    get = b"GET /jobs HTTP/1.1\r\n" + HOST
    kinds = {
        "nobody": (0, lambda number: b""),
        "idle": (options.crowd, lambda number: b""),
        "slow heads": (options.crowd, lambda number: get),
        "floods of fields": (
            options.crowd // 10, lambda number: get + b"".join(b"X-%d: 1\r\n" % at for at in range(1500))),
        "half bodies": (
            options.crowd, lambda number: b"POST /jobs HTTP/1.1\r\n" + HOST
            + b"Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{"),
        "streams, unread": (options.crowd, lambda number: b"GET /events HTTP/1.1\r\n" + HOST + b"\r\n"),
        "images, unread": (
            options.crowd // 10, lambda number: b"GET /jobs/" + large.encode() + b"/image HTTP/1.1\r\n" + HOST + b"\r\n"),
    }
    print(f"{'attack':20}{'clients':>10}{'p50 ms':>9}{'p99 ms':>9}{'ratio':>8}{'MiB':>8}")
    usual = None
    for name, (count, words) in kinds.items():
        clients = crowd(port, count, words)
        measure(port, job, 50)
        times = measure(port, job, options.requests)
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        usual = usual or p99
        print(f"{name:20}{count:>10}{p50:>9.2f}{p99:>9.2f}{p99 / usual:>8.2f}{memory(process):>8.0f}", flush=True)
        for client in clients:
            client.close()
        time.sleep(1)


if __name__ == "__main__":
    main()
