"""Motion benchmark: scope, level, camera part and drawings measured on composed clips of known motion.

    make bench-motion                                           OpenCV DIS, the default
    .venv/bin/python -m benchmarks.motion --flow memflow --checkpoint things      a ptlflow model with weights

A textured figure, a fifth of the picture, and the camera move by exact amounts before a painted background and before a
cel. They move on ones, twos and threes of the clip's frames, at ten speeds from 0.5 to 32 pixels a step. The clips are
encoded and read as in a build. With the speed v, the share a of the figure, and the figure's speed 2v within the
picture where both move:

    figure: scope = v, camera = 0      camera: scope = v, camera = v      both: scope = (1 - a) v + a 2v, camera = v

Levels come from the published edges.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Literal

import cv2
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from examples.world import acting
from examples.world.film import pictures_of
from examples.world.places import DrawnPlace, Figure
from examples.world.scene import Draw, Scene, Sprite
from examples.world.textures import FINE, Picture, PictureSize, cel, detailed
from pipeline.core.config import MotionSettings
from pipeline.stages.motion import ClipMotion, flow_model_of, measure_frames, open_optical_flow
from pipeline.stages.motion_levels import PUBLISHED_EDGES, level_of
from pipeline.stages.optical_flow import OpticalFlow
from pipeline.video.clip_files import read_clip, read_clip_gray, write_clip

SPEEDS_PX = (0.5, 1.0, 2.0, 4.0, 5.5, 8.0, 11.0, 16.0, 23.0, 32.0)
HELD = {1: "ones", 2: "twos", 3: "threes"}
TEXTURES: dict[str, Callable[[PictureSize, int], Picture]] = {"painted": detailed, "cel": cel}
FRAMES, WIDTH, HEIGHT = 16, 720, 480
MARGIN = 140
"""Pixels of the place beyond each border of the view."""
CANVAS = FINE * (WIDTH + 2 * MARGIN), FINE * (HEIGHT + 2 * MARGIN)
MIDDLE, RADII = (MARGIN + 360, MARGIN + 240), (150, 145)

Kind = Literal["figure", "camera", "both"]
KINDS: tuple[Kind, ...] = ("figure", "camera", "both")


@dataclass(frozen=True)
class Case:
    """Clip of known motion."""

    kind: Kind
    speed_px: float
    held: int
    """Clip frames that show one drawing."""
    texture: str

    @property
    def truth(self) -> ClipMotion:
        """Measurements that are right."""
        share = np.pi * RADII[0] * RADII[1] / (WIDTH * HEIGHT)
        scope_px = self.speed_px * (1 + share) if self.kind == "both" else self.speed_px
        drawings = -(-FRAMES // self.held)
        if self.kind == "figure":
            return ClipMotion(scope_px, 0.0, "static", None, drawings)
        return ClipMotion(scope_px, self.speed_px, "pan", "right", drawings)

    def frames(self) -> Picture:
        """Pictures of the clip, [T, H, W, C] BGR."""
        place = DrawnPlace(self.texture, TEXTURES[self.texture](CANVAS, 0), (WIDTH, HEIGHT), (_figure(),), FINE, MARGIN)
        camera_px = 0.0 if self.kind == "figure" else self.speed_px
        seen_px = {"figure": self.speed_px, "camera": 0.0, "both": 2 * self.speed_px}[self.kind]
        look = acting.held(acting.pan(place.whole, camera_px), self.held)
        draw: Draw = _swaying(seen_px, camera_px) if self.kind != "camera" else lambda _: ()
        scene = Scene("moving", FRAMES, place, draw, self.held, look=look)
        return np.stack(list(pictures_of([scene])))


@dataclass(frozen=True)
class Measured:
    """Measurement of a case."""

    case: Case
    found: ClipMotion

    @property
    def scope_error(self) -> float:
        """Share by which the scope is off."""
        return abs(self.found.scope_px / self.case.truth.scope_px - 1)

    @property
    def camera_error(self) -> float:
        """Share of the scope by which the camera's part is off."""
        return abs(self.found.camera_px - self.case.truth.camera_px) / self.case.truth.scope_px

    @property
    def level_is_right(self) -> bool:
        """True if scope and truth have the same level."""
        levels = {level_of(each.scope_px, PUBLISHED_EDGES) for each in (self.found, self.case.truth)}
        return len(levels) == 1

    @property
    def drawings_are_right(self) -> bool:
        """True if every drawing was counted once."""
        return self.found.unique_frames == self.case.truth.unique_frames


def measure(settings: MotionSettings, cases: Sequence[Case]) -> Iterator[Measured]:
    """Measure the cases as the stage `motion` measures clips."""
    optical_flow = open_optical_flow(settings)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            path = Path(folder) / "clip.mp4"
            write_clip(path, case.frames(), Fraction(8), crf=17)
            yield Measured(case, _measured(path, settings, optical_flow))


def _measured(path: Path, settings: MotionSettings, optical_flow: OpticalFlow) -> ClipMotion:
    frames = read_clip(path) if optical_flow.colour else read_clip_gray(path)
    [found] = measure_frames([frames], optical_flow, settings.background_px)
    return found


def _swaying(seen_px: float, camera_px: float) -> Draw:
    """Figure that sways by `seen_px` per drawing within the picture, turning back every fourth drawing."""

    def draw(drawing: int) -> tuple[Sprite, ...]:
        place = drawing % 8
        x = MIDDLE[0] + camera_px * drawing + seen_px * min(place, 8 - place)
        return (Sprite("figure", "figure", x - 2 * seen_px, MIDDLE[1]),)

    return draw


def _figure() -> Figure:
    mask_HW = np.zeros(CANVAS[::-1], np.uint8)
    centre, axes = [FINE * at for at in MIDDLE], [FINE * radius for radius in RADII]
    cv2.ellipse(mask_HW, centre, axes, 0, 0, 360, 255, cv2.FILLED)
    return Figure("figure", detailed(CANVAS, 99), mask_HW > 0, MIDDLE)


def all_cases() -> list[Case]:
    """Every combination of motion, speed, holding and texture."""
    return [Case(*values) for values in product(KINDS, SPEEDS_PX, HELD, TEXTURES)]


def table_of(measured: Sequence[Measured], flow_model: str) -> Table:
    """Table with a row for each motion and holding, and one for each level."""
    table = Table("motion", "clips", "scope off by", "at most", "level right", "camera off by", "drawings right")
    table.title = f"{flow_model}, {len(measured)} clips"
    for (kind, texture), (held, name) in product(product(KINDS, TEXTURES), HELD.items()):
        rows = [one for one in measured if (one.case.kind, one.case.texture, one.case.held) == (kind, texture, held)]
        _add(table, f"{kind}, {texture}, on {name}", rows)
    for speed_px in SPEEDS_PX:
        _add(table, f"{speed_px:g} px a step", [one for one in measured if one.case.speed_px == speed_px])
    _add(table, "all", measured)
    return table


def _add(table: Table, name: str, rows: Sequence[Measured]) -> None:
    if not rows:
        return
    scopes = [row.scope_error for row in rows]
    table.add_row(
        name,
        str(len(rows)),
        f"{median(scopes):.1%}",
        f"{max(scopes):.1%}",
        f"{mean(row.level_is_right for row in rows):.0%}",
        f"{median(row.camera_error for row in rows):.1%}",
        f"{mean(row.drawings_are_right for row in rows):.0%}",
    )


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flow", default="dis", help="`dis`, or a ptlflow model")
    parser.add_argument("--checkpoint", default=None, help="its weights: a file, or a name that ptlflow knows")
    given = parser.parse_args()
    settings = MotionSettings(model=given.flow, checkpoint=given.checkpoint)
    cases = all_cases()
    console = Console(stderr=True)
    measured = list(track(measure(settings, cases), "clips", len(cases), console=console))
    Console(width=110).print(table_of(measured, flow_model_of(settings)))


if __name__ == "__main__":
    main()
