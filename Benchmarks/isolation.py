#!/usr/bin/env python3
"""Measures the cost of decoder processes, compared with decoding in the service: both run the same jobs alternately.

Photos of 2 megapixels, images of 10 kB, and photos with a thumbnail. Prints the ratios of the medians, by the clock and by the
CPU time of all processes of a side. Memory is measured at the end, when the decoders are warm.

    make bench-isolation
"""

import argparse
import pathlib
import statistics
import tempfile

import measures
from origin import Nginx
from images import photograph, write_distinct
from service import Service
from thumbnails import THUMB

LARGE, SMALL = 400, 6_000
SIDES = ("process", "none")


def rates(service, origin):
    """Yields each kind of job. The URLs differ, because earlier images are in the cache."""
    large, small = ([origin.url(f"{size}/{number}.jpg") for number in range(count)]
                    for size, count in (("large", LARGE), ("small", SMALL)))
    yield "2-megapixel JPEGs", measures.jobs(service, large)
    yield "10 kB JPEGs", measures.jobs(service, small, LARGE)
    thumbnails = [f"{url}?thumb" for url in large]
    yield "thumbnails", measures.jobs(service, thumbnails, LARGE + SMALL, variants=[THUMB])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures, memory = {}, {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_distinct(photograph(1600, 1250, 85), folder / "images/large", LARGE)
        write_distinct(photograph(256, 192, 85), folder / "images/small", SMALL)
        origin = Nginx(folder)
        try:
            for turn in range(options.rounds):
                for side in SIDES if turn % 2 == 0 else reversed(SIDES):
                    service = Service(
                        options.service.resolve(), folder / f"service-{turn}-{side}",
                        environment={"IMAGEFETCH_DECODE_ISOLATION": side})
                    try:
                        for kind, rate in rates(service, origin):
                            figures.setdefault((kind, side), []).append(rate)
                        memory[side].append(measures.settled_bytes(service) / (1 << 20))
                    finally:
                        service.stop()
        finally:
            origin.stop()
    print(f"{measures.CORES} cores; medians of {options.rounds} rounds")
    print(f"{'':<34} {'process':>9} {'none':>9} {'ratio':>6}")
    for kind in dict.fromkeys(kind for kind, _ in figures):
        for unit, title in (("wall", f"{kind}, /s"), ("cpu", "  per CPU second")):
            print_row(title, *(statistics.median(getattr(rate, unit) for rate in figures[kind, side]) for side in SIDES))
    print_row("memory, MiB", *(statistics.median(memory[side]) for side in SIDES))


def print_row(title, ours, reference):
    print(f"{title:<34} {ours:>9,.1f} {reference:>9,.1f} {ours / reference:>6.2f}")


if __name__ == "__main__":
    main()
