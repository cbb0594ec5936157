#!/usr/bin/env python3
"""Measures the additional cost of previews and placeholders, compared with a plain decode by the service's readers.

A preview of every scan is the maximum. The service makes at most one every half second,
and uses at most a ninth of a thread for previews.
"""

import io
import pathlib
import subprocess
import tempfile

from PIL import Image

from images import photograph

HERE = pathlib.Path(__file__).parent
ROUNDS = 10


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sources = HERE.parent / "Sources" / "CCodecs"
        includes = [f"-I{folder}" for folder in sources.iterdir()]
        subprocess.run(
            ["cc", "-O2", "-Wno-attributes", *includes, "-o", folder / "previews",
             HERE / "codec" / "previews.c", *sources.glob("*/*.c"),
             *(f"-l{name}" for name in ("avif", "de265", "jpeg", "jxl", "lcms2", "m", "png", "webp", "webpdemux", "webpmux", "z"))],
            check=True)
        for megapixels, size in ((2, (1600, 1250)), (12, (4000, 3000))):
            file = folder / f"progressive-{megapixels}-MP.jpg"
            with Image.open(io.BytesIO(photograph(*size, 85))) as image:
                image.save(file, quality=85, progressive=True)
            print(f"progressive JPEG, {megapixels} MP", flush=True)
            subprocess.run([folder / "previews", file, str(ROUNDS)], check=True)


if __name__ == "__main__":
    main()
