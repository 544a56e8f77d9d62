"""Benchmark of text and logos: subtitles and logos drawn over real film, and the clips that the rules let pass.

    make bench-overlays                                          Big Buck Bunny
    .venv/bin/python -m benchmarks.overlays --real DIR           and every film of a folder

Each film is cut once. Pillow draws overlays over its clips, which are coded again at CRF 23 and measured by the stage
`looks`. A half is for tuning; its films and overlays are not in the other one. An overlay is visible in a clip
if it changes the pixels that it covers by eight gray levels or more on average, on one frame at least.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.table import Table

from examples.bunny.film import fetch_bunny
from pipeline.core.config import (
    ClipSettings,
    CropSettings,
    FilmSettings,
    LooksSettings,
    SceneSettings,
    SelectionSettings,
)
from pipeline.core.records import Clip, Looks, make_film_id
from pipeline.core.stage import perform
from pipeline.core.store import FilmFolder
from pipeline.publish.shards import file_sha256
from pipeline.stages.crop import FindCrop
from pipeline.stages.cut import Cut
from pipeline.stages.looks import MeasureLooks
from pipeline.stages.probe import probe
from pipeline.stages.selection import FilmFacts, verdicts_of
from pipeline.video.clip_files import read_clip, write_clip

HALVES = ("tuning", "kept aside")
BUNNY = ((48.0, 268.0), (268.0, 488.0))
"""Seconds of Big Buck Bunny in each half, without its title and its credits."""
CRF = 23
VISIBLE = 8.0
LINES = (
    ("We should go back before it rains.", "I told you not to open that door!", "Where did you put it?\nIt gets dark."),
    ("The ship leaves at dawn, captain.", "Nobody has lived here for years.", "Wait!\nWhat was her name again?"),
)
WORDS = (("No.", "Yes!", "Run!", "Hm.", "Oh..."), ("What?", "Me?", "Stop!", "Ah.", "Go!"))
STYLES = (
    ((0.045, "white", 1.0), (0.06, "yellow", 1.0), (0.055, "white", 0.6)),
    ((0.05, "yellow", 1.0), (0.07, "white", 1.0), (0.06, "white", 0.7)),
)
"""Height of the letters in picture heights, their colour, and the opacity."""
LOGOS = (("letters", "bird"), ("ring", "word"))
WIDTHS, OPACITIES = (0.07, 0.12, 0.1), (0.2, 0.4, 0.8)
"""Widths of logos in picture widths, taken in turn, and their opacities."""
CORNERS = ((0, 0), (1, 0), (0, 1), (1, 1))

Layer = NDArray[np.uint8]
"""An overlay as large as the picture: RGBA, uint8."""
Draw = Callable[[float], Layer | None]
"""Returns the overlay at a time of the film, in seconds; None: there is none."""


@dataclass(frozen=True)
class Film:
    """Clips of a film that are measured as a film."""

    name: str
    folder: FilmFolder
    clips: tuple[Clip, ...]


@dataclass(frozen=True)
class Count:
    """Clips of a film with an overlay: all, those that show it, and those kept without a flag though they do."""

    clips: int
    visible: int
    missed: tuple[str, ...]
    told: tuple[str, ...]
    """Clips with a verdict or flag about an overlay."""
    is_undecided: bool
    """True if the film has too few scenes for a search for logos."""


def main() -> None:
    """Measure both halves and print their tables."""
    parser = argparse.ArgumentParser(description="Clips with drawn subtitles and logos that are kept without a flag.")
    parser.add_argument("--real", type=Path, help="folder of more films, every second one kept aside")
    parser.add_argument("--out", type=Path, default=Path("bench-overlays"))
    parser.add_argument("--half", choices=HALVES, action="append")
    args = parser.parse_args()
    console = Console(width=110)
    for half in args.half or HALVES:
        table = Table("film", "overlay", "clips", "visible", "missed", "told", title=half, box=None)
        number = HALVES.index(half)
        for film in _films(number, args.real, args.out):
            for name, draw in (("none", None), *_overlays(number, (film.clips[0].width, film.clips[0].height))):
                count = measure(film, draw, args.out / "drawn", is_logo=name.startswith("logo"))
                undecided = " too few scenes" if count.is_undecided else ""
                ids = ", ".join(clip_id[-9:] for clip_id in (count.told if draw is None else count.missed)[:4])
                shown = (str(count.clips), str(count.visible), str(len(count.missed)), str(len(count.told)))
                table.add_row(film.name[:28], name + undecided, *shown)
                console.print(f"{film.name[:20]} {name}: {' '.join(shown)}{undecided} {ids}")
        console.print(table)


def measure(film: Film, draw: Draw | None, folder: Path, *, is_logo: bool) -> Count:
    """Draw an overlay over a film, measure its looks and apply the rules.

    A logo does not move, so a quarter of the frames is enough. Its letters must not help, so no text is looked for.
    """
    shutil.rmtree(folder, ignore_errors=True)
    drawn = FilmFolder(folder / film.folder.film_id)
    shutil.copytree(film.folder.path, drawn.path, ignore=shutil.ignore_patterns("*.mp4", "looks.*"))
    visible = set()
    for clip in film.clips:
        frames_THWC = read_clip(film.folder.clip_path(clip.clip_id))[:: 4 if is_logo else 1]
        step = (clip.end_seconds - clip.start_seconds) / len(frames_THWC)
        for number, frame_HWC in enumerate(frames_THWC):
            layer = draw(clip.start_seconds + number * step) if draw else None
            if layer is not None and _put(frame_HWC, layer) >= VISIBLE:
                visible.add(clip.clip_id)
        write_clip(drawn.clip_path(clip.clip_id), list(frames_THWC), clip.fps, CRF)
    drawn.write("clips", film.clips)
    perform(MeasureLooks(LooksSettings(text=not is_logo), threads=2), drawn)
    looks = {row.clip_id: row for row in drawn.read("looks", Looks)}
    levels = dict.fromkeys(looks, 3)
    facts = FilmFacts(drawn.film_id, film.clips, looks, levels, captions=None, failures={})
    settings = SelectionSettings(near_duplicates=False)
    verdicts = verdicts_of([facts], settings)[drawn.film_id]
    told = tuple(row.clip_id for row in verdicts if {"text", "credits", "logo"} & {*row.reasons, *row.flags})
    missed = tuple(row.clip_id for row in verdicts if row.keep and row.clip_id in visible and row.clip_id not in told)
    undecided = any(row.logo_boxes is None for row in looks.values())
    return Count(len(film.clips), len(visible), missed, told, undecided)


def _films(half: int, real: Path | None, out: Path) -> Iterator[Film]:
    start, end = BUNNY[half]
    bunny = _cut(fetch_bunny(), out)
    clips = bunny.read("clips", Clip)
    yield Film("Big Buck Bunny", bunny, tuple(clip for clip in clips if start <= clip.start_seconds < end))
    paths = sorted(path for path in real.iterdir() if path.suffix in {".mp4", ".mkv", ".ogv"}) if real else []
    for path in paths[half::2]:
        folder = _cut(path, out)
        if clips := folder.read("clips", Clip):
            yield Film(path.stem, folder, tuple(clips))


def _cut(path: Path, out: Path) -> FilmFolder:
    sha256 = file_sha256(path)
    film = probe(path, make_film_id(path.name, sha256), sha256)
    folder = FilmFolder(out / "films" / film.film_id)
    folder.save_film(film)
    perform(FindCrop(CropSettings()), folder)
    perform(Cut(FilmSettings(), SceneSettings(), ClipSettings()), folder)
    return folder


def _overlays(half: int, size: tuple[int, int]) -> Iterator[tuple[str, Draw]]:
    for style in STYLES[half]:
        letters, colour, opacity = style
        yield f"subtitles {letters:g} {colour} {opacity:.0%}", _subtitles(half, style, size)
    for number, (kind, opacity) in enumerate(product(LOGOS[half], OPACITIES)):
        width = WIDTHS[number % len(WIDTHS)]
        layer = _logo(kind, width, opacity, CORNERS[number % len(CORNERS)], size)
        yield f"logo {kind} {width:.0%} {opacity:.0%}", partial(_always, layer)


def _always(layer: Layer, _: float) -> Layer:
    return layer


def _subtitles(half: int, style: tuple[float, str, float], size: tuple[int, int]) -> Draw:
    """Lines of 0.8 to 3 seconds, half of them of one word, with pauses of up to 2 seconds."""
    dice, seconds = Random(half), 0.0
    lines: list[tuple[float, float, str]] = []
    while seconds < 600:
        start = seconds + dice.uniform(0, 2)
        seconds = start + dice.uniform(0.8, 3)
        lines.append((start, seconds, dice.choice(dice.choice((LINES, WORDS))[half])))
    texts = {text for _, _, text in lines}
    layers = {text: _subtitle(text, style, size) for text in texts}

    def draw(at: float) -> Layer | None:
        return next((layers[text] for start, end, text in lines if start <= at < end), None)

    return draw


def _subtitle(text: str, style: tuple[float, str, float], size: tuple[int, int]) -> Layer:
    letters, colour, opacity = style
    width, height = size
    image = Image.new("RGBA", size)
    ImageDraw.Draw(image).multiline_text(
        (width / 2, height * 0.94),
        text,
        colour,
        ImageFont.load_default(letters * height),
        anchor="md",
        align="center",
        stroke_width=2,
        stroke_fill="black",
    )
    return _faded(image, opacity)


def _logo(kind: str, share: float, opacity: float, corner: tuple[int, int], size: tuple[int, int]) -> Layer:
    """A logo in a corner, 4% of the picture away from its sides; drawn at four times its size."""
    side = round(share * size[0])
    scale, drawn = 4 * side, Image.new("RGBA", (4 * side, 4 * side))
    draw, middle = ImageDraw.Draw(drawn), (2 * side, 2 * side)
    if kind == "letters":
        draw.text(middle, "TV7", "white", ImageFont.load_default(0.42 * scale), anchor="mm", stroke_width=4)
    elif kind == "word":
        draw.text(middle, "anime", "white", ImageFont.load_default(0.34 * scale), anchor="mm")
    elif kind == "ring":
        draw.ellipse((0.1 * scale, 0.1 * scale, 0.9 * scale, 0.9 * scale), outline="white", width=round(0.1 * scale))
        draw.text(middle, "K", "white", ImageFont.load_default(0.5 * scale), anchor="mm")
    else:
        wings = ((0, 0.5), (0.5, 0.2), (1, 0.45), (0.6, 0.5), (0.5, 0.8), (0.4, 0.5))
        draw.polygon([(across * scale, down * scale) for across, down in wings], fill="white")
    image = Image.new("RGBA", size)
    away = [round(0.04 * length) for length in size]
    place = [size[axis] - side - away[axis] if corner[axis] else away[axis] for axis in (0, 1)]
    image.paste(drawn.resize((side, side), Image.Resampling.LANCZOS), (place[0], place[1]))
    return _faded(image, opacity)


def _faded(image: Image.Image, opacity: float) -> Layer:
    layer = np.array(image)
    layer[..., 3] = (layer[..., 3] * opacity).astype(np.uint8)
    return layer


def _put(frame_HWC: NDArray[np.uint8], layer: Layer) -> float:
    """Draw an overlay over a BGR picture, and return its mean change of the pixels that it covers."""
    rows, columns = (np.flatnonzero(layer[..., 3].any(axis=axis)) for axis in (1, 0))
    part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    colours_HWC, opacity_HW1 = layer[part][..., 2::-1], layer[part][..., 3:] / np.float32(255)
    before_HWC = frame_HWC[part].astype(np.float32)
    after_HWC = before_HWC * (1 - opacity_HW1) + colours_HWC * opacity_HW1
    frame_HWC[part] = np.rint(after_HWC).astype(np.uint8)
    covered_HW = opacity_HW1[..., 0] > 0.02
    return float(np.abs(after_HWC - before_HWC).mean(axis=2)[covered_HW].mean())


if __name__ == "__main__":
    main()
