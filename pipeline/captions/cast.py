"""Cast: the named characters of an IP, and the numbered reference sheet with which a captioner compares clips.

    cast/Ponyo/front.png            one folder per character, with the character's name
    cast/Ponyo/side.jpg             png, jpg, jpeg or webp; the first four by name are shown, such as several outfits
    cast/Sosuke/portrait.webp
    cast/kiki/Jiji/1.png            a folder of folders: additional characters of one film, `kiki.mkv`
    cast/kiki/Ponyo/coat.png        a character of all films as it looks in this film

The sheets have a panel per character in the order of names, with number and name above its pictures. A panel is one
tile of InternVL, so that no tile edge cuts it. A sheet has at most as many panels as InternVL cuts tiles; a larger cast
has several sheets with continuous numbers. A cast is identified by a hash of the names and the shown files. The painted
sheets are not part of it, so a new version of the JPEG encoder does not repeat thousands of questions.

The folder is untrusted input. We check every picture before we decode it, and reject links that lead out of the folder
and names that could not stand in a caption. Files that are not pictures are left out and listed in `warnings`.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import struct
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path, PurePath

from PIL import Image, ImageDraw, ImageFont, ImageOps, UnidentifiedImageError

from pipeline.captions.endpoint import Picture
from pipeline.core.errors import UserError
from pipeline.core.records import Film
from pipeline.core.store import FilmEntry

LAYOUT_VERSION = 2
PANELS_ON_SHEET = 12
BACKGROUND = (224, 224, 224)
_PANEL_PIXELS = 448
MOST_CHARACTERS = 36
MOST_PICTURES = 4
MOST_FILE_BYTES = 64 * 2**20
MOST_PIXELS = 50_000_000
LEAST_SIDE_PIXELS = 16
TINY_SIDE_PIXELS = 64
"""Side below which a picture shows the captioner too little of a character: a panel has 200 pixels or more for it."""
BLACK_LUMA, LIT_SHARE = 40, 0.02
"""A picture is nearly black if less than this share of its pixels is brighter than this luma."""
_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp"}
_FORMATS = ("PNG", "JPEG", "WEBP")
_FORBIDDEN_IN_NAMES = set('/\\,;:<>[]{}|"$*?')


@dataclass(frozen=True)
class Cast:
    """Names in the order of their numbers on the sheets (from 1), and the sheets."""

    names: tuple[str, ...] = ()
    sheets: tuple[Picture, ...] = ()
    sha256: str = ""
    """Hash of the names and of the files shown; empty for an empty cast."""
    warnings: tuple[str, ...] = ()
    films: Mapping[str, Cast] = field(default_factory=dict)
    """Casts of single films, by the name of the film's file without suffix, or by film id; case-folded."""

    def of(self, film: Film) -> Cast:
        """Return the cast of a film: the cast of all films, with the film's own characters if it has any."""
        return next((self.films[key] for key in _keys(film) if key in self.films), self)

    def without_film(self, films: Iterable[FilmEntry]) -> list[str]:
        """Return the keys of the casts that belong to none of these films."""
        return sorted(self.films.keys() - {key for film in films for key in _keys(film)})

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of the characters of all films, then of single films."""
        return tuple(dict.fromkeys([*self.names, *(name for cast in self.films.values() for name in cast.names)]))

    def named(self, indices: tuple[int, ...]) -> tuple[str, ...]:
        """Return the names with these numbers on the sheet."""
        return tuple(self.names[index - 1] for index in indices)

    def listing(self) -> str:
        """Return the names with their numbers, one per line."""
        return "\n".join(f"{number} = {name}" for number, name in enumerate(self.names, start=1))


def load_cast(folder: Path | None) -> Cast:
    """Read a cast folder and paint its sheet; None gives an empty cast.

    Raises:
        UserError: the folder is missing or empty, a character has no picture, a picture is broken or too large, a
            name is unusable, or a link leads out of the folder.
    """
    if folder is None:
        return Cast()
    if not folder.is_dir():
        raise UserError(f"{_shown(folder)}: no such folder; the cast is a folder of folders, one per character")
    try:
        return _read_cast(folder)
    except OSError as error:
        raise UserError(f"{_shown(folder)}: cannot be read: {error}") from error


def reference_pictures(folder: Path) -> dict[str, list[Image.Image]]:
    """Read the pictures of each character as RGB, for characters of all films and of single films.

    Raises:
        UserError: as `load_cast`.
    """
    load_cast(folder)  # all checks and their messages
    homes = list(_folders(folder, folder, []))
    single_films = [list(_folders(home, folder, [])) for home in homes if _holds_folders(home)]
    found: dict[str, list[Image.Image]] = {}
    for group in ([home for home in homes if not _holds_folders(home)], *single_films):
        for name, files in _pictures(folder, group, []).items():
            found.setdefault(name, []).extend(_decode(file, file.read_bytes()) for file in files)
    return found


def _read_cast(folder: Path) -> Cast:
    warnings: list[str] = []
    homes = list(_folders(folder, folder, warnings))
    common = _pictures(folder, [home for home in homes if not _holds_folders(home)], warnings)
    films: dict[str, Cast] = {}
    for home in filter(_holds_folders, homes):
        if _folded(home.name) in films:
            raise UserError(f"{_shown(home)} is the second folder of this film; put its characters into one folder")
        own = _pictures(folder, list(_folders(home, folder, warnings)), warnings)
        films[_folded(home.name)] = _painted(home, _joined(common, own), warnings)
    if not common and not films:
        raise UserError(f"{_shown(folder)}: no characters; make a folder per character with pictures of it inside")
    cast = _painted(folder, common, warnings) if common else Cast()
    return replace(cast, warnings=tuple(dict.fromkeys(warnings)), films=films)


def _joined(common: dict[str, list[Path]], own: dict[str, list[Path]]) -> dict[str, list[Path]]:
    """Return the pictures of a film's own characters, and of the common characters that it does not replace."""
    taken = {_folded(name) for name in own}
    return dict(sorted([*own.items(), *(item for item in common.items() if _folded(item[0]) not in taken)]))


def _holds_folders(home: Path) -> bool:
    """Return True if a folder has other folders in it and no picture."""
    entries = [entry for entry in home.iterdir() if not entry.name.startswith(".")]
    pictures = any(entry.suffix.lower() in _SUFFIXES and not entry.is_dir() for entry in entries)
    return not pictures and any(entry.is_dir() for entry in entries)


def _keys(film: Film | FilmEntry) -> tuple[str, str]:
    return _folded(PurePath(film.name).stem), film.film_id


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _pictures(folder: Path, homes: list[Path], warnings: list[str]) -> dict[str, list[Path]]:
    """Return the pictures of each character, sorted by name."""
    return {name: _picture_files(name, folder, home, warnings) for name, home in _characters(homes)}


def _painted(folder: Path, pictures: dict[str, list[Path]], warnings: list[str]) -> Cast:
    if len(pictures) > MOST_CHARACTERS:
        raise UserError(f"{_shown(folder)}: {len(pictures)} characters; at most {MOST_CHARACTERS} can be shown")
    digest = hashlib.sha256(f"layout {LAYOUT_VERSION}".encode())
    panels = []
    for name, files in pictures.items():
        contents = [file.read_bytes() for file in files]
        for content in contents:
            digest.update(f"\n{name} ".encode() + hashlib.sha256(content).digest())
        panels.append([_decode(file, content) for file, content in zip(files, contents, strict=True)])
        warnings += [
            f"{_shown(file)}: {doubt}" for file, one in zip(files, panels[-1], strict=True) if (doubt := _doubt(one))
        ]
    sheets = _paint_sheets([_paint_panel(*panel) for panel in zip(count(1), pictures, panels, strict=False)])
    return Cast(tuple(pictures), sheets, digest.hexdigest())


def _folders(folder: Path, root: Path, warnings: list[str]) -> Iterator[Path]:
    """Yield the folders in the root of the cast, or in one of its folders."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            if entry.suffix.lower() in _SUFFIXES:
                raise UserError(f"{_shown(entry)}: put it into a folder named after the character it shows")
            warnings.append(f"{_shown(entry)}: left out, not a character's folder")
            continue
        _check_inside(entry, root)
        yield entry


def _characters(homes: list[Path]) -> list[tuple[str, Path]]:
    """Names and folders of the characters, sorted by name."""
    found: dict[str, Path] = {}
    for home in homes:
        name = _checked_name(home)
        if name.casefold() in {known.casefold() for known in found}:
            raise UserError(f"{_shown(home)} is the second character of this name; rename one")
        found[name] = home
    return sorted(found.items())


def _checked_name(home: Path) -> str:
    name = unicodedata.normalize("NFC", home.name)
    if fault := name_fault(name):
        raise UserError(f"{_shown(home)}: rename the folder; {fault}")
    return name


def name_fault(name: str) -> str | None:
    """Return why a text cannot be the name of a character, and so of its folder; None if it can."""
    hostile = name.startswith(".") or any(unicodedata.category(character)[0] == "C" for character in name)
    if hostile or set(name) & _FORBIDDEN_IN_NAMES or name != name.strip() or not any(map(str.isalnum, name)):
        return "a character's name has letters, digits and spaces"
    return "a character's name has at most 64 letters" if len(name) > 64 else None


def _picture_files(name: str, folder: Path, home: Path, warnings: list[str]) -> list[Path]:
    files = []
    for entry in sorted(home.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.suffix.lower() not in _SUFFIXES or entry.is_dir():
            warnings.append(f"{_shown(entry)}: left out, not a png, jpg, jpeg or webp picture")
            continue
        _check_inside(entry, folder)
        if not entry.is_file():
            raise UserError(f"{_shown(entry)}: not a regular file; replace it by the picture")
        files.append(entry)
    if not files:
        raise UserError(f"{_shown(home)}: no picture of {name}; add at least one png, jpg, jpeg or webp file")
    if len(files) > MOST_PICTURES:
        warnings.append(f"{_shown(home)}: {len(files)} pictures, the first {MOST_PICTURES} by name are shown")
    for file in files[:MOST_PICTURES]:
        if file.stat().st_size > MOST_FILE_BYTES:
            raise UserError(f"{_shown(file)}: larger than {MOST_FILE_BYTES >> 20} MiB; scale the picture down")
    return files[:MOST_PICTURES]


def _check_inside(entry: Path, folder: Path) -> None:
    # realpath, unlike Path.resolve, does not raise on circular links
    if not Path(os.path.realpath(entry)).is_relative_to(os.path.realpath(folder)):
        raise UserError(f"{_shown(entry)}: a link that leads out of the cast folder; copy the file here instead")


def _decode(file: Path, content: bytes) -> Image.Image:
    """Decode an upright RGB picture on a light background.

    Raises:
        UserError: it is not a picture of the allowed formats, is broken, or has too many or too few pixels.
    """
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as picture:
            width, height = picture.size  # from the header: nothing is decoded yet
            if width * height > MOST_PIXELS:
                raise UserError(f"{_shown(file)}: {width}x{height} is too large; scale it below 50 megapixels")
            if min(width, height) < LEAST_SIDE_PIXELS:
                raise UserError(f"{_shown(file)}: {width}x{height} is too small; a side needs {LEAST_SIDE_PIXELS}")
            return _flattened(ImageOps.exif_transpose(picture))
    except Image.DecompressionBombError:
        raise UserError(f"{_shown(file)}: too many pixels; scale it below 50 megapixels") from None
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, struct.error) as error:
        reason = "" if isinstance(error, UnidentifiedImageError) else f" ({error})"  # its text is an address in memory
        raise UserError(f"{_shown(file)}: not a readable png, jpg or webp picture{reason}; save it again") from None


def _doubt(picture: Image.Image) -> str | None:
    """Return why a captioner will hardly recognise the character in a picture; None without a doubt."""
    if min(picture.size) < TINY_SIDE_PIXELS:
        return f"{picture.width}x{picture.height} shows little of the character; replace it by a larger picture"
    lit = sum(picture.convert("L").histogram()[BLACK_LUMA + 1 :])
    if lit < LIT_SHARE * picture.width * picture.height:
        return "nearly black; replace it by a brighter picture"
    return None


def _flattened(picture: Image.Image) -> Image.Image:
    """Convert to eight-bit RGB: 16-bit greys scaled, transparency composed over the background."""
    if picture.mode.startswith(("I", "F")):
        # Pillow reads 16-bit greys as integers up to 65535 and would clip them at 255
        picture = picture.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    whole = picture.convert("RGBA")
    ground = Image.new("RGBA", whole.size, (*BACKGROUND, 255))
    return Image.alpha_composite(ground, whole).convert("RGB")


def _paint_sheets(panels: list[Image.Image]) -> tuple[Picture, ...]:
    """Paint as few sheets as possible, with an equal number of panels except on the last."""
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


def _paint_panel(number: int, name: str, pictures: list[Image.Image]) -> Image.Image:
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


def _shown(path: Path) -> str:
    """Printable form of a path, escaped if it has unprintable characters."""
    text = str(path)
    return text if text.isprintable() else ascii(text)
