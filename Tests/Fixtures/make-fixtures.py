#!/usr/bin/env python3
"""Makes the images in images/, and facts.json with Pillow's facts about each.

Needs Pillow, cjpeg and jpegtran of libjpeg-turbo, avifenc of libavif, cjxl of libjxl, and heif-enc of libheif. The results are committed: tests don't run this.
"""
import json
import pathlib
import random
import struct
import subprocess
import tempfile
import zlib

from PIL import Image, ImageFilter

import icons
import heics
from variants import grey_profile, wide_profile

FOLDER = pathlib.Path(__file__).parent / "images"


def photo(width, height, seed=1):
    """Smoothed noise over gradients, which compresses about as well as a photograph."""
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
    """Many pixels in few bytes, with the most expensive filter (Paeth)."""
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
    # Only the last byte of the Adobe marker makes it YCCK. The coding is the same.
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
    small.save(path("wide.png"), icc_profile=wide_profile())
    grey.save(path("grey-gamma.png"), icc_profile=grey_profile())


def moving(count):
    """Frames that differ in one part, so that encoders store only that part."""
    base = photo(40, 30)
    frames = [base.copy() for _ in range(count)]
    for index, frame in enumerate(frames[1:], 1):
        frame.paste(photo(12, 10, seed=index), (2 + 4 * index, 6))
    return frames


def blinking():
    """Frames that have nothing in common."""
    return [Image.new("RGB", (16, 12), colour) for colour in ("red", "blue")]


def make_webps():
    small = photo(67, 45)
    clear = small.convert("RGBA")
    clear.putalpha(small.convert("L"))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(24, 16).save(path("small.webp"), quality=90)
    photo(24, 16).save(path("small-lossless.webp"), lossless=True)
    photo(480, 320).save(path("photo.webp"), quality=40)
    clear.save(path("alpha.webp"), quality=60)
    clear.resize((30, 20)).save(path("alpha-lossless.webp"), lossless=True)
    small.save(path("exif.webp"), quality=60, exif=exif, icc_profile=b"x" * 601)
    Image.new("RGB", (4000, 3000), "teal").save(path("flat-lossless.webp"), lossless=True)
    for name, options in {"": {"quality": 40}, "-lossless": {"lossless": True}}.items():
        frames = moving(4)
        options.update(save_all=True, append_images=frames[1:], duration=100)
        frames[0].save(path(f"animated{name}.webp"), **options)


def make_gifs():
    small = photo(67, 45)
    photo(24, 16).quantize(16).save(path("small.gif"), interlace=0)
    small.quantize(64).save(path("interlaced.gif"), interlace=1)
    small.quantize(64).save(path("transparent.gif"), interlace=0, transparency=3)
    small.convert("1").save(path("mono.gif"), interlace=0)
    photo(160, 120).quantize(256).save(path("photo.gif"), interlace=0)
    Image.new("P", (4000, 3000)).save(path("flat.gif"), interlace=0)
    frames = [frame.quantize(16) for frame in moving(4)]
    options = {"save_all": True, "append_images": frames[1:], "duration": 100, "interlace": 0}
    frames[0].save(path("animated.gif"), **options)


def avif(name, images, *options, **expected):
    """Pillow can't read these, so the facts are the encoder's settings."""
    with tempfile.TemporaryDirectory() as folder:
        sources = [f"{folder}/{index}.png" for index in range(len(images))]
        for image, source in zip(images, sources, strict=True):
            image.save(source)
        run("avifenc", "--jobs", "1", "--speed", "8", *options, *sources, path(name))
    known = {"format": "avif", "width": images[0].width, "height": images[0].height}
    known |= {"orientation": 1, "progressive": False, "has_alpha": False}
    return known | {"frames": len(images)} | expected


def make_avifs():
    small = photo(67, 45)
    clear = small.convert("RGBA")
    clear.putalpha(small.convert("L"))
    lossy = ("--min", "20", "--max", "40")
    expected = {
        "small.avif": avif("small.avif", [photo(24, 16)], *lossy, "--yuv", "420"),
        "alpha.avif": avif("alpha.avif", [clear], *lossy, has_alpha=True),
        "deep.avif": avif("deep.avif", [small], *lossy, "--depth", "10"),
        "grey.avif": avif("grey.avif", [small], *lossy, "--yuv", "400"),
        "grid.avif": avif("grid.avif", [photo(160, 128)], *lossy, "--yuv", "420", "--grid", "2x1"),
        # The encoder of sequences keeps a completely opaque alpha plane.
        "animated.avif": avif("animated.avif", moving(4), *lossy, has_alpha=True),
        "blinking.avif": avif("blinking.avif", blinking(), *lossy, has_alpha=True),
    }
    for orientation, options in {
        2: ("--imir", "1"),
        3: ("--irot", "2"),
        4: ("--imir", "0"),
        5: ("--irot", "1", "--imir", "0"),
        6: ("--irot", "3"),
        7: ("--irot", "3", "--imir", "0"),
        8: ("--irot", "1"),
    }.items():
        name = f"turned-{orientation}.avif"
        expected[name] = avif(name, [photo(12, 9)], *lossy, *options, orientation=orientation)
    return expected


def jxl(name, source, *options, duration=100, **expected):
    """Like avif(): Pillow can't read these. The source is a file, an image, or an array of them."""
    with tempfile.TemporaryDirectory() as folder:
        images = source if isinstance(source, list) else [source]
        if not isinstance(source, str):
            source = f"{folder}/source.png"
            more = {"save_all": True, "append_images": images[1:], "duration": duration}
            images[0].save(source, **(more if images[1:] else {}))
        run("cjxl", "--quiet", "--num_threads=0", *options, source, path(name))
        with Image.open(source) as image:
            known = {"format": "jxl", "width": image.width, "height": image.height}
            known |= {"orientation": 1, "progressive": False, "has_alpha": "A" in image.mode}
    return known | {"frames": len(images)} | expected


def turned_jxl(name, source, orientation):
    """The encoder copies the orientation from EXIF into the codestream's header, and writes both."""
    with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
        exif = Image.Exif()
        exif[0x0112] = orientation
        source.save(file.name, exif=exif, quality=80)
        return jxl(name, file.name, "--lossless_jpeg=0", "-d", "1", orientation=orientation)


def make_jxls():
    small, large = photo(67, 45), photo(300, 280)
    grey, clear = small.convert("L"), small.convert("RGBA")
    clear.putalpha(grey)
    deep = grey.convert("I").point(lambda v: v * 257).convert("I;16")
    jpeg = path("ycbcr-420.jpg")
    layers = [Image.new("RGB", (200, 200), (10 * index, 20, 30)) for index in range(20)]
    expected = {
        "small.jxl": jxl("small.jxl", photo(24, 16), "-d", "2"),
        "small-lossless.jxl": jxl("small-lossless.jxl", photo(24, 16), "-d", "0"),
        "boxed.jxl": jxl("boxed.jxl", small, "-d", "2", "--container=1"),
        "recompressed.jxl": jxl("recompressed.jxl", jpeg, "--lossless_jpeg=1"),
        "grey.jxl": jxl("grey.jxl", grey, "-d", "1"),
        "deep.jxl": jxl("deep.jxl", deep, "-d", "0"),
        "alpha.jxl": jxl("alpha.jxl", clear, "-d", "1"),
        "alpha-lossless.jxl": jxl("alpha-lossless.jxl", clear, "-d", "0"),
        "wide.jxl": jxl("wide.jxl", path("wide.png"), "-d", "0"),
        "wide-lossy.jxl": jxl("wide-lossy.jxl", path("wide.png"), "-d", "0.3"),
        "grey-gamma.jxl": jxl("grey-gamma.jxl", path("grey-gamma.png"), "-d", "0"),
        "progressive.jxl": jxl("progressive.jxl", large, "-d", "3", "-p", "--progressive_dc=1"),
        "progressive-lossless.jxl": jxl("progressive-lossless.jxl", small, "-d", "0", "-p"),
        "animated.jxl": jxl("animated.jxl", moving(4), "-d", "2"),
        # Frames without duration are layers of the shown frame, which needs as much memory as an animation (jxl_decoder.c).
        "layers.jxl": jxl(
            "layers.jxl", layers, "-d", "0", "-e", "3", duration=0, frames=1, extra_memory=232 * 232 * 3 * 18),
        "blinking.jxl": jxl("blinking.jxl", blinking(), "-d", "0"),
    }
    for orientation in range(2, 9):
        name = f"turned-{orientation}.jxl"
        expected[name] = turned_jxl(name, photo(12, 9), orientation)
    return expected


def is_interlaced(image):
    if image.format == "GIF":
        return image.tile[0][3][1]
    return bool(image.info.get("progressive") or image.info.get("interlace"))


def pixels_sum(image):
    """The checksum of the first frame's RGBA, with equal transparent pixels."""
    clear = Image.new("RGBA", image.size)
    pixels = image.convert("RGBA")
    seen = pixels.getchannel("A").point(lambda v: 255 if v else 0)
    return zlib.crc32(Image.composite(pixels, clear, seen).tobytes())


def facts(file):
    with Image.open(file) as image:
        alpha = image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info
        known = {
            "format": image.format.lower(),
            "width": image.width,
            "height": image.height,
            "orientation": image.getexif().get(0x0112, 1),
            "progressive": is_interlaced(image),
            "has_alpha": alpha,
            "frames": getattr(image, "n_frames", 1),
        }
        if image.format in ("GIF", "ICO") or "lossless" in file.name:
            known["pixels"] = pixels_sum(image)
        return known


def main():
    FOLDER.mkdir(exist_ok=True)
    make_jpegs()
    make_pngs()
    make_webps()
    make_gifs()
    icons.make(FOLDER, photo)
    known = make_avifs() | make_jxls() | heics.make(photo, blinking, wide_profile)
    for file in FOLDER.iterdir():
        if file.suffix in (".jpg", ".png", ".webp", ".gif", ".ico"):
            known[file.name] = facts(file)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
    (FOLDER / "facts.json").write_text("{\n" + lines + "\n}\n")


main()
