#!/usr/bin/env python3
"""Writes color profiles into a folder, as seeds: those of the fixtures, and some generated ones."""

import pathlib
import sys
import zlib

sys.path.append(str(pathlib.Path(__file__).parent.parent / "Tests/Fixtures"))

from PIL import Image, ImageCms

from variants import grey_profile, wide_profile

folder = pathlib.Path(sys.argv[1])
images = pathlib.Path(__file__).parent.parent / "Tests/Fixtures/images"
profiles = {"grey": grey_profile(), "wide": wide_profile()}
for name in ("sRGB", "LAB", "XYZ"):
    profiles[name] = ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes()
for file in [*images.glob("*.png"), *images.glob("*.jpg")]:
    profile = Image.open(file).info.get("icc_profile")
    if profile and len(profile) < 20_000:
        profiles[f"{zlib.crc32(profile):08x}"] = profile
for name, profile in profiles.items():
    (folder / name).write_bytes(profile)
