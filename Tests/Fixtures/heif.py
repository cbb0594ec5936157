"""Writes HEIC files box by box from images coded by heif-enc: tiles, rotations, crops and sequences like those of cameras."""
import struct
import subprocess
import tempfile


def box(kind, *content):
    body = b"".join(content)
    return struct.pack(">I", 8 + len(body)) + kind + body


def full(kind, version, flags, *content):
    return box(kind, struct.pack(">I", version << 24 | flags), *content)


def boxes(data):
    """The boxes of a byte string by type; the last one of each type."""
    found, at = {}, 0
    while at + 8 <= len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        found[kind] = data[at + 8:at + size]
        at += size
    return found


def coded(image, *options):
    """The decoder configuration record and the coded bytes of an image of at least 64 x 64 pixels."""
    with tempfile.TemporaryDirectory() as folder:
        image.save(f"{folder}/source.png")
        command = ["heif-enc", "-o", f"{folder}/out.heic", *options, f"{folder}/source.png"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(f"{folder}/out.heic", "rb") as file:
            data = file.read()
    top = boxes(data)
    meta = boxes(top[b"meta"][4:])
    setup = boxes(boxes(meta[b"iprp"])[b"ipco"])[b"hvcC"]
    return setup, top[b"mdat"]


def ispe(width, height):
    return full(b"ispe", 0, 0, struct.pack(">II", width, height)), False


def hvcc(setup):
    return box(b"hvcC", setup), True


def irot(angle):
    return box(b"irot", bytes([angle])), True


def imir(axis):
    return box(b"imir", bytes([axis])), True


def clap(width, height, across=(0, 1), down=(0, 1)):
    values = (width, 1, height, 1, *across, *down)
    return box(b"clap", b"".join(struct.pack(">i", v) for v in values)), True


def auxc(kind):
    return full(b"auxC", 0, 0, kind.encode() + b"\0"), True


ALPHA = auxc("urn:mpeg:mpegB:cicp:systems:auxiliary:alpha")


def icc(profile):
    return box(b"colr", b"prof", profile), False


def nclx(matrix, is_full):
    return box(b"colr", b"nclx", struct.pack(">HHHB", 1, 13, matrix, is_full << 7)), False


def grid(columns, rows, width, height):
    return bytes([0, 0, rows - 1, columns - 1]) + struct.pack(">HH", width, height)


class HEIC:
    """Items are numbered from 1. The first one is the image."""

    def __init__(self, brands=(b"heic", b"mif1", b"heic")):
        self.brands, self.items, self.references, self.movie = brands, [], [], b""
        self.is_reversed = False  # the last item's bytes come first

    def add(self, kind, data, *properties):
        self.items.append((kind, data, properties))
        return len(self.items)

    def refer(self, kind, item, *others):
        ids = struct.pack(f">HH{len(others)}H", item, len(others), *others)
        self.references.append(box(kind, ids))

    def _meta(self, start):
        infos, places, shared, lists = [], [], [], []
        starts, at = {}, start
        for number, (_, data, _) in self._stored():
            starts[number], at = at, at + len(data)
        for number, (kind, data, properties) in enumerate(self.items, 1):
            infos.append(full(b"infe", 2, int(number > 1), struct.pack(">HH4s", number, 0, kind), b"\0"))
            places.append(struct.pack(">HHHII", number, 0, 1, starts[number], len(data)))
            indices = []
            for content, is_essential in properties:
                if content not in shared:
                    shared.append(content)
                indices.append(shared.index(content) + 1 | is_essential << 7)
            lists.append(struct.pack(">HB", number, len(indices)) + bytes(indices))
        parts = [full(b"hdlr", 0, 0, b"\0\0\0\0pict" + bytes(13)), full(b"pitm", 0, 0, struct.pack(">H", 1))]
        parts.append(full(b"iloc", 0, 0, b"\x44\0", struct.pack(">H", len(places)), *places))
        parts.append(full(b"iinf", 0, 0, struct.pack(">H", len(infos)), *infos))
        associations = full(b"ipma", 0, 0, struct.pack(">I", len(lists)), *lists)
        parts.append(box(b"iprp", box(b"ipco", *shared), associations))
        if self.references:
            parts.append(full(b"iref", 0, 0, *self.references))
        return full(b"meta", 0, 0, *parts)

    def _stored(self):
        numbered = list(enumerate(self.items, 1))
        return numbered[::-1] if self.is_reversed else numbered

    def bytes(self):
        head = box(b"ftyp", self.brands[0], b"\0\0\0\0", *self.brands[1:])
        size = len(self._meta(0)) if self.items else 0
        start = len(head) + size + len(self.movie) + 8
        meta = self._meta(start) if self.items else b""
        return head + meta + self.movie + box(b"mdat", *(data for _, (_, data, _) in self._stored()))


def movie(setup, width, height, sizes, start):
    """A track of images, all in one chunk at this offset."""
    entry = bytes(6) + b"\0\1" + bytes(16) + struct.pack(">HH", width, height) + bytes(50)
    tables = box(
        b"stbl",
        full(b"stsd", 0, 0, struct.pack(">I", 1), box(b"hvc1", entry, box(b"hvcC", setup))),
        full(b"stts", 0, 0, struct.pack(">III", 1, len(sizes), 1)),
        full(b"stsc", 0, 0, struct.pack(">IIII", 1, 1, len(sizes), 1)),
        full(b"stsz", 0, 0, struct.pack(">II", 0, len(sizes)), *(struct.pack(">I", s) for s in sizes)),
        full(b"stco", 0, 0, struct.pack(">II", 1, start)),
    )
    handler = full(b"hdlr", 0, 0, b"\0\0\0\0pict" + bytes(13))
    return box(b"moov", box(b"trak", box(b"mdia", handler, box(b"minf", tables))))
