#!/usr/bin/env python3
"""Reads a picture from standard input; writes what Pillow makes of it: a line of JSON, then its pixels as RGBA."""
import io
import json
import sys

from PIL import Image

image = Image.open(io.BytesIO(sys.stdin.buffer.read()))
image.load()
facts = {
    "format": image.format,
    "width": image.width,
    "height": image.height,
    "progressive": bool(image.info.get("progressive")),
    "orientation": image.getexif().get(0x112, 1),
}
if image.mode == "I":
    image = image.point(lambda value: value * (1 / 256) + 0).convert("L")
sys.stdout.write(json.dumps(facts) + "\n")
sys.stdout.flush()
sys.stdout.buffer.write(image.convert("RGBA").tobytes())
