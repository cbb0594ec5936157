"""The images that the origin serves: similar to photographs, always the same, no two files equal.

The service stores equal bytes once, so each file has a different comment. The pixels are the same
in every file.
"""

import io
import random
import zlib

from PIL import Image


def photograph(width, height, quality):
    """A JPEG of soft shapes with some detail: about 1.5 bits per pixel at quality 85."""
    noise = random.Random(1)
    image = None
    for cell, share in ((200, 1.0), (40, 0.5), (8, 0.25), (2, 0.24)):
        size = (max(2, width // cell), max(2, height // cell))
        layer = Image.frombytes("RGB", size, noise.randbytes(3 * size[0] * size[1]))
        layer = layer.resize((width, height), Image.BICUBIC)
        image = layer if image is None else Image.blend(image, layer, share / 2)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def progressive(jpeg):
    """The same image as a progressive JPEG with several scans."""
    return saved(jpeg, "JPEG", quality=85, progressive=True)


def png(jpeg):
    """The same image as a PNG."""
    return saved(jpeg, "PNG")


def saved(jpeg, kind, **options):
    with Image.open(io.BytesIO(jpeg)) as image:
        file = io.BytesIO()
        image.save(file, kind, **options)
        return file.getvalue()


def write_distinct(file, folder, count):
    """Writes `count` files 0.jpg, 1.jpg, … or 0.png, …, each with its number in a comment."""
    folder.mkdir(parents=True)
    is_png = file.startswith(b"\x89PNG")
    # The comment's offset: after a PNG's IHDR, or after a JPEG's SOI and APP0, which contains its length.
    start = 33 if is_png else 4 + int.from_bytes(file[4:6], "big")
    for number in range(count):
        comment = f"{number:08}".encode()
        if is_png:
            chunk = b"tEXtComment\0" + comment
            length, check = (len(chunk) - 4).to_bytes(4, "big"), zlib.crc32(chunk).to_bytes(4, "big")
            segment = length + chunk + check
        else:
            segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
        name = f"{number}.{'png' if is_png else 'jpg'}"
        (folder / name).write_bytes(file[:start] + segment + file[start:])
