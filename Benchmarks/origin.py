"""The origins on loopback: nginx for pictures, and one that never answers."""

import socket
import subprocess
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
  types {{ image/jpeg jpg; }}
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    root {folder}/pictures;
  }}
}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, process, seconds=10):
    """Returns once somebody listens there; raises when the process has died or time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"{process.args[0]} does not listen on port {port}")


class Nginx:
    """Serves `folder`/pictures."""

    def __init__(self, folder):
        self.port = free_port()
        configuration = folder / "nginx.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, port=self.port))
        # Its workers are another user when root starts it.
        folder.chmod(0o755)
        self.process = subprocess.Popen(
            ["nginx", "-p", folder, "-e", folder / "nginx.log", "-c", configuration])
        wait_for_port(self.port, self.process)

    def url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}"

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Stalled:
    """Its connections are made by the kernel and never served: whoever asks waits."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)

    def url(self, path):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/{path}"

    def stop(self):
        self.listener.close()
