"""Makes ICO images with Pillow."""


def make(folder, photo):
    small = photo(67, 45)
    clear = small.convert("RGBA")
    clear.putalpha(small.convert("L"))
    icon = clear.resize((32, 32))
    icon.save(folder / "small.ico", sizes=[(16, 16), (32, 32)])
    icon.save(folder / "old.ico", sizes=[(16, 16), (32, 32)], bitmap_format="bmp")
