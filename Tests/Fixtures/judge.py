#!/usr/bin/env python3
"""Compares the results of other decoders with ours.

    judge.py CASES      reads a JSON array of cases, writes an array of verdicts in the same order

A case is a file's path and, if we have decoded it, its format, its orientation and our pixels as a PNG. The reference is
Pillow, which has its own readers of PNG, GIF and ICO, and the library's own tool for AVIF, HEIC and JPEG XL.
Each file has a time limit. If a file ends the process, only that file is affected.
"""
import concurrent.futures
import functools
import io
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import warnings

import png
from PIL import Image, ImageChops, ImageOps

import variants

SECONDS = 30
PROCESSES = 2
MAX_PIXELS = 50_000_000
# avifdec does not apply rotation and mirroring.
TRANSPOSES = {2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
         5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
         8: Image.Transpose.ROTATE_90}


class Refused(Exception):
    """Why the reference refuses a file."""


def kind_of(head):
    if head[:2] == b"\xff\x0a" or head[4:8] == b"JXL ":
        return "jxl"
    if head[4:8] == b"ftyp":
        return "avif" if b"avif" in head[8:32] or b"avis" in head[8:32] else "heic"
    return "pillow"


def stop(*_):
    raise TimeoutError(f"nothing after {SECONDS} seconds")


def by_tool(path, *command):
    """Decodes a file with the tool. For HEIC it returns all images, without saying which is the primary one."""
    with tempfile.TemporaryDirectory() as folder:
        shown = pathlib.Path(folder) / "shown.png"
        words = [word if word != "OUT" else str(shown) for word in command]
        done = subprocess.run([word if word != "IN" else str(path) for word in words], capture_output=True,
                              timeout=SECONDS - 1, check=False)
        files = sorted(pathlib.Path(folder).glob("shown*.png"))
        if done.returncode != 0 or not files:
            message = (done.stderr + done.stdout).decode(errors="replace").strip().splitlines()
            raise Refused(message[-1] if message else f"exit {done.returncode}")
        return [file.read_bytes() for file in files]


def exact_png(data):
    """RGBA of a PNG that Pillow does not round to 8 bits correctly, or whose transparent grey it ignores; otherwise None."""
    reader = png.Reader(bytes=data)
    reader.preamble()
    if reader.color_type == 3 or reader.bitdepth != 16 and (reader.trns is None or reader.color_type):
        return None
    width, height, rows, facts = reader.read()
    most, planes, hidden = 2 ** facts["bitdepth"] - 1, facts["planes"], facts.get("transparent")
    if hidden is not None:
        # Only the lowest bits of a value count, according to the depth.
        hidden = tuple(value & most for value in (hidden if isinstance(hidden, tuple) else (hidden,)))
    samples = bytearray()
    for row in rows:
        for start in range(0, width * planes, planes):
            pixel = tuple(row[start:start + planes])
            colours = pixel if planes % 2 else pixel[:-1]
            alpha = 0 if colours == hidden else most if planes % 2 else pixel[-1]
            for value in (*(colours if len(colours) == 3 else colours * 3), alpha):
                samples.append((value * 255 + most // 2) // most)
    return Image.frombytes("RGBA", (width, height), bytes(samples))


def in_srgb(image, profile):
    if not profile or profile[16:20] != b"GRAY" or image.mode not in ("L", "LA", "RGBA"):
        return variants.in_srgb(image, profile)
    grey = variants.in_srgb(image.getchannel(0), profile)
    if image.mode != "L":
        grey.putalpha(image.getchannel("A"))
    return grey


def opened(data, is_upright=False):
    """The first image decoded by Pillow, upright and in sRGB."""
    image = Image.open(io.BytesIO(data))
    if image.format not in ("PNG", "JPEG", "MPO", "WEBP", "GIF", "ICO"):
        raise Refused(f"{image.format} is not looked at")
    if image.width * image.height > MAX_PIXELS:
        raise Refused("over our limit of pixels")
    profile = image.info.get("icc_profile")
    image.load()
    transpose = image.getexif().get(0x112, 1)
    if image.format == "PNG":
        try:
            image = exact_png(data) or image
        except png.Error:
            pass
    if not (profile and image.mode == "LA"):
        image = variants.eight_bits(image)
    image = in_srgb(image, profile)
    return image if is_upright or transpose not in TRANSPOSES else image.transpose(TRANSPOSES[transpose])


def references(case):
    """Images of which one must match ours."""
    path = case["file"]
    data = pathlib.Path(path).read_bytes()
    kind = kind_of(data[:32])
    if kind == "avif":
        transpose = TRANSPOSES.get(case.get("orientation", 1))
        images = [opened(shown, True) for shown in by_tool(path, "avifdec", "--depth", "8", "IN", "OUT")]
        return [image.transpose(transpose) if transpose is not None else image for image in images]
    if kind == "heic":
        return [opened(shown, True) for shown in by_tool(path, "heif-convert", "--quiet", "IN", "OUT")]
    if kind == "jxl":
        return [opened(shown, True) for shown in by_tool(path, "djxl", "IN", "OUT")]
    return [opened(data)]


def visible(image):
    image = image.convert("RGBA")
    return Image.composite(image, Image.new("RGBA", image.size, (0, 0, 0, 0)),
                           image.getchannel("A").point(lambda alpha: 255 if alpha else 0))


def compared(expected, ours):
    if expected.size != ours.size:
        return {"sides": [*expected.size, *ours.size]}
    difference = ImageChops.difference(visible(expected), visible(ours))
    bands = difference.split()
    most = functools.reduce(ImageChops.lighter, bands).histogram()
    pixels = ours.width * ours.height
    worst = max(value for value, count in enumerate(most) if count)
    mean = sum(value * count for value, count in enumerate(most)) / pixels
    return {"worst": worst, "mean": round(mean, 3)}


def verdict(case):
    signal.alarm(SECONDS)
    try:
        expected = references(case)
        if not case.get("ours"):
            return {"accepts": True, "message": f"{expected[0].width} x {expected[0].height}"}
        with Image.open(case["ours"]) as ours:
            found = [compared(image, ours) for image in expected]
        return {"accepts": True, **min(found, key=lambda one: one.get("mean", 256))}
    except (TimeoutError, subprocess.TimeoutExpired):
        return {"accepts": False, "isLate": True, "message": f"nothing after {SECONDS} seconds"}
    except Refused as refusal:
        return {"accepts": False, "message": str(refusal)}
    except Exception as error:  # every exception of Pillow counts as a refusal
        return {"accepts": False, "message": f"{type(error).__name__}: {error}"[:200]}
    finally:
        signal.alarm(0)


def work(cases, results):
    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = None
    signal.signal(signal.SIGALRM, stop)
    os.close(2)
    for number, case in cases:
        results.send((number, verdict(case)))
    results.close()


def check_in_process(cases, verdicts):
    """Checks files in another process. If a file ends it, continues with the next one."""
    left = list(cases)
    while left:
        results, sender = multiprocessing.Pipe(False)
        process = multiprocessing.Process(target=work, args=(left, sender))
        process.start()
        sender.close()
        try:
            while True:
                number, result = results.recv()
                verdicts[number] = result
                left.pop(0)
        except EOFError:
            process.join()
        if left:
            verdicts[left.pop(0)[0]] = {"accepts": False, "message": f"ended by {process.exitcode}"}


def main():
    cases = list(enumerate(json.loads(pathlib.Path(sys.argv[1]).read_text())))
    verdicts = [None] * len(cases)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda lane: check_in_process(cases[lane::PROCESSES], verdicts), range(PROCESSES)))
    json.dump(verdicts, sys.stdout)


if __name__ == "__main__":
    main()
