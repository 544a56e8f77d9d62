"""Drawings benchmark: figures on ones, twos, threes and fours before a place that pans or tilts.

    .venv/bin/python -m benchmarks.drawings

Every picture differs by the move of the camera, and the figure only where it is drawn anew. It walks, waves or talks,
and stays in the picture or in the place. The clips are encoded and read as in a build. Thresholds were set on other
clips of this figure, at other speeds. A count is right within one drawing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import cos, sin
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from examples.world.textures import Picture, cel, detailed
from pipeline.core.config import MotionSettings
from pipeline.stages.motion import measure_frames, open_optical_flow
from pipeline.video.clip_files import read_clip_gray, write_clip

WIDTH, HEIGHT, FRAMES, MARGIN = 720, 480, 16, 230
TEXTURES = {"painted": detailed, "cel": cel}
SPEEDS_PX = (3.0, 9.0)
HELD = {1: "ones", 2: "twos", 3: "threes", 4: "fours"}

Act = Literal["walks", "waves", "talks"]
ACTS: tuple[tuple[Act, float, bool], ...] = (
    *(("walks", 1.0, True), ("walks", 0.7, False), ("waves", 0.8, False)),
    *(("waves", 0.5, True), ("talks", 1.2, True), ("talks", 1.2, False)),
)
"""Action of the figure, its size, and true if it stays in the picture, not in the place."""


@dataclass(frozen=True)
class Pan:
    """Composed clip."""

    texture: str
    way: Literal["pan", "tilt"]
    speed_px: float
    held: int
    """Clip frames that show one drawing of the figure."""
    act: Act
    size: float
    stays: bool

    @property
    def truth(self) -> int:
        """Drawings of the figure."""
        return -(-FRAMES // self.held)

    def frames(self) -> Picture:
        """Pictures of the clip, [T, H, W, C] BGR."""
        return np.stack([self._frame(number) for number in range(FRAMES)])

    def _frame(self, number: int) -> Picture:
        path = self.speed_px * (number - FRAMES / 2) * np.array((self.way == "pan", self.way == "tilt"))
        view = np.array(((1, 0, -MARGIN - path[0]), (0, 1, -MARGIN - path[1])), np.float64)
        picture_HWC = cv2.warpAffine(_place(self.texture), view, (WIDTH, HEIGHT), flags=cv2.INTER_CUBIC)
        x, y = (WIDTH / 2, HEIGHT / 2) if self.stays else (WIDTH / 2 - path[0], HEIGHT / 2 - path[1])
        _draw(picture_HWC, x, y, number // self.held, self.act, self.size)
        return np.asarray(picture_HWC, np.uint8)


@cache
def _place(texture: str) -> Picture:
    return TEXTURES[texture]((WIDTH + 2 * MARGIN, HEIGHT + 2 * MARGIN), 0)


def _draw(picture_HWC: cv2.typing.MatLike, x: float, y: float, drawing: int, act: Act, size: float) -> None:
    """Draw a figure with its middle at (x, y)."""
    phase = 0.9 * drawing
    walk, wave = (0.5 * sin(phase) * (act == name) for name in ("walks", "waves"))
    y += 4 * size * cos(2 * phase) * (act == "walks")
    legs, arm = ((x, y + 60 * size), 120 * size, 26 * size), ((x, y - 40 * size), 90 * size, 18 * size)
    _limb(picture_HWC, *legs, -walk, (60, 60, 150))
    _limb(picture_HWC, *legs, walk, (70, 70, 190))
    _disc(picture_HWC, (x, y), (38 * size, 73 * size), (150, 90, 60))
    _limb(picture_HWC, *arm, 0.4 + walk + wave, (120, 160, 230))
    _disc(picture_HWC, (x, y - 105 * size), (43 * size, 43 * size), (150, 190, 240))
    mouth = size * (12 if act == "talks" and drawing % 2 else 4)
    _disc(picture_HWC, (x, y - 85 * size), (14 * size, mouth), (30, 30, 120))


def _limb(
    picture_HWC: cv2.typing.MatLike,
    start: tuple[float, float],
    length: float,
    width: float,
    angle: float,
    colour: tuple[int, int, int],
) -> None:
    ends = [round(16 * at) for at in (*start, start[0] + length * sin(angle), start[1] + length * cos(angle))]
    for thickness, ink in ((width + 6, (20, 20, 20)), (width, colour)):
        cv2.line(picture_HWC, ends[:2], ends[2:], ink, round(thickness), cv2.LINE_AA, 4)


def _disc(
    picture_HWC: cv2.typing.MatLike,
    middle: tuple[float, float],
    radii: tuple[float, float],
    colour: tuple[int, int, int],
) -> None:
    at = [round(16 * value) for value in middle]
    for grown, ink in ((3, (20, 20, 20)), (0, colour)):
        axes = [round(16 * (radius + grown)) for radius in radii]
        cv2.ellipse(picture_HWC, at, axes, 0, 0, 360, ink, cv2.FILLED, cv2.LINE_AA, 4)


def all_pans() -> list[Pan]:
    """Return every figure in every move before every place."""
    ways: tuple[Literal["pan", "tilt"], ...] = ("pan", "tilt")
    moves = product(TEXTURES, ways, SPEEDS_PX, HELD, ACTS)
    return [Pan(texture, way, speed_px, held, *act) for texture, way, speed_px, held, act in moves]


def measure(pans: list[Pan]) -> Iterator[tuple[Pan, int]]:
    """Count the drawings of the clips as the stage `motion` does."""
    settings = MotionSettings()
    optical_flow = open_optical_flow(settings)
    with tempfile.TemporaryDirectory() as folder:
        for pan in pans:
            write_clip(path := Path(folder) / "clip.mp4", pan.frames(), Fraction(8), crf=17)
            [found] = measure_frames([read_clip_gray(path)], optical_flow, settings.background_px)
            yield pan, found.unique_frames


def main() -> None:
    """Measure and print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    pans = all_pans()
    measured = list(track(measure(pans), "clips", len(pans), console=Console(stderr=True)))
    table = Table("figure on", "clips", "right", "counted as ones")
    for held, name in HELD.items():
        rows = [row for row in measured if row[0].held == held]
        right = sum(abs(found - pan.truth) <= 1 for pan, found in rows)
        table.add_row(name, str(len(rows)), str(right), str(sum(found >= FRAMES - 1 for _, found in rows)))
    Console().print(table)


if __name__ == "__main__":
    main()
