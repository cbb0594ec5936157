#!/usr/bin/env python3
"""Thumbnails from an origin: the service's, made with the image, beside thumbor, nginx's image filter and a Python pool.

Each side fetches the same pictures from nginx on loopback and makes JPEGs of quality 80 within 512 x 512 of them, on all
cores. The service keeps the originals and the thumbnails, durable; the others keep nothing. The sides take turns, in
another order each round: read the ratios of the medians. The floor is libjpeg-turbo alone, from memory: a decode at half
the sides and an encode of as many pixels, without a filter between.

  swift build -c release --product imagefetch
  python3 Benchmarks/thumbnails.py --service .build/release/imagefetch --python .build-bench/bin/python \
    --thumbor .build-bench-thumbor/bin/thumbor
"""

import argparse
import concurrent.futures
import http.client
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.parse

import peers
from measures import CORES, Rate
from origin import Nginx, cpu_seconds, free_port, wait_for_port
from pictures import photograph, write_distinct
from service import Service, batches_of

HERE = pathlib.Path(__file__).parent
SIDE, QUALITY = 512, 80
VARIANTS = [{"name": "thumb", "width": SIDE, "height": SIDE, "format": "jpeg", "quality": QUALITY}]
SRCSET = [VARIANTS[0] | {"name": f"w{side}", "width": side, "height": side}
          for side in (SIDE, SIDE // 2, SIDE // 4)]
IN_FLIGHT = 16

FILTER = """\
daemon off;
worker_processes auto;
load_module /usr/lib/nginx/modules/ngx_http_image_filter_module.so;
pid {folder}/filter.pid;
error_log {folder}/filter.log warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/filter-body;
  proxy_temp_path {folder}/filter-proxy;
  fastcgi_temp_path {folder}/filter-fastcgi;
  uwsgi_temp_path {folder}/filter-uwsgi;
  scgi_temp_path {folder}/filter-scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{origin};
      image_filter resize {side} {side};
      image_filter_jpeg_quality {quality};
      image_filter_buffer 32M;
    }}
  }}
}}
"""


def tree_seconds(pid):
    """User and system time of a process and of its children."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(tree_seconds(child) for child in children)


class Server:
    """A process that makes a thumbnail for each GET."""

    def __init__(self, command, port, path_of):
        self.port, self.path_of = port, path_of
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        wait_for_port(port, self.process, seconds=30)

    def rate(self, urls):
        with concurrent.futures.ThreadPoolExecutor(IN_FLIGHT) as pool:
            cpu, clock = tree_seconds(self.process.pid), time.monotonic()
            list(pool.map(self.ask, [urls[number::IN_FLIGHT] for number in range(IN_FLIGHT)]))
            clock, cpu = time.monotonic() - clock, tree_seconds(self.process.pid) - cpu
        return Rate(len(urls) / clock, len(urls) / max(cpu, 1e-6))

    def ask(self, urls):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for url in urls:
            client.request("GET", self.path_of(url))
            answer = client.getresponse()
            body = answer.read()
            if answer.status != 200 or body[:2] != b"\xff\xd8":
                raise RuntimeError(f"{self.process.args[0]}: {answer.status} for {url}")
        client.close()

    def stop(self):
        # With its children, which thumbor leaves behind.
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def thumbor(program, folder):
    port = free_port()
    settings = folder / "thumbor.conf"
    settings.write_text(
        "ALLOW_UNSAFE_URL = True\nSTORAGE = 'thumbor.storages.no_storage'\n"
        f"QUALITY = {QUALITY}\nUSE_GIFSICLE_ENGINE = False\nMAX_PIXELS = 100000000\n")
    command = [program, "--ip", "127.0.0.1", "--port", str(port), "--conf", settings,
               "--processes", str(CORES), "--log-level", "error"]
    return Server(command, port, lambda url: (
        f"/unsafe/fit-in/{SIDE}x{SIDE}/filters:format(jpeg)/"
        + urllib.parse.quote(url, safe="")))


def image_filter(folder, origin):
    port = free_port()
    settings = folder / "filter.conf"
    settings.write_text(FILTER.format(
        folder=folder, port=port, origin=origin, side=SIDE, quality=QUALITY))
    command = ["nginx", "-p", folder, "-e", folder / "filter.log", "-c", settings]
    return Server(command, port, lambda url: urllib.parse.urlsplit(url).path)


def service_rate(binary, folder, urls, variants):
    service = Service(binary, folder)
    try:
        jobs = [{"url": url, "variants": variants} for url in urls]
        batches = batches_of(100, jobs)
        cpu, clock = service.cpu_seconds(), time.monotonic()
        service.wait_until_idle(service.submit(batches))
        clock, cpu = time.monotonic() - clock, service.cpu_seconds() - cpu
        service.expect_successes(len(urls))
        return Rate(len(urls) / clock, len(urls) / cpu)
    finally:
        service.stop()


def floor_rate(program, file, count):
    said = subprocess.run(
        [program, file, str(count // CORES), str(CORES)], check=True, capture_output=True,
        text=True).stdout
    rate, milliseconds = re.search(r"([\d.]+) pictures/s, ([\d.]+) CPU ms", said).groups()
    return Rate(float(rate), 1000 / float(milliseconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--service", type=pathlib.Path, required=True)
    parser.add_argument("--python", type=pathlib.Path, required=True)
    parser.add_argument("--thumbor", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=200, help="pictures a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="imagefetch-thumbnails-") as name:
        folder = pathlib.Path(name)
        write_distinct(photograph(1600, 1250, 85), folder / "pictures/large", options.count)
        floor = folder / "thumbnail"
        subprocess.run(
            ["cc", "-O2", "-pthread", "-o", floor, HERE / "codec/thumbnail.c", "-ljpeg"],
            check=True)
        origin = Nginx(folder)
        urls = [origin.url(f"large/{number}.jpg") for number in range(options.count)]
        servers = {"nginx image filter": image_filter(folder, origin.port)}
        if options.thumbor:
            servers["thumbor"] = thumbor(options.thumbor.absolute(), folder)
        started = iter(range(1_000_000))
        binary = options.service.resolve()
        sides = {
            "floor": lambda: floor_rate(
                floor, folder / "pictures/large/0.jpg", options.count),
            "imagefetch": lambda: service_rate(
                binary, folder / f"service-{next(started)}", urls, VARIANTS),
            "imagefetch, three sizes": lambda: service_rate(
                binary, folder / f"service-{next(started)}", urls, SRCSET),
            "Python pool": lambda: peers.pool_jobs(
                options.python.absolute(), urls, folder, side=SIDE),
        } | {name: (lambda server=server: server.rate(urls)) for name, server in servers.items()}
        rates = {side: [] for side in sides}
        try:
            for turn in range(options.rounds):
                order = list(sides)[turn % len(sides):] + list(sides)[:turn % len(sides)]
                for side in order:
                    rates[side].append(sides[side]())
        finally:
            for server in (*servers.values(), origin):
                server.stop()
        print(f"2-megapixel JPEGs to {SIDE} px, {CORES} cores, medians of {options.rounds}")
        print(f"{'':<26} {'a second':>9} {'CPU ms':>8} {'ours':>6}")
        ours = statistics.median(rate.wall for rate in rates["imagefetch"])
        for side, measured in rates.items():
            wall = statistics.median(rate.wall for rate in measured)
            cpu = statistics.median(1000 / rate.cpu for rate in measured)
            print(f"{side:<26} {wall:>9.1f} {cpu:>8.2f} {ours / wall:>6.2f}")


if __name__ == "__main__":
    main()
