"""Cast sheets: JPEGs with a panel per character, its number and name painted above its pictures.

A panel is one tile of InternVL, so that no tile edge cuts it, and a sheet has at most as many panels as InternVL cuts
tiles; a larger cast has several sheets, numbered on.
"""

from __future__ import annotations

import io
import math

from PIL import Image, ImageDraw, ImageFont, ImageOps

from pipeline.captions.messages import Picture

PANELS_ON_SHEET = 12
BACKGROUND = (224, 224, 224)
_PANEL_PIXELS = 448


def paint_sheets(panels: list[Image.Image]) -> tuple[Picture, ...]:
    """Paint as few sheets as hold the panels, of equal size but for the last."""
    size = math.ceil(len(panels) / math.ceil(len(panels) / PANELS_ON_SHEET))
    return tuple(_paint(panels[start : start + size]) for start in range(0, len(panels), size))


def _paint(panels: list[Image.Image]) -> Picture:
    """Paint one sheet as JPEG: panels in rows, in a grid as square as the count allows."""
    columns = math.ceil(math.sqrt(len(panels)))
    rows = math.ceil(len(panels) / columns)
    sheet = Image.new("RGB", (columns * _PANEL_PIXELS, rows * _PANEL_PIXELS), BACKGROUND)
    for index, panel in enumerate(panels):
        sheet.paste(panel, (index % columns * _PANEL_PIXELS, index // columns * _PANEL_PIXELS))
    content = io.BytesIO()
    sheet.save(content, "JPEG", quality=90, subsampling=0)
    return Picture(content.getvalue(), tiles=columns * rows)


def paint_panel(number: int, name: str, pictures: list[Image.Image]) -> Image.Image:
    """Paint one character: number and name on a dark band, one to four pictures below it, and a frame."""
    side = _PANEL_PIXELS
    panel = Image.new("RGB", (side, side), BACKGROUND)
    draw = ImageDraw.Draw(panel)
    band = side // 7
    draw.rectangle((0, 0, side, band), fill=(24, 24, 24))
    _paint_title(draw, number, name, side, band)
    columns = 1 if len(pictures) == 1 else 2
    rows = math.ceil(len(pictures) / columns)
    width, height = (side - 8) // columns, (side - band - 8) // rows
    for index, picture in enumerate(pictures):
        fitted = ImageOps.contain(picture, (width - 4, height - 4), Image.Resampling.LANCZOS)
        left = 4 + index % columns * width + (width - fitted.width) // 2
        panel.paste(fitted, (left, band + 4 + index // columns * height + (height - fitted.height) // 2))
    draw.rectangle((0, 0, side - 1, side - 1), outline=(24, 24, 24), width=2)
    return panel


def _paint_title(draw: ImageDraw.ImageDraw, number: int, name: str, side: int, band: int) -> None:
    """Paint the number at full size, then the name as large as fits; omit a name in a script the font lacks."""
    largest = band * 3 // 4
    number_font = _font(largest)
    draw.text((band // 4, band // 2), str(number), fill="white", font=number_font, anchor="lm")
    left = band // 2 + round(number_font.getlength(str(number)))
    # the prompt lists all names with their numbers, so little is lost
    missing = bytes(number_font.getmask("\uffff"))
    if any(bytes(number_font.getmask(letter)) == missing for letter in name):
        return
    font = next((f for f in map(_font, range(largest, 9, -1)) if f.getlength(name) <= side - left - 8), _font(10))
    draw.text((left, band // 2), name, fill="white", font=font, anchor="lm")


def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    assert isinstance(font, ImageFont.FreeTypeFont)  # true for Pillow with FreeType, as in all wheels
    return font
