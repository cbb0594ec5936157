#!/usr/bin/env python3
"""Makes docs/dashboard.png: a screenshot of the dashboard after the service has worked for a minute.

The origin, the service and the browser run on this machine, and this script draws the images. Run it as root, because
it changes host names in a mount namespace. Argument: the service's executable.
"""

import base64
import http.client
import http.server
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from PIL import Image, ImageDraw, ImageFilter

HERE = pathlib.Path(__file__).parent
ORIGINS = ["http://photos.example.org", "http://cdn.example.net", "http://shop.example.com"]
NAMES = ["fjord", "dunes", "moor", "ridge", "valley", "coast", "mesa", "tundra", "delta", "foothills", "plateau", "pass"]


def landscape(seed, size=(1600, 1000)):
    """An image of hills, one range behind the other, under a low sun."""
    chance = random.Random(seed)
    width, height = size
    image = Image.new("RGB", size)
    draw = ImageDraw.Draw(image)
    sky, glow, land = ([chance.randrange(*bounds) for _ in range(3)] for bounds in ((70, 200), (170, 255), (20, 110)))
    for y in range(height):
        share = y / height
        draw.line([(0, y), (width, y)], fill=tuple(round(a + (b - a) * share) for a, b in zip(sky, glow)))
    x, y, radius = chance.randrange(width), chance.randrange(height // 4, height // 2), chance.randrange(50, 110)
    draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(255, 244, 214))
    for hill in range(5):
        share = hill / 4
        ground = tuple(round(g + (c - g) * (0.35 + 0.65 * share)) for g, c in zip(glow, land))
        line, at, slope = [(0, height)], height * (0.45 + 0.12 * hill), 0
        for x in range(0, width + 8, 8):
            slope = 0.97 * slope + chance.uniform(-1, 1)
            at += slope
            line.append((x, at))
        draw.polygon(line + [(width, height)], fill=ground)
    return image.filter(ImageFilter.GaussianBlur(1))


class Origin(http.server.BaseHTTPRequestHandler):
    """Serves /NUMBER/NAME.jpg completely. Of /slow/PER CENT/NUMBER/NAME.jpg, a progressive JPEG, it sends that part and then stalls."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        parts = self.path.strip("/").split("/")
        if not parts[-2].isdigit():
            self.send_error(404)
            return
        file = io.BytesIO()
        landscape(int(parts[-2])).save(file, "JPEG", quality=85, progressive=parts[0] == "slow")
        body = file.getvalue()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if parts[0] != "slow":
            self.wfile.write(body)
            return
        self.wfile.write(body[:len(body) * int(parts[1]) // 100])
        threading.Event().wait()


def submit(api, jobs):
    request = urllib.request.Request(
        f"{api}/jobs", json.dumps(jobs).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()


def submit_batch(api, name, urls):
    request = urllib.request.Request(
        f"{api}/batches?name={name}", "\n".join(urls).encode(), {"Content-Type": "text/uri-list"})
    urllib.request.urlopen(request).close()


def work(api):
    """Submits jobs for a minute. Most succeed."""
    at = lambda name: f"{ORIGINS[sum(map(ord, name)) % 7 % 3]}/{name}"
    chance = random.Random(7)
    for second in range(60):
        number = second * 10
        names = [f"{number + i}/{NAMES[(number + i) % len(NAMES)]}.jpg" for i in range(chance.randrange(1, 4))]
        if second % 4 == 3:
            # This image is in the cache.
            names.append(f"{number - 10}/{NAMES[(number - 10) % len(NAMES)]}.jpg")
        if second % 9 == 4:
            names.append("missing/lake.jpg")
        submit(api, [{"url": at(name), "tags": ["scenery"]} for name in names])
        if second == 30:
            # Most of these images are in the cache. The last ones are slow.
            known = [at(f"{10 * i}/{NAMES[10 * i % len(NAMES)]}.jpg") for i in range(30)]
            others = [at(f"missing/{name}.jpg") for name in NAMES[:4]] + [at(f"slow/60/{970 + i}/lake.jpg") for i in range(3)]
            submit_batch(api, "catalogue", known + others)
        time.sleep(1)
    submit(api, [{"url": "http://169.254.169.254/latest/meta-data"}])
    submit(api, [{"url": at(f"{900 + i}/{NAMES[i]}.jpg"), "tags": ["scenery"]} for i in range(2)])
    time.sleep(3)
    shares = [70, 45, 12]
    submit(api, [
        {"url": at(f"slow/{share}/{950 + share}/{NAMES[share % len(NAMES)]}.jpg"), "priority": "high"}
        for share in shares])
    time.sleep(2)


def serve(command, folder):
    settings = {
        "SERVER_PORT": "8089", "STORAGE_PATH": folder, "FETCH_ALLOW_NETWORKS": "127.0.0.1/32",
        "FETCH_ALLOW_PORTS": "", "FETCH_STALL_TIMEOUT": "1m", "JOBS_MAX_ATTEMPTS": "1",
    }
    environment = os.environ | {f"IMAGEFETCH_{name}": value for name, value in settings.items()}
    return subprocess.Popen([command, "serve"], env=environment, stderr=subprocess.DEVNULL)


def screenshot(url, work):
    """Opens the page with WebDriver, runs the work, and returns a screenshot."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-proxy-server",
               "--window-size=1280,1010"]
    driver = subprocess.Popen(["chromedriver", "--port=9517"], stdout=subprocess.DEVNULL)

    def command(method, path, **members):
        connection = http.client.HTTPConnection("127.0.0.1", 9517)
        connection.request(method, path, json.dumps(members) if method == "POST" else None)
        return json.load(connection.getresponse())["value"]

    try:
        time.sleep(2)
        browser = {"binary": "/usr/bin/chromium", "args": options}
        capabilities = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": browser}}
        session = "/session/" + command("POST", "/session", capabilities=capabilities)["sessionId"]
        screen = {"width": 1280, "height": 1010, "deviceScaleFactor": 1, "mobile": False}
        command("POST", session + "/goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=screen)
        command("POST", session + "/url", url=url + "#view=cards")
        work()
        time.sleep(5)
        image = base64.b64decode(command("GET", session + "/screenshot"))
        command("DELETE", session)
    finally:
        driver.terminate()
        driver.wait()
    return Image.open(io.BytesIO(image)).convert("RGB")


def name_this_machine():
    """Restarts this script in a mount namespace whose /etc/hosts maps the origins' names to this machine."""
    names = " ".join(origin.removeprefix("http://") for origin in ORIGINS)
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        hosts.write(pathlib.Path("/etc/hosts").read_text() + f"\n127.0.0.1 {names}\n")
        hosts.flush()
        script = f"mount --bind {hosts.name} /etc/hosts && exec \"$@\""
        arguments = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, *sys.argv, "named"]
        sys.exit(subprocess.run(arguments).returncode)


def main():
    if sys.argv[-1] != "named":
        name_this_machine()
    http.server.ThreadingHTTPServer.daemon_threads = True
    origin = http.server.ThreadingHTTPServer(("127.0.0.1", 80), Origin)
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    api = "http://127.0.0.1:8089"
    with tempfile.TemporaryDirectory() as folder:
        service = serve(sys.argv[1], folder)
        try:
            time.sleep(3)
            image = screenshot(f"{api}/", lambda: work(api))
        finally:
            service.terminate()
            service.wait()
    image.save(HERE / "dashboard.png", optimize=True)


if __name__ == "__main__":
    main()
