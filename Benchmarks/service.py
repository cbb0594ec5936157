"""imagefetch as a process, started on a free port with new data and used over one connection."""

import http.client
import json
import os
import subprocess
import time

from origin import cpu_seconds, descendants, free_port, wait_for_port

# The defaults, except for what the measurements need: most use one origin on loopback with long timeouts.
CONFIGURATION = """\
server: {{ port: {port}, drain_timeout: 1s }}
jobs: {{ workers: {workers}, max_queued: {max_queued}, max_attempts: {max_attempts} }}
fetch:
  timeout: {timeout}
  stall_timeout: {stall_timeout}
  max_per_host: {max_per_host}
  allow_networks: [127.0.0.0/8]
  allow_ports: []
storage: {{ path: {folder}/data }}
view: {{ enabled: true }}
log: {{ level: error }}
"""

# The default values of these keys, used with many origins.
DEFAULTS = {"max_attempts": 3, "timeout": "60s", "stall_timeout": "15s", "max_per_host": 6}


class Service:
    # Seconds between two checks whether all jobs are done. Each check costs time in a store that is another process.
    look_pause = 0.005

    def __init__(self, binary, folder, workers=64, environment=None, **settings):
        folder.mkdir(parents=True)
        self.binary, self.configuration = binary, folder / "imagefetch.yaml"
        self.environment = os.environ | (environment or {})
        self.port = free_port()
        settings = {
            "max_attempts": 1, "timeout": "10m", "stall_timeout": "10m", "max_per_host": workers,
            "max_queued": 300_000,
        } | settings
        self.configuration.write_text(
            CONFIGURATION.format(port=self.port, folder=folder, workers=workers, **settings))
        self.log = folder / "log"
        self.start()

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "serve", "--config", self.configuration], stdout=log, stderr=log,
                env=self.environment)
        try:
            wait_for_port(self.port, self.process, seconds=30)
        except RuntimeError as error:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"{error}:\n{self.log.read_text()}") from None
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            self.connection.request("GET", "/readyz")
            response = self.connection.getresponse()
            response.read()
            if response.status == 200:
                return
            time.sleep(0.01)
        raise RuntimeError("the service did not become ready")

    def request(self, method, path, body=None):
        """Returns the response's JSON. Raises for any status except 2xx."""
        headers = {"Content-Type": "application/json"} if body else {}
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        text = response.read()
        if response.status // 100 != 2:
            raise RuntimeError(f"{method} {path}: {response.status} {text[:400].decode()}")
        return json.loads(text)

    def submit(self, batches):
        """Submits batches made by `batches_of`. Returns the id of the last job."""
        for batch in batches:
            answer = self.request("POST", "/jobs", batch)
        return answer["jobs"][-1]["id"]

    def wait_until_idle(self, last, seconds=60, tag=None):
        """Waits until no job (with the tag) is unfinished. Waits for `last` first, to avoid frequent requests."""
        deadline = time.monotonic() + seconds
        unfinished = "/jobs?phase=queued&phase=loading&limit=1" + (f"&tag={tag}" if tag else "")
        self.request("GET", f"/jobs/{last}?wait={seconds}")
        while self.request("GET", unfinished)["jobs"]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"jobs are unfinished after {seconds} s")
            time.sleep(self.look_pause)

    def expect_successes(self, count):
        """Raises unless exactly this number of jobs succeeded, because fast failures would distort the figures."""
        found, path = 0, "/jobs?phase=success&limit=500"
        cursor = ""
        while cursor is not None:
            page = self.request("GET", path + (f"&cursor={cursor}" if cursor else ""))
            found += len(page["jobs"])
            cursor = page["next_cursor"]
        if found != count:
            failed = self.request("GET", "/jobs?phase=failure&limit=1")["jobs"]
            raise RuntimeError(f"{found} of {count} jobs succeeded; a failed one: {failed}")

    def processes(self):
        """The process and its decoders."""
        return [self.process.pid, *descendants(self.process.pid)]

    def cpu_seconds(self):
        return sum(cpu_seconds(pid) for pid in self.processes())

    def resident_bytes(self):
        """Resident memory. Of decoders only private memory counts, because they share the rest with the service."""
        service, *decoders = self.processes()
        return resident(service, "VmRSS") + sum(own(pid) for pid in decoders)

    def stop(self):
        self.connection.close()
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def own(pid):
    """The private memory of a process, which it shares with no other process."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as sums:
            return sum(int(line.split()[1]) for line in sums if line.startswith("Private_")) * 1024
    except PermissionError:  # Only root can read this of decoders.
        return resident(pid, "RssAnon")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def resident(pid, kind):
    """Returns 0 for a process that has ended, even if it still exists as a zombie."""
    try:
        with open(f"/proc/{pid}/status") as status:
            line = next((line for line in status if line.startswith(kind + ":")), ": 0")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(line.split()[1]) * 1024


def batches_of(size, urls, **members):
    """Request bodies, created before the measurement starts. An element is a URL or a complete job."""
    jobs = [{"url": url} | members if isinstance(url, str) else url for url in urls]
    return [
        json.dumps(jobs[start:start + size]).encode() for start in range(0, len(jobs), size)
    ]
