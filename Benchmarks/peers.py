"""Programs that imagefetch is compared with: the Python pool, and SQLite alone."""

import pathlib
import re
import subprocess
import time

from measures import CORES, Rate
from origin import cpu_seconds

HERE = pathlib.Path(__file__).parent
IN_FLIGHT = 64
# Importing aiohttp takes long on a busy machine.
START_SECONDS = 60


def pool_jobs(python, urls, folder, side=None):
    """The same images with aiohttp and Pillow, one process per core: decoded, or made into JPEGs of a maximum size."""
    workers = []
    try:
        for number in range(CORES):
            share = folder / f"pool-{number}"
            share.write_text("\n".join(urls[number::CORES]))
            workers.append(subprocess.Popen(
                [python, HERE / "pool.py", share, str(IN_FLIGHT // CORES)]
                + ([str(side)] if side else []), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for worker in workers:
            if worker.stdout.readline() != "ready\n":
                raise RuntimeError(f"the Python pool does not start: {worker.wait(START_SECONDS)}")
        cpu, clock = sum(cpu_seconds(worker.pid) for worker in workers), time.monotonic()
        for worker in workers:
            resume(worker)
        counts = [worker.stdout.readline() for worker in workers]
        clock = time.monotonic() - clock
        cpu = sum(cpu_seconds(worker.pid) for worker in workers) - cpu
        if sum(int(count or 0) for count in counts) != len(urls):
            raise RuntimeError(f"the Python pool decoded {counts} of {len(urls)} images")
        return Rate(len(urls) / clock, len(urls) / cpu)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            worker.stdin.close()
            worker.stdout.close()


def resume(worker):
    worker.stdin.write("\n")
    worker.stdin.flush()


def inserts(program, folder, database, batch):
    """SQLite alone: inserts a database's jobs again, several per transaction, each synced before the next."""
    folder.mkdir()
    output = subprocess.run(
        [program, folder / "rows.sqlite", database, "jobs", str(batch)],
        check=True, capture_output=True, text=True, timeout=300).stdout
    rate, milliseconds = re.search(r"([\d.]+) rows/s, ([\d.]+) CPU ms a row", output).groups()
    return Rate(float(rate), 1000 / float(milliseconds))
