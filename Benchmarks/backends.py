"""What instances share, on loopback: PostgreSQL as it comes, with fsync, and SeaweedFS as the S3 server."""

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
    """Of a process and all below it; of children that have ended their parent tells."""
    used = 0
    for pid in [process.pid, *descendants(process.pid)]:
        # One that has just ended is its parent's now.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            used += cpu_seconds(pid)
    return used


class PostgreSQL:
    """A cluster with the server's own defaults: each commit is on the disk. Root's is the user postgres's."""

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
        """One statement's only value, or rows of values with a bar between."""
        told = subprocess.run(
            ["psql", "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database,
             "-v", "ON_ERROR_STOP=1", "-c", statement],
            check=not fails, capture_output=True, text=True)
        return told.stdout.strip()

    def database(self):
        """The URL of a new one."""
        self.databases += 1
        self.run(f"CREATE DATABASE bench_{self.databases}")
        return f"postgresql://{USER}@127.0.0.1:{self.port}/bench_{self.databases}"

    def track(self, is_on):
        """Counts statements from now on, or no more: counting costs some per cent."""
        self.run(f"ALTER SYSTEM SET pg_stat_statements.track = {'top' if is_on else 'none'}")
        self.run("SELECT pg_reload_conf()")
        # Backends take it over before their next statement, those that are idle within moments.
        time.sleep(0.2)
        self.run("SELECT pg_stat_statements_reset()")

    def statements(self):
        """What clients of the last database sent since they are counted: calls, milliseconds, text; the most first."""
        rows = self.run(
            "SELECT s.calls, round(s.total_exec_time::numeric, 1), left(regexp_replace(s.query, '\\s+', ' ', 'g'), 90)"
            " FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
            f" WHERE d.datname = 'bench_{self.databases}' ORDER BY s.total_exec_time DESC")
        return [row.split("|", 2) for row in rows.splitlines()]

    def lanes(self):
        """CPU seconds of the last database's connections so far: by what instances have them for, and whose they are."""
        rows = self.run(
            "SELECT pid, substr(application_name, length('imagefetch pg-') + 1) FROM pg_stat_activity"
            f" WHERE datname = 'bench_{self.databases}' AND application_name LIKE 'imagefetch pg-%' ORDER BY backend_start")
        used, instances = collections.Counter(), collections.Counter()
        for row in rows.splitlines():
            pid, lane = row.split("|")
            instances[lane] += 1
            # In nanoseconds, where stat has hundredths of a second.
            used[lane, instances[lane]] = int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        return used

    def log_bytes(self):
        """Of the log, since it began."""
        return int(self.run("SELECT pg_current_wal_lsn() - '0/0'"))

    def calls(self, begin):
        """How often statements that begin so were sent to the last database since they are counted."""
        return int(self.run(
            "SELECT coalesce(sum(s.calls), 0)::bigint FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
            f" WHERE d.datname = 'bench_{self.databases}' AND s.query LIKE '{begin}%'"))

    def transactions(self):
        """Of clients of the last database, and what the server's own upkeep makes there."""
        return int(self.run(
            f"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'bench_{self.databases}'"))

    def ends(self):
        """When the last database's successful jobs ended, in milliseconds, the earliest first."""
        rows = self.run(
            "SELECT finished_at FROM jobs WHERE image IS NOT NULL AND finished_at IS NOT NULL ORDER BY 1",
            f"bench_{self.databases}")
        return [int(row) for row in rows.split()]

    def cpu_seconds(self):
        return tree_cpu_seconds(self.process)

    def stop(self):
        # At once: nothing is kept.
        self.process.send_signal(3)
        self.process.wait()


class ObjectStore:
    """SeaweedFS, one process with one bucket; each service has a prefix of its own."""

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
            said = subprocess.run(
                ["curl", "-sS", "--noproxy", "*", "--aws-sigv4", "aws:amz:us-east-1:s3",
                 "-u", ":".join(KEYS.values()), "-X", "PUT", "-o", "/dev/null", "-w", "%{http_code}",
                 f"http://127.0.0.1:{self.port}/bench"], capture_output=True, text=True)
            if said.stdout == "200":
                return
            time.sleep(0.2)
        raise RuntimeError(f"the S3 server makes no bucket: {said.stdout} {said.stderr}")

    def settings(self):
        """For the instances of a service of its own."""
        self.prefixes += 1
        return KEYS | {
            "IMAGEFETCH_STORAGE_IMAGES": f"s3://bench/{self.prefixes}",
            "IMAGEFETCH_STORAGE_S3_ENDPOINT": f"http://127.0.0.1:{self.port}",
        }

    def cpu_seconds(self):
        return tree_cpu_seconds(self.process)

    def stop(self):
        # An orderly stop takes long, and nothing is kept.
        self.process.kill()
        self.process.wait()
