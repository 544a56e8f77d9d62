"""Captions of a film: text on a dark band under the picture, in a font of this machine that has its characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from models.turns import INSTRUCTION_LINE
from pipeline.video.containers import Picture

_LARGER = 26
"""Width of the picture in font sizes."""
_LEAST_PIXELS = 15
_MOST_LINES = 6
_LINE_HEIGHT, _MARGIN = 1.35, 0.6
"""In font sizes."""
_BAND, _TEXT = (16, 17, 18), (251, 246, 234)
_FONT_FOLDERS = (
    "/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts", "/Library/Fonts",
    "/System/Library/Fonts", "~/Library/Fonts",
)  # fmt: skip
_JAPANESE = re.compile(
    r"cjk|sans-?jp|source-?han|ipa(ex)?g|takao|vl-?p?gothic|hiragino|ヒラギノ|yugoth|meiryo|fallback|wqy|unifont", re.I
)
"""Names of files of fonts with Japanese characters; DejaVu comes after them, with most other alphabets."""
_WIDE = "⺀-鿿가-힣豈-﫿︰-﹏＀-￯"
_PIECES = re.compile(rf"[{_WIDE}]\s*|[^\s{_WIDE}]+\s*")
"""Pieces between which a line may end: words, and each character of a script without spaces."""
_UNUSED = "\U0010fffe"
"""Code point that no font has: it is drawn as a missing character."""


def told(instruction: str) -> str:
    """Return an instruction as it is shown under the picture: `Mika · slowly walk · beach`."""
    found = INSTRUCTION_LINE.fullmatch(instruction.strip())
    return " · ".join(part.strip() for part in found.groups() if part) if found else instruction


class FilmCaptions:
    """Captions of one film, all in the same font, on a band of the same height.

    Args:
        texts: all captions; at least one.
        width: width of the picture in pixels.
    """

    def __init__(self, texts: Sequence[str], width: int) -> None:
        self._size = max(_LEAST_PIXELS, round(width / _LARGER))
        self._font = _font_for(set("".join(texts)), self._size)
        self._field = width - 2 * round(_MARGIN * self._size)
        self._width = width
        lines = max(len(self._lines(text)) for text in set(texts))
        self.height = 2 * round((lines * _LINE_HEIGHT + _MARGIN) * self._size / 2)
        """Height of the band in pixels, even."""

    def picture(self, text: str) -> Picture:
        """Return the band with a text, BGR uint8 of (height, width, 3)."""
        band = Image.new("RGB", (self._width, self.height), _BAND)
        draw, left = ImageDraw.Draw(band), round(_MARGIN * self._size)
        for number, line in enumerate(self._lines(text)):
            top = (_MARGIN / 2 + number * _LINE_HEIGHT) * self._size
            draw.text((left, top), line, fill=_TEXT, font=self._font)
        return np.ascontiguousarray(np.asarray(band)[..., ::-1])

    def _lines(self, text: str) -> list[str]:
        """Wrap a text; one that is too long ends in an ellipsis."""
        lines = [""]
        for piece in self._pieces(text):
            if lines[-1] and self._font.getlength((lines[-1] + piece).rstrip()) > self._field:
                lines.append("")
            lines[-1] += piece
        if len(lines) > _MOST_LINES:
            lines = [*lines[: _MOST_LINES - 1], lines[_MOST_LINES - 1].rstrip()[:-2] + "…"]
        return [line.rstrip() for line in lines]

    def _pieces(self, text: str) -> Iterator[str]:
        """Yield the pieces of a text; words that are wider than a line are taken apart."""
        for found in _PIECES.finditer(text):
            if self._font.getlength(found[0].rstrip()) <= self._field:
                yield found[0]
            else:
                yield from found[0]


def _font_for(characters: set[str], size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the first font that has all characters, else the one that has most of them."""
    default = ImageFont.load_default(size)
    best, fewest = default, _missing(default, characters)
    for path in _font_files() if fewest else ():
        try:
            font = ImageFont.truetype(str(path), size)
            missing = _missing(font, characters)
        except OSError:
            continue  # a damaged font, or one of another kind
        if missing < fewest:
            best, fewest = font, missing
        if not fewest:
            break
    return best


def _missing(font: ImageFont.FreeTypeFont | ImageFont.ImageFont, characters: set[str]) -> int:
    """Return how many characters a font lacks: it draws them like one that no font has."""
    without = bytes(font.getmask(_UNUSED))
    return sum(bytes(font.getmask(character)) == without for character in characters if not character.isspace())


def _font_files() -> list[Path]:
    """Return the files of fonts with Japanese characters, then those of DejaVu."""
    folders = [Path(folder).expanduser() for folder in _FONT_FOLDERS]
    files = sorted(path for folder in folders if folder.is_dir() for path in folder.rglob("*.[to]t[fc]"))
    japanese = [path for path in files if _JAPANESE.search(path.name)]
    return [*japanese, *(path for path in files if path.name == "DejaVuSans.ttf")]
