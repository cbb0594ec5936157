"""The processes of a run: instances of the service, PostgreSQL, an S3 server, the origin and the links between them."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
KEYS = {"AWS_ACCESS_KEY_ID": "histories", "AWS_SECRET_ACCESS_KEY": "histories-secret"}
# Seconds after which other instances take over the jobs of an instance.
LEASE = 2
# Links 0 to 2 are those of the instances to the database.
BUCKET_LINK = 3

SETTINGS = {
    "IMAGEFETCH_FETCH_ALLOW_NETWORKS": "127.0.0.0/8",
    "IMAGEFETCH_FETCH_ALLOW_PORTS": "",
    "IMAGEFETCH_FETCH_MAX_PER_HOST": "64",
    "IMAGEFETCH_JOBS_MAX_ATTEMPTS": "2",
    "IMAGEFETCH_JOBS_RETRY_BACKOFF_INITIAL": "100ms",
    "IMAGEFETCH_JOBS_RETRY_BACKOFF_MAXIMUM": "500ms",
    "IMAGEFETCH_JOBS_WORKERS": "32",
    "IMAGEFETCH_SERVER_DRAIN_TIMEOUT": "1s",
    "IMAGEFETCH_CLUSTER_LEASE": f"{LEASE}s",
    "IMAGEFETCH_LOG_LEVEL": "warning",
    "SWIFT_BACKTRACE": "enable=no",
}


def free_port():
    """A port that no outgoing connection gets, so that it is still free when a process starts again."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            return probe.getsockname()[1]


def launch(arguments, log, environment=None, **options):
    """Starts a process that ends with this one. The thread that calls this must live as long as the process."""
    with log.open("ab") as output:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *map(str, arguments)], stderr=output,
            env=os.environ | (environment or {}), **{"stdout": output} | options)


def wait_for_port(port, process, log, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.005)
    raise RuntimeError(f"{process.args[3]} does not listen on port {port}: {log.read_text()[-2000:]}")


class PostgreSQL:
    """A PostgreSQL server: a primary, or its synchronous standby. Its data survives a crash of the server, not of the machine."""

    def __init__(self, folder):
        self.programs = max(
            pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: int(found.parent.name))
        self.folder, self.data, self.log, self.port = folder, folder / "data", folder.with_suffix(".log"), free_port()
        self.process = None
        folder.mkdir()
        self.become = []
        if os.getuid() == 0:
            self.become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
            subprocess.run(["chown", "postgres:", folder], check=True)

    def run(self, program, *arguments):
        subprocess.run([*self.become, self.programs / program, "-D", self.data, "-U", "imagefetch", "--no-sync", *arguments],
                       check=True, stdout=subprocess.DEVNULL, cwd="/")

    def create(self):
        """Starts as a primary with an empty database."""
        self.run("initdb", "-A", "trust", "-E", "UTF8", "--locale=C")
        self.start()
        self.query("CREATE DATABASE histories")

    def follow(self, primary):
        """Starts as the synchronous standby of a primary that has none, with a new copy of its data."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.run("pg_basebackup", "-h", "127.0.0.1", "-p", str(primary.port), "-R", "-X", "stream", "-c", "fast")
        self.start()
        # The copy does not have this setting. So it does not wait for a standby after its promotion.
        primary.query("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.query("SELECT pg_reload_conf()")
        primary.wait_for_standby()

    def wait_for_standby(self):
        """Waits until the standby has all changes. Before that, a crash could lose a change that a client has seen."""
        deadline = time.monotonic() + 60
        while self.query("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'") != "sync":
            if time.monotonic() > deadline:
                raise RuntimeError("the standby does not follow")
            time.sleep(0.02)

    def start(self):
        with self.log.open("ab") as output:
            # The option for the end of the parent comes last, because a change of the user resets it.
            self.process = subprocess.Popen(
                [*self.become, "setpriv", "--pdeathsig", "QUIT", self.programs / "postgres", "-D", self.data,
                 "-k", self.folder, "-p", str(self.port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
                 "-c", "max_connections=200", "-c", "wal_retrieve_retry_interval=200ms", "-c", "wal_keep_size=512MB"],
                stdout=output, stderr=output, cwd="/")
        deadline = time.monotonic() + 60
        while self.query("SELECT 1", fails=True) != "1":
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"PostgreSQL does not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def query(self, statement, fails=False):
        result = subprocess.run(
            ["psql", "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", "imagefetch", "-d", "postgres",
             "-v", "ON_ERROR_STOP=1", "-c", statement], check=not fails, capture_output=True, text=True)
        return result.stdout.strip()

    def crash(self):
        """Ends all its processes at once: no transaction is finished, and nothing is written."""
        if self.process:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()


class ObjectStore:
    """SeaweedFS: one process with one bucket."""

    def __init__(self, weed, folder):
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps({"identities": [{
            "name": "histories", "actions": ["Admin", "Read", "Write", "List"],
            "credentials": [{"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}]}]}))
        names = [name + grpc for name in ("master", "volume", "filer", "s3") for grpc in (".port", ".port.grpc")]
        ports = {name: free_port() for name in names}
        self.port, log = ports["s3.port"], folder.parent / "s3.log"
        self.process = launch(
            [weed, "-logtostderr=true", "server", f"-dir={folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
             *(f"-{name}={port}" for name, port in ports.items()), "-master.volumeSizeLimitMB=64",
             "-master.volumePreallocate=false", "-volume.max=100", "-filer", "-s3", "-s3.port.iceberg=0",
             "-s3.port.lance=0", f"-s3.config={folder}/s3.json"], log)
        wait_for_port(self.port, self.process, log)
        for _ in range(300):
            result = subprocess.run(
                ["curl", "-sS", "--noproxy", "*", "--aws-sigv4", "aws:amz:us-east-1:s3", "-u", ":".join(KEYS.values()),
                 "-X", "PUT", "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{self.port}/images"],
                capture_output=True, text=True)
            if result.stdout == "200":
                return
            time.sleep(0.2)
        raise RuntimeError(f"the S3 server did not create the bucket: {result.stdout} {result.stderr}")


class Helper:
    """A Python program of this folder that prints its ports and ends when its standard input ends."""

    def __init__(self, program, log, *arguments):
        self.process = launch(
            [sys.executable, HERE / program, *arguments], log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = list(map(int, self.process.stdout.readline().split()))

    def command(self, *words):
        print(*words, file=self.process.stdin, flush=True)


class Instance:
    """One instance of the service, always with the same folder and port. With a shim, its wall clock can be set."""

    def __init__(self, executable, folder, settings, shim):
        folder.mkdir()
        self.executable, self.log, self.port = executable, folder.with_suffix(".log"), free_port()
        self.settings = SETTINGS | settings | {
            "IMAGEFETCH_SERVER_PORT": str(self.port), "IMAGEFETCH_STORAGE_PATH": str(folder),
            "IMAGEFETCH_CLUSTER_NAME": folder.name}
        self.clock, self.offset = folder.with_suffix(".clock"), 0
        if shim:
            self.clock.write_bytes(bytes(8))
            self.settings |= {"LD_PRELOAD": str(shim), "CLOCK_SHIM": str(self.clock)}
        self.start()

    def start(self, attempts=5):
        """Starts the process, again if it ended because the database did not answer in time."""
        self.process = launch([self.executable, "serve"], self.log, self.settings)
        try:
            wait_for_port(self.port, self.process, self.log)
        except RuntimeError:
            self.kill()
            if attempts == 1:
                raise
            self.start(attempts - 1)

    def wait_until_ready(self, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"the instance does not become ready: {self.log.read_text()[-2000:]}")

    def set_clock(self, offset):
        """Sets the wall clock of the process, and of later ones, to this many seconds from the right time."""
        self.offset = offset
        with self.clock.open("r+b", buffering=0) as file:
            file.write(struct.pack("q", int(offset * 1e9)))

    def kill(self):
        self.process.kill()
        self.process.wait()


class Services:
    """All processes of a run, in a folder that the caller removes after `stop`. `faults` are the names of those to prepare for."""

    def __init__(self, executable, store, folder, weed, faults):
        self.store, self.database, self.standby, self.bucket = store, None, None, None
        self.links, self.instances, shim = None, [], None
        self.running = contextlib.ExitStack()
        with contextlib.ExitStack() as failed:
            failed.callback(self.stop)
            self.origin = Helper("origin.py", folder / "origin.log")
            self.running.callback(self.origin.process.kill)
            if store == "postgres":
                self.start_cluster(folder, weed, "failover" in faults)
            if "clock" in faults:
                shim = folder / "clock-shim.so"
                subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", shim, HERE / "clock-shim.c"], check=True)
            for number in range(3 if store == "postgres" else 1):
                instance = Instance(executable, folder / f"instance-{number}", self.settings(number), shim)
                self.running.callback(instance.kill)
                self.instances.append(instance)
                # The first start creates the tables.
                instance.wait_until_ready()
            failed.pop_all()

    def start_cluster(self, folder, weed, has_standby):
        servers = [PostgreSQL(folder / f"database-{number}") for number in range(2 if has_standby else 1)]
        for server in servers:
            self.running.callback(server.crash)
        self.database = servers[0]
        self.database.create()
        if has_standby:
            self.standby = servers[1]
            self.standby.follow(self.database)
        self.bucket = ObjectStore(weed, folder / "bucket")
        self.running.callback(self.bucket.process.kill)
        # Link n is instance n's to the servers of the database, the last one that of all instances to the bucket: with different
        # endpoints, instances would be different services.
        ports = ",".join(str(server.port) for server in servers)
        self.links = Helper("links.py", folder / "links.log", ports, ports, ports, self.bucket.port)
        self.running.callback(self.links.process.kill)

    def settings(self, number):
        if self.store == "sqlite":
            return {}
        *databases, bucket = self.links.ports
        count = len(databases) // 3
        hosts = ",".join(f"127.0.0.1:{port}" for port in databases[number * count:][:count])
        return KEYS | {
            "IMAGEFETCH_STORAGE_JOBS": f"postgresql://imagefetch@{hosts}/histories?target_session_attrs=read-write",
            "IMAGEFETCH_STORAGE_IMAGES": "s3://images/kept",
            "IMAGEFETCH_STORAGE_S3_ENDPOINT": f"http://127.0.0.1:{bucket}"}

    def stop(self):
        self.running.close()
