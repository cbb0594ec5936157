#!/usr/bin/env python3
"""What previews cost over a plain decode, and what placeholders do, by the service's own readers.

A preview of every scan is the most that could be made; the service makes one every half second at
the most, and none that takes more than a ninth of a thread.
"""

import io
import pathlib
import subprocess
import tempfile

from PIL import Image

from pictures import photograph

HERE = pathlib.Path(__file__).parent
ROUNDS = 10


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sources = HERE.parent / "Sources" / "CCodecs"
        subprocess.run(
            ["cc", "-O2", "-Wno-attributes", f"-I{sources}/include", f"-I{sources}", "-o", folder / "previews",
             HERE / "codec" / "previews.c", *sources.glob("*.c"),
             "-lavif", "-ljpeg", "-llcms2", "-lpng", "-lwebp", "-lz", "-lm"],
            check=True)
        for megapixels, size in ((2, (1600, 1250)), (12, (4000, 3000))):
            file = folder / f"progressive-{megapixels}-MP.jpg"
            with Image.open(io.BytesIO(photograph(*size, 85))) as picture:
                picture.save(file, quality=85, progressive=True)
            print(f"progressive JPEG, {megapixels} MP", flush=True)
            subprocess.run([folder / "previews", file, str(ROUNDS)], check=True)


if __name__ == "__main__":
    main()
