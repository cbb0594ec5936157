#!/usr/bin/env python3
"""Counts the instructions of decoding and rendering, and fails if they have increased.

The count is the same on a busy machine and on an idle one, so that even a small regression is visible.
Another compiler or other libraries change the counts. Then record them again.

  swift build -c release --product RenderBenchmark
  python3 Benchmarks/instructions.py .build/release/RenderBenchmark            compares with instructions.json
  python3 Benchmarks/instructions.py .build/release/RenderBenchmark --record   writes it again
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
RECORD = HERE / "instructions.json"
IMAGES = HERE.parent / "Tests/Fixtures/images"
WORKS = ("proof", "ahead", "three", "render")
NAMES = ("photo.jpg", "photo-progressive.jpg", "photo.png")
FEW, MANY = 2, 12


def instructions(renderer, work, rounds, image):
    """The number of all instructions that the process executes, including its start."""
    with tempfile.NamedTemporaryFile() as out:
        result = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", renderer, work,
             str(rounds), image], capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", result.stderr)
    if result.returncode or not found:
        sys.exit(result.stderr)
    return int(found[1])


def count(renderer, work, name):
    few, many = (instructions(renderer, work, rounds, IMAGES / name) for rounds in (FEW, MANY))
    return (many - few) // (MANY - FEW)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("renderer", type=pathlib.Path)
    parser.add_argument("--record", action="store_true", help="write the counts to instructions.json")
    parser.add_argument(
        "--tolerance", type=float, default=3, help="allowed increase in percent")
    options = parser.parse_args()
    if not options.record and not RECORD.exists():
        sys.exit(f"{RECORD.name} does not exist. Create it with --record")
    with tempfile.TemporaryDirectory() as folder:
        # Strip the debug information, because Valgrind fails on it.
        renderer = pathlib.Path(folder) / options.renderer.name
        subprocess.run(["strip", "-o", renderer, options.renderer.resolve()], check=True)
        compare(renderer, options)


def compare(renderer, options):
    known = {} if options.record else json.loads(RECORD.read_text())
    counts, grown = {}, []
    for work in WORKS:
        for name in NAMES:
            key = f"{work} {name}"
            counts[key] = now = count(renderer, work, name)
            change = 100 * (now / known[key] - 1) if key in known else 0
            print(f"{key:<30} {now:>12,} {change:>+7.1f} %")
            if change > options.tolerance:
                grown.append(key)
    if options.record:
        RECORD.write_text(json.dumps(counts, indent=2) + "\n")
    elif grown:
        sys.exit(f"more instructions than before: {', '.join(grown)}")


if __name__ == "__main__":
    main()
