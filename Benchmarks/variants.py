#!/usr/bin/env python3
"""Compares variants by the service's renderer with vipsthumbnail, for the same files, one after the other.

Both make thumbnails within 512 x 512 as JPEG of quality 80 or as PNG, with one thread per process.
vipsthumbnail reads and writes files (on tmpfs), the renderer works from memory. The start of a process is
subtracted by comparing few files with many.

  swift build -c release --product RenderBenchmark
  python3 Benchmarks/variants.py --renderer .build/release/RenderBenchmark
"""

import argparse
import io
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from PIL import Image

from images import photograph

FEW, MANY = 4, 24
ROUNDS = 20


def write_images(folder):
    large, middle = photograph(4000, 3000, 85), photograph(1600, 1250, 85)
    (folder / "12 MP.jpg").write_bytes(large)
    (folder / "2 MP.jpg").write_bytes(middle)
    with Image.open(io.BytesIO(middle)) as image:
        image.save(folder / "2 MP progressive.jpg", quality=85, progressive=True)
        image.save(folder / "2 MP.png")
        image.convert("RGBA").save(folder / "2 MP alpha.png")
    return sorted(folder.iterdir())


def times(command, **options):
    """Seconds on the clock and of CPU time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


def vips(image, ending, folder):
    copies = []
    for number in range(MANY):
        copies.append(folder / f"{number}{image.suffix}")
        shutil.copy(image, copies[-1])
    output = f"{folder}/%s-thumbnail.{ending}" + ("[Q=80,strip]" if ending == "jpg" else "[strip]")
    command = ["vipsthumbnail", "--size", "512x512", "--output", output]
    environment = {**os.environ, "VIPS_CONCURRENCY": "1"}
    few = times(command + copies[:FEW], env=environment)
    many = times(command + copies, env=environment)
    return [1e3 * (more - less) / (MANY - FEW) for more, less in zip(many, few)]


def ours(renderer, image, name):
    output = subprocess.run(
        [renderer, "512", "512", name, str(ROUNDS), "1", image], check=True,
        capture_output=True, text=True).stdout
    a_second, cpu = re.match(r"([\d.]+) variants/s, ([\d.]+) CPU ms", output).groups()
    return 1e3 / float(a_second), float(cpu)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--renderer", required=True)
    renderer = str(pathlib.Path(parser.parse_args().renderer).absolute())
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        (folder / "images").mkdir()
        (folder / "work").mkdir()
        images = write_images(folder / "images")
        print("| image | to | imagefetch ms (CPU) | vipsthumbnail ms (CPU) | ratio of CPU |")
        print("|---|---|---|---|---|")
        for image in images:
            for ending, format_name in (("jpg", "jpeg"), ("png", "png")):
                wall, cpu = ours(renderer, image, format_name)
                their_wall, their_cpu = vips(image, ending, folder / "work")
                print(f"| {image.name} | {format_name} | {wall:.1f} ({cpu:.1f}) "
                      f"| {their_wall:.1f} ({their_cpu:.1f}) | {their_cpu / cpu:.2f} |")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
