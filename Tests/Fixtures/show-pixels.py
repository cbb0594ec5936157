#!/usr/bin/env python3
"""Decodes images with Pillow. Writes for each a line of JSON, then its pixels as RGBA.

For an image that it can't decode, the line is null.

    show-pixels.py OUTPUT IMAGE...
"""
import json
import sys

from PIL import Image


def show(name, output):
    try:
        image = Image.open(name)
        image.load()
    except (OSError, SyntaxError):
        output.write(b"null\n")
        return
    facts = {
        "format": image.format,
        "width": image.width,
        "height": image.height,
        "progressive": bool(image.info.get("progressive")),
        "orientation": image.getexif().get(0x112, 1),
    }
    # 16 bits of grey, for which Pillow 11 has a separate mode.
    if image.mode in ("I", "I;16"):
        image = image.convert("I").point(lambda value: value * (1 / 256) + 0)
        image = image.convert("L")
    output.write(json.dumps(facts).encode() + b"\n")
    output.write(image.convert("RGBA").tobytes())


with open(sys.argv[1], "wb") as stream:
    for name in sys.argv[2:]:
        show(name, stream)
