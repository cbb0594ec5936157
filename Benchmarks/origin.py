"""The origins on loopback: nginx, which serves images under many addresses, and origins that never answer."""

import os
import pathlib
import selectors
import socket
import subprocess
import sys
import threading
import time

CONFIGURATION = """\
daemon off;
worker_processes auto;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000;
  open_file_cache max=20000;
  types {{ image/jpeg jpg; image/png png; }}
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    {listen}
    root {folder}/images;
    limit_rate {rate};
  }}
}}
"""


TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """User and system time of the process, of all its threads, and of children that it has waited for."""
    with open(f"/proc/{pid}/stat") as stat:
        # The name before them may contain blanks. The times are the 12th to 15th field after it.
        fields = stat.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def descendants(pid):
    """Yields the children of the process, their children, and so on."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return  # The process has ended.
    for task in tasks:
        try:
            children = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            yield child
            yield from descendants(child)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, process, seconds=10, address="127.0.0.1"):
    """Waits until a server listens on the port. Raises if the process ends or the time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with status {process.returncode}")
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"{process.args[0]} does not listen on port {port}")


class Nginx:
    """Serves `folder`/images. Each of the addresses is a separate origin.

    `rate` is in bytes per second and response; 0 means no limit.
    """

    def __init__(self, folder, addresses=("127.0.0.1",), rate=0):
        self.port = free_port()
        listen = "\n    ".join(f"listen {address}:{self.port} backlog=1024;" for address in addresses)
        configuration = folder / "nginx.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, listen=listen, rate=rate))
        # If root starts it, its workers run as another user.
        folder.chmod(0o755)
        self.process = subprocess.Popen(
            ["nginx", "-p", folder, "-e", folder / "nginx.log", "-c", configuration])
        try:
            wait_for_port(self.port, self.process, address=addresses[0])
        except RuntimeError:
            self.stop()
            raise

    def url(self, path, address="127.0.0.1"):
        return f"http://{address}:{self.port}/{path}"

    def cpu_seconds(self):
        """User and system time of all its processes."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return sum(cpu_seconds(pid) for pid in [self.process.pid, *children.read_text().split()])

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Delayed:
    """Serves the folder's files under each of the addresses, with a delay in milliseconds."""

    def __init__(self, folder, addresses, milliseconds):
        self.port, self.addresses = free_port(), addresses
        program = pathlib.Path(__file__).with_name("delayed.py")
        self.process = subprocess.Popen(
            [sys.executable, program, folder, str(self.port), str(milliseconds), *addresses])
        wait_for_port(self.port, self.process, address=addresses[-1])

    def url(self, file, number):
        """The URL of a file at one of the addresses, in turn."""
        return f"http://{self.addresses[number % len(self.addresses)]}:{self.port}/{file}"

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Stalled:
    """An origin that accepts connections and never answers. It must accept them, because otherwise they would fill the kernel's
    queue and new connections would fail."""

    def __init__(self, address="127.0.0.1"):
        self.listener = socket.create_server((address, 0), backlog=128)
        self.is_stopped = False
        threading.Thread(target=self.wait, daemon=True).start()

    def wait(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            while not self.is_stopped:
                for key, _ in selector.select(timeout=1):
                    if key.fileobj is self.listener:
                        selector.register(self.listener.accept()[0], selectors.EVENT_READ)
                    elif not self.is_requested(key.fileobj):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
            for key in list(selector.get_map().values()):
                key.fileobj.close()

    @staticmethod
    def is_requested(connection):
        try:
            return connection.recv(65_536)
        except ConnectionError:
            return False

    def url(self, path):
        address, port = self.listener.getsockname()
        return f"http://{address}:{port}/{path}"

    def stop(self):
        self.is_stopped = True
