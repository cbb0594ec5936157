"""Makes BMP and ICO images with Pillow."""


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
    make_others(folder, small, clear)
