"""Other programs that make thumbnails: thumbor and nginx's image filter as servers, vipsthumbnail on files."""

import concurrent.futures
import http.client
import os
import pathlib
import resource
import signal
import subprocess
import time
import urllib.parse

from measures import CORES, Rate
from origin import cpu_seconds, free_port, wait_for_port

SIDE, QUALITY = 512, 80
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
      image_filter_buffer 64M;
    }}
  }}
}}
"""


def tree_seconds(pid):
    """User and system time of a process and of its children."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(tree_seconds(child) for child in children)


def gets(port, paths, pid):
    """Requests each path once over several connections. Each response must be an image."""
    def request_all(share):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for path in share:
            client.request("GET", path)
            answer = client.getresponse()
            body = answer.read()
            if answer.status != 200 or body[:2] not in (b"\xff\xd8", b"\x89P"):
                raise RuntimeError(f"{answer.status} for {path}: {body[:200]}")
        client.close()

    with concurrent.futures.ThreadPoolExecutor(IN_FLIGHT) as pool:
        cpu, clock = tree_seconds(pid), time.monotonic()
        list(pool.map(request_all, [paths[number::IN_FLIGHT] for number in range(IN_FLIGHT)]))
        clock, cpu = time.monotonic() - clock, tree_seconds(pid) - cpu
    return Rate(len(paths) / clock, len(paths) / max(cpu, 1e-6))


class Server:
    """A process that makes a thumbnail for each GET request."""

    def __init__(self, command, port, path_of):
        self.port, self.path_of = port, path_of
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        wait_for_port(port, self.process, seconds=60)

    def rate(self, urls):
        return gets(self.port, [self.path_of(url) for url in urls], self.process.pid)

    def stop(self):
        # Kill its children too, which thumbor leaves behind.
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def thumbor(program, folder, storage):
    """thumbor. With `storage` it stores fetched originals as files."""
    port = free_port()
    settings = folder / f"thumbor-{port}.conf"
    kind = "file_storage" if storage else "no_storage"
    settings.write_text(
        f"ALLOW_UNSAFE_URL = True\nSTORAGE = 'thumbor.storages.{kind}'\n"
        f"FILE_STORAGE_ROOT_PATH = '{folder}/thumbor'\nQUALITY = {QUALITY}\n"
        "USE_GIFSICLE_ENGINE = False\nMAX_PIXELS = 100000000\nHTTP_LOADER_REQUEST_TIMEOUT = 60\n")
    command = [program, "--ip", "127.0.0.1", "--port", str(port), "--conf", settings,
               "--processes", str(CORES), "--log-level", "error"]
    return Server(command, port, lambda url: (
        f"/unsafe/fit-in/{SIDE}x{SIDE}/filters:format(jpeg)/" + urllib.parse.quote(url, safe="")))


def image_filter(folder, origin):
    """nginx's image filter. It keeps the image's format, so it makes a PNG from a PNG."""
    port = free_port()
    settings = folder / "filter.conf"
    settings.write_text(FILTER.format(
        folder=folder, port=port, origin=origin, side=SIDE, quality=QUALITY))
    command = ["nginx", "-p", folder, "-e", folder / "filter.log", "-c", settings]
    return Server(command, port, lambda url: urllib.parse.urlsplit(url).path)


def vips(files, folder):
    """vipsthumbnail, one process per core, each with a part of the files. It fetches nothing and syncs nothing."""
    environment = {**os.environ, "VIPS_CONCURRENCY": "1"}
    command = ["vipsthumbnail", "--size", f"{SIDE}x{SIDE}", "--output",
               f"{folder}/vips-%s.jpg[Q={QUALITY},strip]"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    workers = [
        subprocess.Popen(command + files[number::CORES], env=environment)
        for number in range(CORES)]
    statuses = [worker.wait() for worker in workers]
    clock, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if any(statuses):
        raise RuntimeError(f"vipsthumbnail ended with {statuses}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Rate(len(files) / clock, len(files) / max(cpu, 1e-6))
