"""Makes pictures in TIFF, BMP and ICO, by Pillow and, where it can't, by numbers written here."""
import random
import struct

from PIL import Image

SHORT, LONG = 3, 4


def tiff(file, width, height, strips, tags, order="<", tile=None):
    """A TIFF of strips or tiles without codes, a directory behind them as most programs have it."""
    data, places = b"", []
    for strip in strips:
        places.append(8 + len(data))
        data += strip + b"\0" * (len(strip) % 2)
    units = {322: [tile], 323: [tile], 324: places, 325: [len(s) for s in strips]} if tile else {
        273: places, 278: [-(-height // len(strips))], 279: [len(s) for s in strips]}
    entries = {256: [width], 257: [height], 259: [1]} | units | tags
    at = 8 + len(data)
    behind = at + 2 + 12 * len(entries) + 4
    directory, values = struct.pack(order + "H", len(entries)), b""
    for tag, numbers in sorted(entries.items()):
        kind = LONG if tag in (256, 257, 273, 279, 324, 325) else SHORT
        packed = struct.pack(f"{order}{len(numbers)}{'I' if kind == LONG else 'H'}", *numbers)
        if len(packed) > 4:
            packed, values = struct.pack(order + "I", behind + len(values)), values + packed
        directory += struct.pack(order + "HHI", tag, kind, len(numbers)) + packed.ljust(4, b"\0")
    word = b"II*\0" if order == "<" else b"MM\0*"
    start = word + struct.pack(order + "I", at)
    file.write_bytes(start + data + directory + bytes(4) + values)


def deep(pixels, order):
    return struct.pack(f"{order}{len(pixels)}H", *(257 * value for value in pixels))


def make_tiffs(folder, small, clear):
    grey, tiny = small.convert("L"), small.resize((24, 16))
    width, height = tiny.size
    rgb = {258: [8] * 3, 262: [2], 277: [3]}
    small.save(folder / "plain.tiff")
    for name, code in {
        "lzw": "tiff_lzw", "deflate": "tiff_adobe_deflate", "packbits": "packbits", "jpeg": "jpeg",
    }.items():
        small.save(folder / f"{name}.tiff", compression=code)
    for name in ("group3", "group4"):
        small.convert("1").save(folder / f"{name}.tiff", compression=name)
    small.convert("1").save(folder / "mono.tiff")
    grey.save(folder / "grey.tiff")
    grey.convert("I").point(lambda v: v * 257).convert("I;16").save(folder / "grey16.tiff")
    small.quantize(64).save(folder / "palette.tiff", compression="tiff_lzw")
    small.convert("CMYK").save(folder / "cmyk.tiff")
    clear.save(folder / "alpha.tiff", compression="tiff_adobe_deflate")
    clear.convert("LA").save(folder / "grey-alpha.tiff")
    # The next ones Pillow reads, but for the last two, and writes none of.
    rows = [tiny.crop((0, top, width, top + 4)) for top in range(0, height, 4)]
    tiff(folder / "deep.tiff", width, height, [deep(row.tobytes(), ">") for row in rows],
         {258: [16] * 3, 262: [2], 277: [3]}, ">")
    tiff(folder / "separate.tiff", width, height, [band.tobytes() for band in tiny.split()],
         rgb | {278: [height], 284: [2]})
    tiles = [small.crop((x, y, x + 32, y + 32)) for y in range(0, 45, 32) for x in range(0, 67, 32)]
    tiff(folder / "tiled.tiff", *small.size, [tile.tobytes() for tile in tiles], rgb, tile=32)
    mixed = clear.resize((24, 16)).convert("RGBa")
    tiff(folder / "premultiplied.tiff", width, height, [mixed.tobytes()],
         {258: [8] * 4, 262: [2], 277: [4], 338: [1]})
    nibbles = bytes(random.Random(5).randbytes(12 * height))
    tiff(folder / "grey4.tiff", width, height, [nibbles], {258: [4], 262: [0], 277: [1]})
    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        small.resize((12, 9)).save(folder / f"turned-{orientation}.tiff", exif=exif)
    pages = [small.resize((24, 16)), small.resize((30, 20))]
    pages[0].save(folder / "pages.tiff", save_all=True, append_images=pages[1:])


def make_others(folder, small, clear):
    small.save(folder / "small.bmp")
    small.quantize(64).save(folder / "palette.bmp")
    small.convert("1").save(folder / "mono.bmp")
    icon = clear.resize((32, 32))
    icon.save(folder / "small.ico", sizes=[(16, 16), (32, 32)])
    icon.save(folder / "old.ico", sizes=[(16, 16), (32, 32)], bitmap_format="bmp")


def make(folder, photo):
    small = photo(67, 45)
    clear = small.convert("RGBA")
    clear.putalpha(small.convert("L"))
    make_tiffs(folder, small, clear)
    make_others(folder, small, clear)
