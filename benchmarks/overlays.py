"""Benchmark of text and logos: subtitles and logos drawn over real film, and the clips that the rules let pass.

    .venv/bin/python -m benchmarks.overlays                      Big Buck Bunny
    .venv/bin/python -m benchmarks.overlays --real DIR           the films of a folder

Each film is cut once, and its clips are measured by the stage `looks` as they are. Pillow draws overlays over some of
them, which are coded again at CRF 23 and measured as well. A half is for tuning; its films and overlays are not in the
other one. An overlay is visible in a clip if it changes the pixels that it covers by eight gray levels or more on
average, on one frame at least.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from pipeline.core.measurements import Looks
from pipeline.core.records import Clip, make_film_id
from pipeline.core.stage import perform
from pipeline.core.store import FilmFolder
from pipeline.publish.shards import file_sha256
from pipeline.reviews.intervals import wilson
from pipeline.stages.crop import FindCrop
from pipeline.stages.cut import Cut
from pipeline.stages.looks import MeasureLooks
from pipeline.stages.probe import probe
from pipeline.stages.selection import FilmFacts, verdicts_of
from pipeline.video.clip_files import read_clip, write_clip

HALVES = ("tuning", "kept aside")
BUNNY = ((48.0, 268.0), (268.0, 488.0))
"""Seconds of Big Buck Bunny in each half, without its title and its credits."""
MOST_CLIPS, MOST_REAL_CLIPS = 40, 20
"""Clips of Big Buck Bunny and of another film that are measured, evenly spread."""
THREADS = 2
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
    """Clips of a film that are measured as a film: all without overlays, some with each of the overlays."""

    name: str
    folder: FilmFolder
    clips: Sequence[Clip]
    some: Sequence[Clip]
    overlays: Sequence[tuple[str, Draw]]
    group: str
    """Name of the film in the sums."""


@dataclass(frozen=True)
class Count:
    """Clips of a film with one overlay, or with none.

    Attributes:
        kind: `subtitles`, `logo` or `none`.
        told: clips with a verdict or flag about an overlay.
        is_undecided: True if the film has too few scenes for a search for logos.
    """

    kind: str
    film: str
    clips: int
    visible: frozenset[str]
    kept: frozenset[str]
    told: frozenset[str]
    is_undecided: bool

    @property
    def missed(self) -> frozenset[str]:
        """Clips that show the overlay and are kept without a flag."""
        return self.visible & self.kept - self.told

    @property
    def group(self) -> str:
        """Overlay and film."""
        few = ", too few scenes" if self.kind == "logo" and self.is_undecided else ""
        return f"{self.kind}, {self.film}{few}"


def main() -> None:
    """Measure both halves and print their tables."""
    parser = argparse.ArgumentParser(description="Clips with drawn subtitles and logos that are kept without a flag.")
    parser.add_argument("--real", type=Path, help="measure the films of this folder instead, half of them kept aside")
    parser.add_argument("--out", type=Path, default=Path("bench-overlays"))
    parser.add_argument("--half", choices=HALVES, action="append")
    args = parser.parse_args()
    console = Console(width=110)
    for half in args.half or HALVES:
        table = Table("film", "overlay", "clips", "visible", "missed", "told", title=half, box=None)
        counts: list[Count] = []
        for film in _films(HALVES.index(half), args.real, args.out):
            for name, draw in (("none", None), *film.overlays):
                count = measure(film, name.split()[0], draw, args.out / "drawn")
                counts.append(count)
                numbers = count.clips, len(count.visible), len(count.missed), len(count.told)
                row = (film.name[:28], name, *map(str, numbers))
                table.add_row(*row)
                ids = sorted(count.told if draw is None else count.missed)
                console.print(*row, count.group, *(clip_id[-9:] for clip_id in ids[:6]))
        console.print(table, _sums(counts, half))


def _sums(counts: Sequence[Count], half: str) -> Table:
    """Return a table of the kinds of overlays with the share of clips that are wrong, and its interval of 95%."""
    table = Table(
        "overlay", "visible, or clean", "missed, or told", "share", "interval", title=f"{half}: sums", box=None
    )
    for group in sorted({count.group for count in counts}):
        of_group = [count for count in counts if count.group == group]
        is_clean = group.startswith("none")
        missed = sum(len(count.told if is_clean else count.missed) for count in of_group)
        size = sum(count.clips if is_clean else len(count.visible) for count in of_group)
        if size:
            low, high = wilson(missed / size, size)
            table.add_row(group, f"{size}", f"{missed}", f"{missed / size:.1%}", f"{low:.1%} to {high:.1%}")
    return table


def measure(film: Film, kind: str, draw: Draw | None, folder: Path) -> Count:
    """Draw an overlay over a film, measure its looks and apply the rules.

    A logo does not move, so a quarter of the frames is enough. Its letters must not help, so no text is looked for.
    """
    shutil.rmtree(folder, ignore_errors=True)
    drawn = FilmFolder(folder / film.folder.film_id)
    shutil.copytree(film.folder.path, drawn.path, ignore=shutil.ignore_patterns("*.mp4", "looks.*"))
    clips, step = film.some if draw else film.clips, 4 if kind == "logo" else 1
    with ThreadPoolExecutor(THREADS) as pool:
        shown = pool.map(partial(_draw_over, film.folder, drawn, draw, step), clips)
        visible = frozenset(clip.clip_id for clip, is_visible in zip(clips, shown, strict=True) if is_visible)
    drawn.write("clips", clips)
    perform(MeasureLooks(LooksSettings(text=kind != "logo"), threads=THREADS), drawn)
    looks = {row.clip_id: row for row in drawn.read("looks", Looks)}
    levels = dict.fromkeys(looks, 3)
    facts = FilmFacts(drawn.film_id, tuple(clips), looks, levels, captions=None, failures={})
    settings = SelectionSettings(near_duplicates=False)
    verdicts = verdicts_of([facts], settings)[drawn.film_id]
    return Count(
        kind=kind,
        film=film.group,
        clips=len(clips),
        visible=visible,
        kept=frozenset(row.clip_id for row in verdicts if row.keep),
        told=frozenset(row.clip_id for row in verdicts if {"text", "credits", "logo"} & {*row.reasons, *row.flags}),
        is_undecided=any(row.logo_boxes is None for row in looks.values()),
    )


def _draw_over(film: FilmFolder, drawn: FilmFolder, draw: Draw | None, step: int, clip: Clip) -> bool:
    """Write every `step`-th frame of a clip with the overlay, or the clip as it is; return True if it is visible."""
    if draw is None:
        drawn.clip_path(clip.clip_id).parent.mkdir(exist_ok=True)
        shutil.copyfile(film.clip_path(clip.clip_id), drawn.clip_path(clip.clip_id))
        return False
    frames_THWC = read_clip(film.clip_path(clip.clip_id))[::step]
    frame_seconds = (clip.end_seconds - clip.start_seconds) / len(frames_THWC)
    times = [clip.start_seconds + number * frame_seconds for number in range(len(frames_THWC))]
    layers = [draw(at) for at in times]
    changes = [
        _put(frame_HWC, layer) for frame_HWC, layer in zip(frames_THWC, layers, strict=True) if layer is not None
    ]
    write_clip(drawn.clip_path(clip.clip_id), list(frames_THWC), clip.fps, CRF)
    return max(changes, default=0.0) >= VISIBLE


def _films(half: int, real: Path | None, out: Path) -> Iterator[Film]:
    """Big Buck Bunny with all overlays and a minute of it with subtitles, or real films with some overlays in turn."""
    if real:
        yield from _real_films(half, real, out)
        return
    start, end = BUNNY[half]
    bunny = _cut(fetch_bunny(), out)
    clips = [clip for clip in bunny.read("clips", Clip) if start <= clip.start_seconds < end]
    subtitles, logos = _overlays(half, (clips[0].width, clips[0].height))
    yield Film("Big Buck Bunny", bunny, clips, _some(clips, MOST_CLIPS), (*subtitles, *logos), "Big Buck Bunny")
    minute = [clip for clip in clips if clip.start_seconds < start + 60]
    yield Film("a minute of it", bunny, minute, minute, subtitles[:1], "a minute of it")


def _real_films(half: int, real: Path, out: Path) -> Iterator[Film]:
    paths = sorted(path for path in real.iterdir() if path.suffix in {".mp4", ".mkv", ".ogv"})
    for number, path in enumerate(paths[half::2]):
        folder = _cut(path, out)
        if clips := folder.read("clips", Clip):
            subtitles, logos = _overlays(half, (clips[0].width, clips[0].height))
            chosen = (subtitles[number % len(subtitles)], *logos[number % 2 :: 2])
            yield Film(path.stem, folder, clips, _some(clips, MOST_REAL_CLIPS), chosen, "other films")


def _some(clips: Sequence[Clip], count: int) -> list[Clip]:
    count = min(count, len(clips))
    return [clips[number * len(clips) // count] for number in range(count)]


def _cut(path: Path, out: Path) -> FilmFolder:
    sha256 = file_sha256(path)
    film = probe(path, make_film_id(path.name, sha256), sha256)
    folder = FilmFolder(out / "films" / film.film_id)
    folder.save_film(film)
    perform(FindCrop(CropSettings()), folder)
    perform(Cut(FilmSettings(), SceneSettings(), ClipSettings()), folder)
    return folder


def _overlays(half: int, size: tuple[int, int]) -> tuple[list[tuple[str, Draw]], list[tuple[str, Draw]]]:
    """Return the subtitles and the logos of a half for clips of a size, each with its name."""
    subtitles: list[tuple[str, Draw]] = []
    for style in STYLES[half]:
        letters, colour, opacity = style
        subtitles.append((f"subtitles {letters:g} {colour} {opacity:.0%}", _subtitles(half, style, size)))
    logos: list[tuple[str, Draw]] = []
    for number, (kind, opacity) in enumerate(product(LOGOS[half], OPACITIES)):
        width = WIDTHS[number % len(WIDTHS)]
        layer = _logo(kind, width, opacity, CORNERS[number % len(CORNERS)], size)
        logos.append((f"logo {kind} {width:.0%} {opacity:.0%}", partial(_always, layer)))
    return subtitles, logos


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
