"""The shared stores on loopback: PostgreSQL with default settings and fsync, and SeaweedFS as the S3 server."""

import collections
import contextlib
import json
import os
import pathlib
import subprocess
import time

from origin import cpu_seconds, descendants, free_port, wait_for_port

USER = "imagefetch"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret"}


def tree_cpu_seconds(process):
    """CPU seconds of a process and all its descendants, including children that have ended."""
    used = 0
    for pid in [process.pid, *descendants(process.pid)]:
        # The time of a process that has just ended is counted by its parent.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            used += cpu_seconds(pid)
    return used


class PostgreSQL:
    """A PostgreSQL server with default settings: each commit is synced. If root starts it, it runs as the user postgres."""

    def __init__(self, folder):
        programs = max(
            pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: int(found.parent.name))
        self.port, self.databases = free_port(), 0
        folder.mkdir()
        self.become = []
        if os.getuid() == 0:
            self.become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
            subprocess.run(["chown", "postgres:", folder], check=True)
        subprocess.run(
            [*self.become, programs / "initdb", "-D", folder / "data", "-U", USER, "-A", "trust",
             "-E", "UTF8", "--locale=C", "--no-sync"], check=True, stdout=subprocess.DEVNULL, cwd="/")
        with (folder.parent / "postgres.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*self.become, programs / "postgres", "-D", folder / "data", "-k", folder,
                 "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
                 "-c", "shared_preload_libraries=pg_stat_statements"], stdout=log, stderr=log, cwd="/")
        wait_for_port(self.port, self.process, seconds=30)
        for _ in range(100):
            if self.run("SELECT 1", fails=True) == "1":
                break
            time.sleep(0.1)
        self.run("CREATE EXTENSION pg_stat_statements")
        self.track(False)

    def run(self, statement, database="postgres", fails=False):
        """Returns a statement's only value, or its rows with values separated by a bar."""
        result = subprocess.run(
            ["psql", "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database,
             "-v", "ON_ERROR_STOP=1", "-c", statement],
            check=not fails, capture_output=True, text=True)
        return result.stdout.strip()

    def database(self):
        """Creates a database and returns its URL."""
        self.databases += 1
        self.run(f"CREATE DATABASE bench_{self.databases}")
        return f"postgresql://{USER}@127.0.0.1:{self.port}/bench_{self.databases}"

    def track(self, is_on):
        """Starts or stops counting statements. Counting costs some percent."""
        self.run(f"ALTER SYSTEM SET pg_stat_statements.track = {'top' if is_on else 'none'}")
        self.run("SELECT pg_reload_conf()")
        # Backends apply it before their next statement, idle ones soon.
        time.sleep(0.2)
        self.run("SELECT pg_stat_statements_reset()")

    def statements(self):
        """The counted statements of the last database: calls, milliseconds and text, the most expensive first."""
        rows = self.run(
            "SELECT s.calls, round(s.total_exec_time::numeric, 1), left(regexp_replace(s.query, '\\s+', ' ', 'g'), 90)"
            " FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
            f" WHERE d.datname = 'bench_{self.databases}' ORDER BY s.total_exec_time DESC")
        return [row.split("|", 2) for row in rows.splitlines()]

    def connection_seconds(self):
        """CPU seconds of the last database's connections so far, by purpose and backend."""
        rows = self.run(
            "SELECT pid, substr(application_name, length('imagefetch pg-') + 1) FROM pg_stat_activity"
            f" WHERE datname = 'bench_{self.databases}' AND application_name LIKE 'imagefetch pg-%' ORDER BY backend_start")
        used, instances = collections.Counter(), collections.Counter()
        for row in rows.splitlines():
            pid, lane = row.split("|")
            instances[lane] += 1
            # schedstat has nanoseconds; stat only has hundredths of a second.
            used[lane, instances[lane]] = int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        return used

    def log_bytes(self):
        """Bytes written to the log since the server was created."""
        return int(self.run("SELECT pg_current_wal_lsn() - '0/0'"))

    def calls(self, begin):
        """The number of counted statements of the last database that start with this text."""
        return int(self.run(
            "SELECT coalesce(sum(s.calls), 0)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
            f" WHERE d.datname = 'bench_{self.databases}' AND s.query LIKE '{begin}%'"))

    def transactions(self):
        """The number of transactions of the last database, including those of the server's own maintenance."""
        return int(self.run(
            f"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'bench_{self.databases}'"))

    def ends(self):
        """The end times of the last database's successful jobs in milliseconds, in ascending order."""
        rows = self.run(
            "SELECT finished_at FROM jobs WHERE image IS NOT NULL AND finished_at IS NOT NULL ORDER BY 1",
            f"bench_{self.databases}")
        return [int(row) for row in rows.split()]

    def cpu_seconds(self):
        return tree_cpu_seconds(self.process)

    def stop(self):
        # An immediate shutdown, because the data is deleted.
        self.process.send_signal(3)
        self.process.wait()


class ObjectStore:
    """SeaweedFS: one process with one bucket. Each service uses its own prefix."""

    def __init__(self, weed, folder):
        self.prefixes = 0
        (folder / "data").mkdir(parents=True)
        (folder / "s3.json").write_text(json.dumps({"identities": [{
            "name": "bench", "actions": ["Admin", "Read", "Write", "List"],
            "credentials": [{"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}]}]}))
        ports = {}
        for name in ("master", "volume", "filer", "s3"):
            ports[name], ports[f"{name}.grpc"] = free_port(), free_port()
        self.port = ports["s3"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [weed, "-logtostderr=true", "server", f"-dir={folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                 *(f"-{name}.port{grpc}={ports[name + grpc]}"
                   for name in ("master", "volume", "filer", "s3") for grpc in ("", ".grpc")),
                 "-master.volumeSizeLimitMB=64", "-master.volumePreallocate=false", "-volume.max=100",
                 "-filer", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={folder}/s3.json"],
                stdout=log, stderr=log)
        wait_for_port(self.port, self.process, seconds=60)
        for _ in range(300):
            result = subprocess.run(
                ["curl", "-sS", "--noproxy", "*", "--aws-sigv4", "aws:amz:us-east-1:s3",
                 "-u", ":".join(KEYS.values()), "-X", "PUT", "-o", "/dev/null", "-w", "%{http_code}",
                 f"http://127.0.0.1:{self.port}/bench"], capture_output=True, text=True)
            if result.stdout == "200":
                return
            time.sleep(0.2)
        raise RuntimeError(f"the S3 server did not create the bucket: {result.stdout} {result.stderr}")

    def settings(self):
        """Settings for the instances of a new service."""
        self.prefixes += 1
        return KEYS | {
            "IMAGEFETCH_STORAGE_IMAGES": f"s3://bench/{self.prefixes}",
            "IMAGEFETCH_STORAGE_S3_ENDPOINT": f"http://127.0.0.1:{self.port}",
        }

    def cpu_seconds(self):
        return tree_cpu_seconds(self.process)

    def stop(self):
        # Killed, because an orderly stop takes long and the data is deleted.
        self.process.kill()
        self.process.wait()
