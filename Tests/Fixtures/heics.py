"""Makes the HEIC images in images/, with heif-enc and the boxes of heif.py."""
import pathlib
import subprocess
import tempfile

from PIL import Image

import heif

FOLDER = pathlib.Path(__file__).parent / "images"
# As decoded by libheif.
SHOWN = pathlib.Path(__file__).parent / "shown"


def write(name, data, width, height, orientation=1, has_alpha=False, frames=1):
    """The facts of an image, given by hand because Pillow can't read it."""
    (FOLDER / name).write_bytes(data)
    SHOWN.mkdir(exist_ok=True)
    # libheif does not read sequences.
    subprocess.run(["heif-convert", FOLDER / name, SHOWN / f"{name}.png"], stdout=subprocess.DEVNULL)
    expected = {"format": "heic", "width": width, "height": height, "orientation": orientation}
    return {name: expected | {"progressive": False, "has_alpha": has_alpha, "frames": frames}}


def encoded(name, image, *options, source=None, **expected):
    with tempfile.TemporaryDirectory() as folder:
        source = source or f"{folder}/source.png"
        if image:
            image.save(source)
        command = ["heif-enc", *options, "-o", f"{folder}/out.heic", source]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        data = pathlib.Path(f"{folder}/out.heic").read_bytes()
        with Image.open(source) as image:
            return write(name, data, image.width, image.height, **expected)


def single(image, *properties, options=("-q", "60")):
    """One coded image in its own file."""
    setup, data = heif.coded(image, *options)
    file = heif.HEIC()
    file.add(b"hvc1", data, heif.hvcc(setup), heif.ispe(*image.size), *properties)
    return file


def tiled(image, side, width, height, *properties):
    """Like an iPhone's file: tiles that extend beyond the image's edges, one configuration for all, a thumbnail, Exif."""
    across, down = -(-width // side), -(-height // side)
    whole = Image.new("RGB", (across * side, down * side))
    whole.paste(image, (0, 0))
    file, tiles = heif.HEIC(), []
    file.add(b"grid", heif.grid(across, down, width, height), heif.ispe(width, height), *properties)
    for row in range(down):
        for column in range(across):
            tile = whole.crop((column * side, row * side, (column + 1) * side, (row + 1) * side))
            setup, data = heif.coded(tile, "-q", "60")
            tiles.append(file.add(b"hvc1", data, heif.hvcc(setup), heif.ispe(side, side)))
    file.refer(b"dimg", 1, *tiles)
    small = image.resize((96, 72))
    setup, data = heif.coded(small, "-q", "50")
    file.refer(b"thmb", file.add(b"hvc1", data, heif.hvcc(setup), heif.ispe(96, 72), *properties), 1)
    # This orientation has no effect, because irot has precedence.
    exif = bytes(4) + b"MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"
    file.refer(b"cdsc", file.add(b"Exif", exif), 1)
    return file


def thumbnailed(photo):
    """The small image is first in the file."""
    setup, small = heif.coded(photo(192, 144).resize((96, 72)), "-q", "50")
    file = single(photo(192, 144), heif.irot(3))
    thumbnail = file.add(b"hvc1", small, heif.hvcc(setup), heif.ispe(96, 72), heif.irot(3))
    file.refer(b"thmb", thumbnail, 1)
    file.is_reversed = True
    return file


def with_alpha(image, alpha, is_premultiplied=False):
    file = single(image)
    setup, data = heif.coded(alpha, "-q", "80")
    item = file.add(b"hvc1", data, heif.hvcc(setup), heif.ispe(*alpha.size), heif.ALPHA)
    file.refer(b"auxl", item, 1)
    if is_premultiplied:
        file.refer(b"prem", 1, item)
    return file


def sequence(images, has_item):
    """A track of frames that are complete images. The first one is also an item."""
    width, height = images[0].size
    frames = [heif.coded(image, "-q", "50") for image in images]
    setup, sizes = frames[0][0], [len(data) for _, data in frames]
    file = heif.HEIC((b"hevc", b"msf1", b"hevc") + ((b"heic", b"mif1") if has_item else ()))
    data = b"".join(data for _, data in frames)
    if has_item:
        file.add(b"hvc1", data[:sizes[0]], heif.hvcc(setup), heif.ispe(width, height))
    start = 0
    for _ in range(2):
        file.movie = heif.movie(setup, width, height, sizes, start)
        whole = file.bytes()
        start = len(whole) - (sizes[0] if has_item else 0)
    return whole[:start - 8] + heif.box(b"mdat", data)


def make(photo, blinking, wide_profile):
    # The encoder pads smaller images.
    small, grey = photo(72, 64), photo(72, 64, seed=2).convert("L")
    with tempfile.TemporaryDirectory() as folder:
        wide = f"{folder}/deep.png"
        sixteen(small, wide)
        expected = encoded("deep.heic", None, "-q", "70", "-b", "10", source=wide)
    expected |= encoded("small.heic", photo(24, 16), "-q", "60")
    expected |= encoded("odd.heic", photo(67, 45), "-q", "60")
    expected |= encoded("lossless.heic", small, "-L", "-p", "chroma=444", "--matrix_coefficients=0")
    expected |= encoded("half-chroma.heic", small, "-q", "80", "-p", "chroma=422")
    expected |= encoded("grey.heic", grey, "-q", "60")
    clear = small.convert("RGBA")
    clear.putalpha(grey)
    expected |= encoded("alpha.heic", clear, "-q", "60", has_alpha=True)
    expected |= write("premultiplied.heic", with_alpha(small, grey, True).bytes(), 72, 64, has_alpha=True)
    expected |= write("wide.heic", single(small, heif.icc(wide_profile())).bytes(), 72, 64)
    expected |= write("bt709.heic", single(small, heif.nclx(1, 0)).bytes(), 72, 64)
    expected |= write("clap.heic", single(small, heif.clap(40, 30, (-3, 1), (5, 1))).bytes(), 40, 30)
    rotations = {2: (0, 1), 3: (2, None), 4: (0, 0), 5: (3, 1), 6: (3, None), 7: (3, 0), 8: (1, None)}
    for orientation, (angle, axis) in rotations.items():
        properties = ([heif.irot(angle)] if angle else []) + ([heif.imir(axis)] if axis is not None else [])
        name = f"turned-{orientation}.heic"
        expected |= write(name, single(small, *properties).bytes(), 72, 64, orientation=orientation)
    cropped = heif.clap(40, 32), heif.irot(3), heif.imir(1)
    expected |= write("all.heic", single(small, *cropped).bytes(), 40, 32, orientation=5)
    mirrored = heif.imir(1), heif.irot(1)
    expected |= write("mirrored-first.heic", single(small, *mirrored).bytes(), 72, 64, orientation=5)
    large = tiled(photo(125, 93).resize((500, 370)), 64, 500, 370, heif.irot(3))
    expected |= write("grid.heic", large.bytes(), 500, 370, orientation=6)
    expected |= write("thumbnail.heic", thumbnailed(photo).bytes(), 192, 144, orientation=6)
    frames = [photo(72, 64, seed) for seed in range(5)]
    expected |= write("sequence.heic", sequence(frames, True), 72, 64, frames=5)
    expected |= write("track.heic", sequence(frames, False), 72, 64, frames=5)
    return expected


def sixteen(image, name):
    """A PNG with 16 bits per channel."""
    import struct
    import zlib

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(
        b"\0" + b"".join(bytes([v, v]) for v in image.crop((0, y, image.width, y + 1)).tobytes())
        for y in range(image.height)
    )
    head = struct.pack(">IIBBBBB", *image.size, 16, 2, 0, 0, 0)
    pathlib.Path(name).write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
