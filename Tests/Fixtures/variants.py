#!/usr/bin/env python3
"""Compares variants with those that Pillow makes.

variants.py sources FOLDER   writes images of many kinds to render
variants.py judge CASES      reads a JSON array of cases, writes an array of verdicts
"""
import io
import json
import math
import pathlib
import struct
import sys
import zlib

from PIL import Image, ImageChops, ImageCms, ImageDraw, ImageOps, ImageStat

FIXTURES = pathlib.Path(__file__).parent / "images"
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2))


def png(width, height, depth, kind, interlaced, data, before=b""):
    def chunk(name, content):
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before
            + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def interlaced_png(image):
    """Writes an interlaced PNG, because Pillow reads Adam7 but does not write it."""
    data = b""
    for x, y, across, down in ADAM7:
        for row in range(y, image.height, down):
            pixels = [image.getpixel((column, row)) for column in range(x, image.width, across)]
            if pixels:
                data += b"\0" + b"".join(bytes(pixel) for pixel in pixels)
    return png(image.width, image.height, 8, 6 if image.mode == "RGBA" else 2, 1, data)


def rgb16_png(image):
    data = b""
    for row in range(image.height):
        data += b"\0"
        for column in range(image.width):
            data += struct.pack(">HHH", *(value * 257 for value in image.getpixel((column, row))))
    return png(image.width, image.height, 16, 2, 0, data)


def profile(space, kind, connection, tags):
    """An ICC profile (ICC.1, 7) with these tags."""
    offset, table, content = 128 + 4 + 12 * len(tags), struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        table += name + struct.pack(">II", offset + len(content), len(data))
        content += data + bytes(-len(data) % 4)
    head = struct.pack(">I4sI4s4s4s12x4s", offset + len(content), b"test", 0x02400000, kind, space,
                       connection, b"acsp")
    head = head.ljust(68, b"\0") + struct.pack(">iii", 63190, 65536, 54061)
    return head.ljust(128, b"\0") + table + content


def wide_profile():
    """Display P3's primaries with a gamma of 2.2."""
    def colour(*xyz):
        return struct.pack(">4s4xiii", b"XYZ ", *(round(65536 * value) for value in xyz))

    curve = struct.pack(">4s4xIH", b"curv", 1, round(2.2 * 256))
    return profile(b"RGB ", b"mntr", b"XYZ ", {
        b"rXYZ": colour(0.51512, 0.24120, -0.00105), b"gXYZ": colour(0.29198, 0.69225, 0.04189),
        b"bXYZ": colour(0.15710, 0.06657, 0.78407), b"rTRC": curve, b"gTRC": curve, b"bTRC": curve,
        b"wtpt": colour(0.9642, 1, 0.8249)})


def grey_profile():
    """Grey with a gamma of 1.4."""
    curve = struct.pack(">4s4xIH", b"curv", 1, round(1.4 * 256))
    white = struct.pack(">4s4xiii", b"XYZ ", 63190, 65536, 54061)
    return profile(b"GRAY", b"mntr", b"XYZ ", {b"kTRC": curve, b"wtpt": white})


def ink_profile():
    """A CMYK profile unlike the naive conversion: a table from the 16 corners to L*a*b*."""
    corners = b""
    for corner in range(16):
        cyan, magenta, yellow, black = (corner >> bit & 1 for bit in (3, 2, 1, 0))
        light = 245 - 70 * cyan - 90 * magenta - 15 * yellow
        corners += bytes((max(light, 20) // (4 if black else 1),
                          128 + (0 if black else 60 * magenta - 35 * cyan),
                          128 + (0 if black else 70 * yellow - 40 * cyan - 10 * magenta)))
    straight = bytes(range(256))
    unit = struct.pack(">9i", 65536, 0, 0, 0, 65536, 0, 0, 0, 65536)
    table = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + unit + 4 * straight + corners + 3 * straight
    return profile(b"CMYK", b"prtr", b"Lab ", {b"A2B0": table})


def write_sources(folder):
    photo = Image.open(FIXTURES / "photo.png").convert("RGB")
    large = photo.resize((1003, 757), Image.BICUBIC)
    large.save(folder / "large.jpg", quality=92)
    large.save(folder / "large-progressive.jpg", quality=92, progressive=True)
    large.convert("L").save(folder / "large-grey.jpg", quality=92)
    large.save(folder / "large.png")
    disc = Image.new("RGBA", (300, 200), (0, 255, 0, 0))  # a bright green that must not be visible
    draw = ImageDraw.Draw(disc)
    draw.ellipse((20, 20, 180, 180), fill=(200, 30, 60, 255))
    draw.rectangle((150, 60, 280, 150), fill=(30, 60, 200, 128))
    disc.save(folder / "alpha.png")
    (folder / "interlaced.png").write_bytes(interlaced_png(photo))
    (folder / "interlaced-alpha.png").write_bytes(interlaced_png(disc))
    (folder / "rgb16.png").write_bytes(rgb16_png(photo.resize((61, 47))))
    photo.save(folder / "wide.png", icc_profile=wide_profile())
    photo.save(folder / "wide.jpg", icc_profile=wide_profile(), quality=95)
    disc.save(folder / "wide-alpha.png", icc_profile=wide_profile())
    photo.convert("L").save(folder / "grey-gamma.png", icc_profile=grey_profile())
    photo.convert("L").save(folder / "grey-wide.png", icc_profile=wide_profile())
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    photo.save(folder / "srgb.png", icc_profile=srgb)
    photo.save(folder / "broken-profile.png", icc_profile=wide_profile()[:200] + bytes(80))
    inks = large.convert("CMYK").resize((400, 300))
    inks.save(folder / "inks.jpg", quality=95)
    inks.save(folder / "inks-profile.jpg", quality=95, icc_profile=ink_profile())
    exif = Image.Exif()
    for orientation in range(1, 9):
        exif[0x0112] = orientation
        photo.resize((83, 59)).save(folder / f"turned-{orientation}.png", exif=exif)
        large.save(folder / f"turned-{orientation}.jpg", exif=exif, quality=92)
    photo.crop((7, 9, 8, 10)).save(folder / "dot.png")
    photo.resize((30000, 1)).save(folder / "line.png")
    photo.resize((1, 30000)).save(folder / "column.png")
    photo.resize((30000, 1)).save(folder / "line.jpg", quality=95)


def in_srgb(image, data):
    """Converts to sRGB with the profile, if it fits the image's color space."""
    modes = {b"RGB ": ("RGB", "RGBA"), b"GRAY": ("L",), b"CMYK": ("CMYK",)}
    if not data or image.mode not in modes.get(data[16:20], ()):
        return image.convert("RGB") if image.mode == "CMYK" else image
    alpha = image.getchannel("A") if image.mode == "RGBA" else None
    if alpha:
        image = image.convert("RGB")
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(data))
        image = ImageCms.profileToProfile(
            image, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError):
        pass
    if alpha:
        image.putalpha(alpha)
    return image


def eight_bits(image):
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda value: value * (1 / 257) + 0.5).convert("L")
    if image.mode in ("P", "LA") or "transparency" in image.info:
        transparent = image.mode == "LA" or "transparency" in image.info
        return image.convert("RGBA" if transparent else "RGB")
    return image.convert("L") if image.mode == "1" else image


def reference(case):
    """Makes the variant with Pillow."""
    image = Image.open(case["source"])
    data = image.info.get("icc_profile")
    image = ImageOps.exif_transpose(eight_bits(image))
    image = in_srgb(image, data)
    size = (case["width"], case["height"])
    box = case.get("box") or (0, 0, *image.size)
    if size == image.size and box == (0, 0, *size):
        pass
    elif image.mode == "RGBA":
        image = image.convert("RGBa").resize(size, Image.LANCZOS, box).convert("RGBA")
    else:
        image = image.resize(size, Image.LANCZOS, box)
    background = case.get("background")
    if background and image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", size, tuple(background) + (255,)), image)
    return image.convert("RGBA")


def noise_ratio(one, other):
    """The signal-to-noise ratio in decibels; 99 if the images are equal."""
    squares = ImageStat.Stat(ImageChops.difference(one, other)).rms
    mean = sum(value * value for value in squares) / len(squares)
    return 99 if mean == 0 else min(99, 10 * math.log10(255 * 255 / mean))


def on(colour, image):
    return Image.alpha_composite(Image.new("RGBA", image.size, colour), image).convert("RGB")


def judge(case):
    with Image.open(case["variant"]) as variant:
        variant.load()
        verdict = {
            "format": variant.format.lower(), "mode": variant.mode, "width": variant.width,
            "height": variant.height,
            "metadata": sorted(set(variant.info) & {"exif", "icc_profile", "comment", "gamma"}),
            "psnr": 0,
        }
        if (variant.width, variant.height) == (case["width"], case["height"]):
            expected, seen = reference(case), variant.convert("RGBA")
            # Compare on black and on white, where fringes are visible. Invisible pixels have no influence.
            verdict["psnr"] = min(noise_ratio(on(colour, expected), on(colour, seen))
                                  for colour in ("black", "white"))
            verdict["alpha"] = noise_ratio(expected.getchannel("A"), seen.getchannel("A"))
            verdict["centre"] = seen.getpixel((seen.width // 2, seen.height // 2))
        return verdict


def main():
    if sys.argv[1] == "sources":
        write_sources(pathlib.Path(sys.argv[2]))
    else:
        cases = json.loads(pathlib.Path(sys.argv[2]).read_text())
        print(json.dumps([judge(case) for case in cases]))


if __name__ == "__main__":
    main()
