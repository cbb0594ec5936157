"""The pictures that the origin serves: like photographs, always the same, no two files equal.

Equal bytes are kept once by the service, so each file carries a comment of its own; what there is
to decode stays the same.
"""

import io
import random

from PIL import Image


def photograph(width, height, quality):
    """A JPEG of soft shapes with some detail: about 1.5 bits a pixel at quality 85."""
    noise = random.Random(1)
    picture = None
    for cell, share in ((200, 1.0), (40, 0.5), (8, 0.25), (2, 0.24)):
        size = (max(2, width // cell), max(2, height // cell))
        layer = Image.frombytes("RGB", size, noise.randbytes(3 * size[0] * size[1]))
        layer = layer.resize((width, height), Image.BICUBIC)
        picture = layer if picture is None else Image.blend(picture, layer, share / 2)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


def write_distinct(jpeg, folder, count):
    """Writes `count` files 0.jpg, 1.jpg, …, each with its number in a comment segment."""
    folder.mkdir(parents=True)
    # SOI, then APP0 with its length: a comment has its place behind them.
    start = 4 + int.from_bytes(jpeg[4:6], "big")
    for number in range(count):
        comment = f"{number:08}".encode()
        segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
        (folder / f"{number}.jpg").write_bytes(jpeg[:start] + segment + jpeg[start:])
