"""An origin on loopback, as a process: serves small images at once, slowly, after failures, or not at all.

The kind in the path `/KIND/NUMBER.png` decides what happens. Prints its port.
"""

import collections
import http.server
import sys
import threading
import time
import zlib

from images import image

# Images at this address always fail or fail first. The service pauses such an origin, and only this one.
FAILING = "127.0.0.2"
HEALTHY = "127.0.0.1"


def address(kind):
    """The address of a kind of image."""
    return FAILING if kind in ("flaky", "down", "missing", "junk") else HEALTHY


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests = collections.Counter()

    def do_GET(self):
        kind = self.path.split("/")[1]
        # The same delay for each request of a URL.
        share = zlib.crc32(self.path.encode()) % 1000 / 1000
        Handler.requests[self.path] += 1
        if kind == "missing":
            self.respond(404, b"")
        elif kind == "down" or kind == "flaky" and Handler.requests[self.path] == 1:
            self.respond(503, b"")
        elif kind == "junk":
            self.respond(200, b"no image")
        elif kind == "shared":
            self.respond(200, image(self.path), pause=1.5 * share)
        elif kind == "slow":
            self.respond(200, image(self.path), pause=0.6 * share)
        elif kind == "hang":
            self.respond(200, image(self.path), pause=1 + 2 * share)
        else:
            self.respond(200, image(self.path))

    def respond(self, status, content, pause=0.0):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "max-age=3600")
        self.end_headers()
        middle = len(content) // 2
        self.wfile.write(content[:middle])
        if pause:
            self.wfile.flush()
            time.sleep(pause)
        self.wfile.write(content[middle:])

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_):
        # The service ends transfers of cancelled jobs, and is killed.
        pass


def serve():
    healthy = Server((HEALTHY, 0), Handler)
    failing = Server((FAILING, healthy.server_address[1]), Handler)
    print(healthy.server_address[1], flush=True)
    threading.Thread(target=failing.serve_forever, daemon=True).start()
    threading.Thread(target=healthy.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    serve()
