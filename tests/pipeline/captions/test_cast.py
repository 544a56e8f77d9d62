"""Cast: a numbered sheet of the characters in a folder, or an error with the remedy."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.captions.cast import Cast, load_cast
from pipeline.core.errors import UserError

RED, BLUE, GREEN = (200, 30, 30), (30, 30, 200), (30, 160, 30)


def draw(path: Path, colour: tuple[int, ...] = RED, size: tuple[int, int] = (120, 160), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
    return path


def sheet_of(cast: Cast) -> np.ndarray:
    (picture,) = cast.sheets
    with Image.open(io.BytesIO(picture.jpeg)) as sheet:
        assert sheet.format == "JPEG"
        return np.asarray(sheet)


def share_of(picture: np.ndarray, colour: tuple[int, ...]) -> float:
    return float((np.abs(picture.astype(int) - colour).max(axis=-1) < 30).mean())


def test_characters_are_numbered_in_the_order_of_names(tmp_path: Path) -> None:
    draw(tmp_path / "Sosuke" / "a.png", BLUE)
    draw(tmp_path / "Ponyo" / "a.jpg", RED)
    draw(tmp_path / "Lisa" / "a.webp", GREEN)
    cast = load_cast(tmp_path)
    assert cast.names == ("Lisa", "Ponyo", "Sosuke")
    assert cast.listing() == "1 = Lisa\n2 = Ponyo\n3 = Sosuke"
    assert cast.named((1, 3)) == ("Lisa", "Sosuke")
    assert cast.warnings == ()
    sheet = sheet_of(cast)
    assert sheet.shape == (896, 896, 3)  # two by two panels, the fourth empty
    panels = [sheet[:448, :448], sheet[:448, 448:], sheet[448:, :448]]
    for panel, colour in zip(panels, (GREEN, RED, BLUE), strict=True):
        assert share_of(panel, colour) > 0.4
    assert share_of(sheet[448:, 448:], (224, 224, 224)) > 0.99


def test_number_and_name_are_painted_large(tmp_path: Path) -> None:
    draw(tmp_path / "Ponyo" / "a.png", RED)
    title = sheet_of(load_cast(tmp_path))[8:56, 8:440]
    white = title.min(axis=-1) > 200
    assert np.flatnonzero(white.any(axis=1)).size > 25  # rows of the letters
    (tmp_path / "Ponyo").rename(tmp_path / "Ponya")
    assert not np.array_equal(title, sheet_of(load_cast(tmp_path))[8:56, 8:440])


def test_the_same_files_give_the_same_bytes_with_any_dates(tmp_path: Path) -> None:
    for name, colour in (("A", RED), ("B", BLUE)):
        draw(tmp_path / "one" / name / "a.png", colour)
    for name, colour in (("B", BLUE), ("A", RED)):
        os.utime(draw(tmp_path / "two" / name / "a.png", colour), (1, 1))
    one, two = load_cast(tmp_path / "one"), load_cast(tmp_path / "two")
    assert (one.sheets, one.sha256) == (two.sheets, two.sha256)
    draw(tmp_path / "two" / "A" / "a.png", GREEN)
    assert load_cast(tmp_path / "two").sha256 != one.sha256
    (tmp_path / "one" / "A").rename(tmp_path / "one" / "C")
    assert load_cast(tmp_path / "one").sha256 != one.sha256


def test_no_folder_is_an_empty_cast() -> None:
    assert load_cast(None) == Cast(names=(), sheets=(), sha256="")


def test_only_the_first_four_pictures_are_used_and_others_named(tmp_path: Path) -> None:
    for number in range(5):
        draw(tmp_path / "Ponyo" / f"{number}.png", (BLUE, BLUE, BLUE, BLUE, RED)[number])
    cast = load_cast(tmp_path)
    assert share_of(sheet_of(cast), BLUE) > 0.4
    assert share_of(sheet_of(cast), RED) == 0
    assert "5 pictures, the first 4 by name are shown" in cast.warnings[0]


def test_files_that_are_not_pictures_are_left_out_and_named(tmp_path: Path) -> None:
    draw(tmp_path / "Ponyo" / "a.png")
    (tmp_path / "Ponyo" / "notes.txt").write_text("hair: red")
    (tmp_path / "Ponyo" / ".DS_Store").write_bytes(b"\0")
    (tmp_path / "readme.txt").write_text("hello")
    warnings = " ".join(load_cast(tmp_path).warnings)
    assert "notes.txt: left out" in warnings
    assert "readme.txt: left out" in warnings
    assert ".DS_Store" not in warnings


def test_pictures_that_show_little_are_named(tmp_path: Path) -> None:
    draw(tmp_path / "Ponyo" / "fine.png")
    night = Image.open(draw(tmp_path / "Ponyo" / "night.png", (5, 5, 8)))
    night.paste(RED, (40, 40, 60, 60))
    night.save(tmp_path / "Ponyo" / "night.png")
    draw(tmp_path / "Ponyo" / "black.png", (30, 30, 30))
    draw(tmp_path / "kiki" / "Jiji" / "icon.png", size=(63, 90))
    icon, black = load_cast(tmp_path).warnings
    assert black == f"{tmp_path}/Ponyo/black.png: nearly black; replace it by a brighter picture"
    assert icon.startswith(f"{tmp_path}/kiki/Jiji/icon.png: 63x90 shows little of the character")


def test_exif_rotation_is_followed(tmp_path: Path) -> None:
    picture = Image.new("RGB", (200, 100), BLUE)
    picture.paste(RED, (0, 0, 100, 100))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned clockwise: left becomes up
    (tmp_path / "Ponyo").mkdir()
    picture.save(tmp_path / "Ponyo" / "a.jpg", exif=exif, quality=95)
    sheet = sheet_of(load_cast(tmp_path))
    assert share_of(sheet[80:240, 170:280], RED) > 0.9
    assert share_of(sheet[280:430, 170:280], BLUE) > 0.9


@pytest.mark.parametrize(
    ("mode", "colour", "shown"),
    [
        ("RGBA", (200, 30, 30, 255), RED),
        ("RGBA", (200, 30, 30, 0), (224, 224, 224)),
        ("LA", (90, 255), (90, 90, 90)),
        ("L", 90, (90, 90, 90)),
        ("1", 0, (0, 0, 0)),
        ("P", 5, None),
        ("I;16", 90 * 257, (90, 90, 90)),
    ],
)
def test_every_pixel_format_is_read(tmp_path: Path, mode: str, colour: object, shown: object) -> None:
    draw(tmp_path / "Ponyo" / "a.png", colour, mode=mode)  # type: ignore[arg-type]
    body = sheet_of(load_cast(tmp_path))[100:400, 150:300]
    if shown is not None:
        assert share_of(body, shown) > 0.99  # type: ignore[arg-type]


def test_palette_transparency_shows_the_background(tmp_path: Path) -> None:
    (tmp_path / "Ponyo").mkdir()
    picture = Image.new("P", (100, 100), 0)
    picture.putpalette([200, 30, 30])
    picture.save(tmp_path / "Ponyo" / "a.png", transparency=0)
    assert share_of(sheet_of(load_cast(tmp_path))[100:400, 150:300], (224, 224, 224)) > 0.99


def test_a_large_cast_has_several_sheets_of_whole_tiles(tmp_path: Path) -> None:
    for number in range(36):
        draw(tmp_path / f"C{number:02d}" / "a.png", size=(40, 40))
    cast = load_cast(tmp_path)
    assert [picture.tiles for picture in cast.sheets] == [12, 12, 12]
    for picture in cast.sheets:
        with Image.open(io.BytesIO(picture.jpeg)) as sheet:
            assert sheet.size == (4 * 448, 3 * 448)
    draw(tmp_path / "C36" / "a.png", size=(40, 40))
    with pytest.raises(UserError, match="37 characters"):
        load_cast(tmp_path)


def png_header(width: int, height: int) -> bytes:
    """PNG with a large declared size and little data: a decompression bomb."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a readable"),
        (b"hello", "not a readable"),
        (b"\x89PNG\r\n\x1a\n" + b"\xff" * 500, "not a readable"),
        (png_header(200, 200), "not a readable"),
        (png_header(60_000, 60_000), "too many pixels|too large"),
        (png_header(8_000, 8_000), "8000x8000 is too large"),
        (png_header(8, 8), "too small"),
    ],
)
def test_broken_and_huge_pictures_are_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    draw(tmp_path / "Ponyo" / "a.png")
    (tmp_path / "Ponyo" / "b.png").write_bytes(content)
    with pytest.raises(UserError, match=complaint) as caught:
        load_cast(tmp_path)
    assert "b.png" in str(caught.value)


def test_another_format_under_a_known_suffix_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Ponyo").mkdir()
    Image.new("RGB", (50, 50)).save(tmp_path / "Ponyo" / "a.png", format="GIF")
    with pytest.raises(UserError, match=r"a\.png: not a readable png, jpg or webp picture; save it again"):
        load_cast(tmp_path)


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load_cast(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no characters"):
        load_cast(tmp_path)
    (tmp_path / "Ponyo").mkdir()
    with pytest.raises(UserError, match="no picture of Ponyo"):
        load_cast(tmp_path)


def test_a_picture_beside_the_folders_is_an_error(tmp_path: Path) -> None:
    draw(tmp_path / "ponyo.png")
    with pytest.raises(UserError, match="into a folder named after the character"):
        load_cast(tmp_path)


@pytest.mark.parametrize(
    "name", ["a\nb", "a\x1b[31m", "a\\b", "<S>", "Ponyo; Motion: run", "a,b", " Ponyo", "---", "x" * 65, "\u202eonyoP"]
)
def test_hostile_names_are_refused_and_escaped(tmp_path: Path, name: str) -> None:
    draw(tmp_path / name / "a.png")
    with pytest.raises(UserError, match="rename the folder") as caught:
        load_cast(tmp_path)
    assert str(caught.value).isprintable()


def test_names_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    draw(tmp_path / "Ponyo" / "a.png")
    draw(tmp_path / "PONYO" / "a.png")
    with pytest.raises(UserError, match="the second character of this name"):
        load_cast(tmp_path)


def test_names_in_any_script_are_accepted(tmp_path: Path) -> None:
    for name in ("ポニョ", "Søren", "Dr. Who 2", "O'Hara"):
        draw(tmp_path / name / "a.png")
    assert set(load_cast(tmp_path).names) == {"ポニョ", "Søren", "Dr. Who 2", "O'Hara"}


def test_a_name_missing_in_the_font_is_shown_as_its_number_only(tmp_path: Path) -> None:
    for name in ("ポニョ", "Sosuke"):
        draw(tmp_path / name / "a.png")
    sheet = sheet_of(load_cast(tmp_path))
    names = {"Sosuke": sheet[8:56, 70:440], "ポニョ": sheet[8:56, 448 + 70 : 888]}
    assert names["Sosuke"].max() > 200
    assert names["ポニョ"].max() < 60
    assert sheet[8:56, 456:510].max() > 200


def test_links_to_the_outside_are_refused(tmp_path: Path) -> None:
    outside = draw(tmp_path / "elsewhere" / "a.png")
    cast = tmp_path / "cast"
    draw(cast / "Ponyo" / "a.png")
    (cast / "Ponyo" / "b.png").symlink_to(outside)
    with pytest.raises(UserError, match="leads out of the cast folder"):
        load_cast(cast)
    (cast / "Ponyo" / "b.png").unlink()
    (cast / "Sosuke").symlink_to(outside.parent, target_is_directory=True)
    with pytest.raises(UserError, match="leads out of the cast folder"):
        load_cast(cast)
    (cast / "Sosuke").unlink()
    (cast / "Ponyo" / "b.png").symlink_to(cast / "Ponyo" / "a.png")
    assert load_cast(cast).names == ("Ponyo",)


def test_circular_links_and_pipes_are_refused(tmp_path: Path) -> None:
    draw(tmp_path / "Ponyo" / "a.png")
    (tmp_path / "Ponyo" / "b.png").symlink_to(tmp_path / "Ponyo" / "b.png")
    with pytest.raises(UserError, match=r"b\.png"):
        load_cast(tmp_path)
    (tmp_path / "Ponyo" / "b.png").unlink()
    os.mkfifo(tmp_path / "Ponyo" / "b.png")
    with pytest.raises(UserError, match="not a regular file"):
        load_cast(tmp_path)
