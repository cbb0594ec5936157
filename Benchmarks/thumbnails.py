#!/usr/bin/env python3
"""Compares imagefetch with bare decoders and other programs that make thumbnails.

Thumbnails are JPEGs of quality 80 within 512 x 512. All sides use the same images, from nginx on loopback or, without
a fetch, from files. imagefetch stores originals and thumbnails durably, the others store nothing. The sides of a line
alternate, in a different order each round. Compare the ratios of the medians.

  swift build -c release --product imagefetch
  python3 Benchmarks/thumbnails.py --service .build/release/imagefetch --python .build-bench/bin/python \
    --thumbor .build-bench-thumbor/bin/thumbor
"""

import argparse
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

import measures
import peers
from lastbyte import delays
from measures import CORES, Rate
from origin import Nginx
from images import photograph, progressive, png, write_distinct
from programs import compile_c
from service import Service, batches_of
from thumbnailers import QUALITY, SIDE, gets, image_filter, thumbor, vips

THUMB = {"name": "thumb", "width": SIDE, "height": SIDE, "format": "jpeg", "quality": QUALITY}
SRCSET = [THUMB | {"name": f"w{side}", "width": side, "height": side}
          for side in (SIDE, SIDE // 2, SIDE // 4)]
QUERY = f"width={SIDE}&height={SIDE}&format=jpeg&quality={QUALITY}"
# Images per round, as a fraction of --count.
SHARES = {"jpeg": 1, "progressive": 4, "png": 8, "huge": 20}


class Images:
    """Distinct files of each kind, and their URLs."""

    def __init__(self, folder, count, kinds):
        self.folder = folder / "images"
        self.counts = {kind: max(CORES, count // SHARES[kind]) for kind in kinds}
        for kind in kinds:
            jpeg = photograph(*((7200, 5000) if kind == "huge" else (1600, 1250)), 85)
            file = {"progressive": progressive, "png": png}.get(kind, lambda jpeg: jpeg)(jpeg)
            write_distinct(file, self.folder / kind, self.counts[kind])
        self.origin = Nginx(folder)

    def files(self, kind):
        ending = "png" if kind == "png" else "jpg"
        return [self.folder / kind / f"{number}.{ending}" for number in range(self.counts[kind])]

    def urls(self, kind):
        return [self.origin.url(f"{kind}/{file.name}") for file in self.files(kind)]


class Sides:
    """Functions that return the rate of one side."""

    def __init__(self, options, folder, images):
        self.options, self.folder, self.images, self.started = options, folder, images, 0
        self.servers = []
        self.programs = {}
        for name in ("decode", "thumbnail"):
            self.programs[name] = compile_c(f"codec/{name}.c", folder / name, "-ljpeg", "-lpng", "-lz")

    def service(self):
        self.started += 1
        return Service(self.options.service.resolve(), self.folder / f"service-{self.started}")

    def server(self, make, *arguments):
        self.servers.append(make(*arguments))
        return self.servers[-1]

    def alone(self, program, kind):
        count = max(1, self.images.counts[kind] // CORES)
        output = subprocess.run(
            [self.programs[program], self.images.files(kind)[0], str(count), str(CORES)],
            check=True, capture_output=True, text=True).stdout
        rate, milliseconds = re.search(r"([\d.]+) \w+/s, ([\d.]+) CPU ms", output).groups()
        return Rate(float(rate), 1000 / float(milliseconds))

    def jobs(self, kind, variants=()):
        """Jobs from the first submission to the end of the last one."""
        service = self.service()
        try:
            return measures.jobs(service, self.images.urls(kind), seconds=600, variants=list(variants))
        finally:
            service.stop()

    def demand(self, kind):
        """Thumbnails of stored images, each requested once."""
        service = self.service()
        try:
            batches = batches_of(100, self.images.urls(kind))
            service.wait_until_idle(service.submit(batches), 600)
            page = service.request("GET", "/jobs?phase=success&limit=500")["jobs"]
            paths = [f"/jobs/{job['id']}/image?{QUERY}" for job in page]
            return gets(service.port, paths, service.process.pid)
        finally:
            service.stop()

    def stored(self, server, kind):
        """The same with thumbor, which stores originals after the first request."""
        server.rate(self.images.urls(kind))
        return server.rate(self.images.urls(kind))


def lines(sides, options, images):
    """Yields the lines of the table: the part, its title and its sides, imagefetch first."""
    def jobs(kind, variants=()):
        return lambda: sides.jobs(kind, variants)

    def alone(program, kind):
        return lambda: sides.alone(program, kind)

    proofs = {
        kind: {"imagefetch": jobs(kind), "decoder alone": alone("decode", kind)}
        for kind in ("jpeg", "progressive", "png")}
    for kind, made in proofs.items():
        if kind in images.counts:
            yield "proof", f"{kind}, proved", made
    makers = {}
    if {"thumbs", "demand"} & set(options.only):
        makers["nginx image filter"] = sides.server(image_filter, sides.folder, images.origin.port)
        if options.thumbor:
            makers["thumbor"] = sides.server(thumbor, options.thumbor.absolute(), sides.folder, False)
    for kind in ("jpeg", "png", "huge") if "thumbs" in options.only else ():
        made = {"imagefetch": jobs(kind, [THUMB])}
        if kind != "png":
            made["floor"] = alone("thumbnail", kind)
        for name, maker in makers.items():
            made[name] = lambda maker=maker, kind=kind: maker.rate(images.urls(kind))
        made["Python pool"] = lambda kind=kind: peers.pool_jobs(
            options.python.absolute(), images.urls(kind), sides.folder, side=SIDE)
        made["vipsthumbnail, files"] = lambda kind=kind: vips(images.files(kind), sides.folder)
        yield "thumbs", f"{kind}, fetch and make a thumbnail", made
    if "sizes" in options.only:
        yield "sizes", "jpeg, three sizes of each", {
            "imagefetch": jobs("jpeg", SRCSET), "the largest alone": jobs("jpeg", [THUMB])}
    if "demand" in options.only:
        made = {"imagefetch": lambda: sides.demand("jpeg")}
        if options.thumbor:
            stored = sides.server(thumbor, options.thumbor.absolute(), sides.folder, True)
            made["thumbor, stored"] = lambda: sides.stored(stored, "jpeg")
        made["vipsthumbnail, files"] = lambda: vips(images.files("jpeg"), sides.folder)
        yield "demand", "jpeg, kept, a thumbnail on demand", made


def measure(made, rounds):
    """Measures the sides alternately and prints their medians."""
    rates = {side: [] for side in made}
    for turn in range(rounds):
        order = list(made)[turn % len(made):] + list(made)[:turn % len(made)]
        for side in order:
            rates[side].append(made[side]())
    return {
        side: Rate(*(statistics.median(getattr(rate, unit) for rate in all) for unit in ("wall", "cpu")))
        for side, all in rates.items()}


def print_line(title, rates):
    print(f"{title:<44} {'a second':>9} {'CPU ms':>8} {'ours':>6}")
    ours = rates["imagefetch"]
    for side, rate in rates.items():
        print(f"  {side:<42} {rate.wall:>9.1f} {1000 / rate.cpu:>8.2f} {ours.wall / rate.wall:>6.2f}",
              flush=True)


PARTS = {
    "proof": ("jpeg", "progressive", "png"), "thumbs": ("jpeg", "png", "huge"), "sizes": ("jpeg",),
    "demand": ("jpeg",), "last": ()}


def parts_of(text):
    parts = text.split(",")
    if set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"the parts are {', '.join(PARTS)}")
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--service", type=pathlib.Path, required=True)
    parser.add_argument("--python", type=pathlib.Path, required=True)
    parser.add_argument("--thumbor", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=200, help="2-megapixel JPEGs per round")
    parser.add_argument("--only", type=parts_of, default=list(PARTS), metavar="PART,…",
                        help=f"parts to run, of {', '.join(PARTS)}")
    parser.add_argument("--limit", type=int, default=1800, help="maximum seconds")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"not done after {options.limit} s"))
    signal.alarm(options.limit)
    kinds = {kind for part in options.only for kind in PARTS[part]}
    print(f"{CORES} cores; medians of {options.rounds} rounds")
    with tempfile.TemporaryDirectory(
            prefix="imagefetch-thumbnails-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        images = Images(folder, options.count, sorted(kinds))
        sides = Sides(options, folder, images)
        try:
            for part, title, made in lines(sides, options, images):
                if part in options.only:
                    print_line(title, measure(made, options.rounds))
            if "last" in options.only:
                print("last byte to success, median ms")
                for title, milliseconds in delays(sides.service, options.rounds * 5):
                    print(f"  {title:<42} {milliseconds:>9.1f}", flush=True)
        finally:
            for server in (*sides.servers, images.origin):
                server.stop()


if __name__ == "__main__":
    main()
