#!/usr/bin/env python3
"""Makes the pictures in images/ and facts.json, which tells what Pillow knows of each.

Needs Pillow, and cjpeg and jpegtran of libjpeg-turbo. The results are committed: tests don't run this.
"""
import json
import pathlib
import random
import struct
import subprocess
import tempfile
import zlib

from PIL import Image, ImageFilter

FOLDER = pathlib.Path(__file__).parent / "images"


def photo(width, height, seed=1):
    """Smoothed noise over gradients: compresses about as a photograph does."""
    noise = Image.frombytes(
        "RGB", (width, height), random.Random(seed).randbytes(3 * width * height)
    )
    across = Image.linear_gradient("L").rotate(90).resize((width, height))
    down = Image.linear_gradient("L").resize((width, height))
    gradients = Image.merge("RGB", (across, down, Image.eval(across, lambda v: 255 - v)))
    soft = noise.filter(ImageFilter.GaussianBlur(2))
    return Image.blend(gradients, Image.eval(soft, lambda v: max(0, min(255, 4 * v - 384))), 0.4)


def run(*command):
    subprocess.run(command, check=True)


def path(name):
    return str(FOLDER / name)


def cjpeg(name, image, *options):
    with tempfile.NamedTemporaryFile(suffix=".ppm") as source:
        image.save(source.name)
        run("cjpeg", *options, "-outfile", path(name), source.name)


def jpegtran(name, source, *options, scans=None):
    with tempfile.NamedTemporaryFile("w") as script:
        if scans:
            script.write(scans)
            script.flush()
            options += ("-scans", script.name)
        run("jpegtran", *options, "-outfile", path(name), path(source))


def png_chunk(kind, content):
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def flat_png(name, width, height):
    """The most pixels for the fewest bytes, with the filter that costs most (Paeth)."""
    row = b"\x04" + bytes(4 * width)
    squeezed = zlib.compressobj(9)
    data = b"".join(squeezed.compress(row) for _ in range(height)) + squeezed.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    (FOLDER / name).write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", data)
        + png_chunk(b"IEND", b"")
    )


def make_jpegs():
    small, large = photo(67, 45), photo(480, 320)
    cjpeg("grey.jpg", small, "-grayscale")
    for name, factors in {
        "444": "1x1",
        "422": "2x1",
        "420": "2x2",
        "440": "1x2",
        "411": "4x1",
        "410": "4x2",
        "luma-small": "1x1,2x2,2x2",
    }.items():
        cjpeg(f"ycbcr-{name}.jpg", small, "-quality", "80", "-sample", factors)
    cjpeg("rgb.jpg", small, "-rgb")
    cjpeg("extended.jpg", small, "-quality", "1")
    cjpeg("photo.jpg", large, "-quality", "75")
    cjpeg("photo-progressive.jpg", large, "-quality", "75", "-progressive")
    cjpeg("tiny.jpg", photo(1, 1), "-quality", "50", "-grayscale")
    cjpeg("small.jpg", photo(24, 16), "-quality", "40", "-optimize")
    cjpeg("small-progressive.jpg", photo(24, 16), "-quality", "40", "-progressive")
    cjpeg("flat-progressive.jpg", Image.new("RGB", (2000, 2000), "grey"), "-grayscale")
    jpegtran("flat-progressive.jpg", "flat-progressive.jpg", scans="0: 0-0, 0, 0; 0: 1-63, 0, 0;")
    jpegtran("restart.jpg", "ycbcr-420.jpg", "-restart", "1B")
    jpegtran("progressive.jpg", "ycbcr-420.jpg", "-progressive")
    jpegtran("progressive-grey.jpg", "grey.jpg", "-progressive")
    jpegtran("progressive-restart.jpg", "ycbcr-422.jpg", "-progressive", "-restart", "1")
    jpegtran("scans.jpg", "ycbcr-420.jpg", scans="0; 1; 2;")
    jpegtran("arithmetic.jpg", "ycbcr-420.jpg", "-arithmetic")
    jpegtran("arithmetic-restart.jpg", "ycbcr-444.jpg", "-arithmetic", "-restart", "2B")
    jpegtran("arithmetic-progressive.jpg", "ycbcr-420.jpg", "-arithmetic", "-progressive")
    small.convert("CMYK").save(path("cmyk.jpg"), quality=80)
    small.convert("CMYK").save(path("cmyk-progressive.jpg"), quality=80, progressive=True)
    # YCCK is what the Adobe marker's last byte calls it: the samples' meaning, not their coding.
    data = bytearray((FOLDER / "cmyk.jpg").read_bytes())
    data[data.index(b"Adobe") + 11] = 2
    (FOLDER / "ycck.jpg").write_bytes(data)
    exif = Image.Exif()
    exif[0x010F], exif[0x0112], exif[0x0131] = "A camera", 6, "Its software"
    small.save(path("exif.jpg"), exif=exif, quality=70, comment=b"a comment")
    small.save(path("icc.jpg"), icc_profile=random.Random(2).randbytes(70_000), quality=70)


def make_pngs():
    small = photo(67, 45)
    grey = small.convert("L")
    small.convert("1").save(path("mono.png"))
    grey.save(path("grey.png"))
    Image.merge("LA", (grey, grey)).save(path("grey-alpha.png"))
    grey.convert("I").point(lambda v: v * 257).convert("I;16").save(path("grey16.png"))
    small.quantize(64).save(path("palette.png"))
    small.quantize(4).save(path("palette-2bit.png"), bits=2)
    small.quantize(64).save(path("palette-transparent.png"), transparency=3)
    small.save(path("rgb.png"))
    small.save(path("rgb-transparent.png"), transparency=(1, 2, 3))
    small.convert("RGBA").save(path("rgba.png"))
    photo(12, 9).save(path("small.png"))
    photo(160, 120).save(path("photo.png"))
    exif = Image.Exif()
    exif[0x0112] = 8
    grey.save(path("exif.png"), exif=exif, icc_profile=b"x" * 3000)
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "green", "blue")]
    frames[0].save(path("animated.png"), save_all=True, append_images=frames[1:], duration=100)
    flat_png("flat-paeth.png", 4000, 3000)


def facts(file):
    with Image.open(file) as image:
        alpha = image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info
        return {
            "format": image.format.lower(),
            "width": image.width,
            "height": image.height,
            "orientation": image.getexif().get(0x0112, 1),
            "progressive": bool(image.info.get("progressive") or image.info.get("interlace")),
            "has_alpha": alpha,
        }


def main():
    FOLDER.mkdir(exist_ok=True)
    make_jpegs()
    make_pngs()
    known = {file.name: facts(file) for file in sorted(FOLDER.glob("*.[jp][pn]g"))}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(known[name])}" for name in known)
    (FOLDER / "facts.json").write_text("{\n" + lines + "\n}\n")


main()
