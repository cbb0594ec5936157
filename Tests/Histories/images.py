"""The images of the origin. The number in a URL decides the bytes, so every process knows which bytes are right."""

import hashlib
import random
import struct
import zlib


def _chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _png(width, height, rows, level):
    """The parts of a PNG before and after the place of a comment."""
    head = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return head, _chunk(b"IDAT", zlib.compress(rows, level)) + _chunk(b"IEND", b"")


_SMALL = _png(8, 8, b"".join(b"\0" + bytes(range(24)) for _ in range(8)), 9)
_NOISE = random.Random(1)
# More than 64 KiB, so that it is stored as an object in the bucket and not with the job.
_BIG = _png(180, 150, b"".join(b"\0" + _NOISE.randbytes(540) for _ in range(150)), 0)


def image(path):
    """The bytes behind a path of the origin, `/KIND/NUMBER.png`."""
    head, tail = _BIG if path.startswith("/big/") else _SMALL
    return head + _chunk(b"tEXt", b"Comment\0" + path.encode()) + tail


def digest(path):
    """The first digits of the SHA-256 of `image(path)`, as histories contain it."""
    return shortened(image(path))


def shortened(content):
    return hashlib.sha256(content).hexdigest()[:16]
