"""Camera benchmark: kinds and speeds of camera moves, on shots of a film labelled by eye and on composed clips.

    make bench-camera

The labels in `examples/bunny/camera.csv` are of two-second stretches of Big Buck Bunny, by their start. They were made
from contact sheets before the detector had seen the film. `kind` is empty if the eye cannot decide. Thresholds were set
on the shots with even numbers; the odd ones are held out. `drawn` is `spread` for 100 stretches over the film, and
`moving` for more stretches of shots in which the camera moves.

The composed clips have a far and a near plane, in front of which a figure sways. Their `camera_px` is the speed of the
far plane, which fills most of the margin.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import cv2
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import examples.bunny
from examples.bunny.film import fetch_bunny
from examples.world.textures import Picture, PictureSize, cel, detailed
from pipeline.core.config import MotionSettings
from pipeline.core.errors import UserError
from pipeline.core.measurements import CameraDirection, CameraKind
from pipeline.core.records import Record
from pipeline.stages.motion import ClipMotion, measure_frames, open_optical_flow
from pipeline.stages.optical_flow import OpticalFlow
from pipeline.video.clip_files import read_clip, read_clip_gray, write_clip
from pipeline.video.film_reader import FilmReader
from pipeline.video.scaling import Geometry, Scaler

LABELS = Path(examples.bunny.__file__).with_name("camera.csv")
FILM_FPS, FPS, FRAMES, WIDTH, HEIGHT = Fraction(24), Fraction(8), 16, 720, 480
SPEEDS_PX = (2.0, 6.0, 14.0)
TEXTURES: dict[str, Callable[[PictureSize, int], Picture]] = {"painted": detailed, "cel": cel}
KINDS: tuple[CameraKind, ...] = get_args(CameraKind)
HALVES = ("tuned", "held out")
REACH = 340
"""Pixels of a plane beyond each border of the view."""


class Label(Record):
    """Camera of a stretch of the film, as the eye sees it; None: it cannot decide."""

    start_seconds: float
    shot: int
    drawn: Literal["spread", "moving"]
    kind: CameraKind | None
    direction: CameraDirection | None


def read_labels() -> list[Label]:
    """Return the labels in the order of the film."""
    with LABELS.open() as lines:
        rows = [{name: value or None for name, value in row.items()} for row in csv.DictReader(lines)]
    return [Label.model_validate(row) for row in rows]


def film_clips(film: Path, starts: Sequence[float], folder: Path) -> Iterator[Path]:
    """Yield the path of the clip from each start, in order, made as a build does; the film is decoded once."""
    with FilmReader(film) as reader:
        frames = reader.frames()
        scale: Scaler | None = None
        for start in starts:
            first, pictures = round(start * FILM_FPS), []
            wanted = {first + number * round(FILM_FPS / FPS) for number in range(FRAMES)}
            for frame in frames:
                if frame.ordinal in wanted:
                    size = frame.picture.width, frame.picture.height
                    scale = scale or Scaler(Geometry(0, 0, *size, *size), (WIDTH, HEIGHT), "cover", "clip")
                    pictures.append(scale(frame.picture))
                if frame.ordinal == max(wanted):
                    break
            write_clip(path := folder / f"{round(1000 * start):09d}.mp4", pictures, FPS, crf=17)
            yield path


@dataclass(frozen=True)
class Case:
    """Composed clip: a far plane, a near plane below it that moves faster, and a figure."""

    kind: CameraKind
    direction: CameraDirection | None
    speed_px: float
    """Mean displacement of the far plane, pixels per step; of the figure, if the camera is static."""
    texture: str

    def camera_px(self) -> float:
        """Return the displacement of the far plane."""
        return 0.0 if self.kind == "static" else self.speed_px

    def frames(self, count: int = FRAMES) -> Picture:
        """Return the first pictures of the clip, [T, H, W, C] BGR."""
        return np.stack([self._frame(frame) for frame in range(count)])

    def _frame(self, frame: int) -> Picture:
        views = [self._view(frame, pace) for pace in PACES]
        far_HWC, near_HWC = (_seen(_plane(self.texture, seed), view) for seed, view in enumerate(views))
        picture_HWC = np.where(np.arange(HEIGHT)[:, None, None] < HORIZON, far_HWC, near_HWC)
        # a followed figure stays in the picture, any other sways in the place, across the camera's way
        across, down = (1, 0) if self.kind == "tilt" else (0, 1)
        sway = max(2.0, self.speed_px) * min(frame % 8, 8 - frame % 8) * np.array((across, down))
        x, y = FIGURE if self.kind == "follow" else views[0] @ (FIGURE[0] + REACH, FIGURE[1] + REACH, 1) + sway
        skin = np.array(((1, 0, x - FIGURE[0] - REACH), (0, 1, y - FIGURE[1] - REACH)), np.float64)
        mask_HW = np.zeros((HEIGHT, WIDTH), np.uint8)
        cv2.ellipse(mask_HW, (round(x), round(y)), (90, 120), 0, 0, 360, 255, cv2.FILLED)
        return np.where(mask_HW[..., None] > 0, _seen(_plane("painted", len(PACES)), skin), picture_HWC)

    def _view(self, frame: int, pace: float) -> npt.NDArray[np.float64]:
        """Return the map from a plane to the picture; only shifts have different paces."""
        path = self.speed_px * frame
        if self.kind == "shake":
            path = self.speed_px * (frame % 2)
        kind = "pan" if self.kind in ("follow", "shake") else self.kind
        sign = -1 if self.direction in ("right", "down", "out", "clockwise") else 1
        zoom = np.exp(sign * path / MEAN_DISTANCE) if kind == "zoom" else 1.0
        turn = -np.degrees(sign * path / MEAN_DISTANCE) if kind == "rotate" else 0.0
        view = np.array(cv2.getRotationMatrix2D((REACH + WIDTH / 2, REACH + HEIGHT / 2), turn, zoom), np.float64)
        view[:, 2] -= REACH
        if kind in ("pan", "tilt"):
            view[int(kind == "tilt"), 2] += sign * pace * path
        return view


PACES, HORIZON = (1.0, 1.5), 330
"""Paces of the far and of the near plane, and the row at which the near one begins."""
FIGURE = (300, 300)
"""Middle of the figure in the first picture."""
MEAN_DISTANCE = float(np.hypot(*np.mgrid[-HEIGHT / 2 : HEIGHT / 2, -WIDTH / 2 : WIDTH / 2]).mean())
MOVES: tuple[tuple[CameraKind, CameraDirection | None], ...] = (
    *(("static", None), ("pan", "left"), ("pan", "right"), ("tilt", "up"), ("tilt", "down"), ("zoom", "in")),
    *(("zoom", "out"), ("rotate", "clockwise"), ("rotate", "counterclockwise"), ("follow", "right"), ("shake", None)),
)


@cache
def _plane(texture: str, seed: int) -> Picture:
    return TEXTURES[texture]((WIDTH + 2 * REACH, HEIGHT + 2 * REACH), seed)


def _seen(plane_HWC: Picture, view: npt.NDArray[np.float64]) -> Picture:
    seen_HWC = cv2.warpAffine(plane_HWC, view, (WIDTH, HEIGHT), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    return np.asarray(seen_HWC, np.uint8)


def all_cases() -> list[Case]:
    """Return every move at three speeds with two textures."""
    return [Case(*move, speed_px, texture) for move in MOVES for speed_px in SPEEDS_PX for texture in TEXTURES]


def measure(path: Path, settings: MotionSettings, optical_flow: OpticalFlow) -> ClipMotion:
    """Measure a clip as the stage `motion` does."""
    frames = read_clip(path) if optical_flow.colour else read_clip_gray(path)
    [found] = measure_frames([frames], optical_flow, settings.background_px)
    return found


def labelled(film: Path) -> Iterator[tuple[Label, ClipMotion]]:
    """Measure the labelled stretches of the film."""
    labels, settings = read_labels(), MotionSettings()
    optical_flow = open_optical_flow(settings)
    with tempfile.TemporaryDirectory() as folder:
        paths = film_clips(film, [label.start_seconds for label in labels], Path(folder))
        for label, path in zip(labels, paths, strict=True):
            yield label, measure(path, settings, optical_flow)


def composed(cases: Sequence[Case]) -> Iterator[tuple[Case, ClipMotion]]:
    """Measure composed clips, encoded and read as in a build."""
    settings = MotionSettings()
    optical_flow = open_optical_flow(settings)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            write_clip(path := Path(folder) / "clip.mp4", case.frames(), FPS, crf=17)
            yield case, measure(path, settings, optical_flow)


def confusion(title: str, rows: Sequence[tuple[CameraKind | None, CameraKind | None]]) -> Table:
    """Return the table of labels (rows) and answers (columns); the caption has the rates."""
    counts, kinds = Counter(rows), (*KINDS, None)
    table = Table("by eye", *(kind or "undecided" for kind in kinds), title=title)
    for label in kinds:
        if any(label == row[0] for row in rows):
            table.add_row(label or "undecided", *(str(counts[label, kind] or "") for kind in kinds))
    decided = [row for row in rows if row[1]]
    still = [row for row in decided if row[1] == "static"]
    right, right_still = (sum(label == kind for label, kind in part) for part in (decided, still))
    table.caption = (
        f"{len(decided)} of {len(rows)} decided, {right} of them right ({right / max(1, len(decided)):.1%}); "
        f"{right_still} of {len(still)} answers `static` are right"
    )
    return table


def composed_table(measured: Sequence[tuple[Case, ClipMotion]]) -> Table:
    """Return the table of composed moves: clips named right and how far camera_px is off."""
    table = Table("move", "clips", "kind right", "undecided", "direction right", "camera_px off by, at most")
    for kind, direction in MOVES:
        rows = [row for row in measured if (row[0].kind, row[0].direction) == (kind, direction)]
        right = [found for _, found in rows if found.camera_kind == kind]
        errors = [abs(found.camera_px - case.camera_px()) / case.speed_px for case, found in rows]
        table.add_row(
            " ".join(filter(None, (kind, direction))),
            str(len(rows)),
            str(len(right)),
            str(sum(found.camera_kind is None for _, found in rows)),
            str(sum(found.camera_direction == direction for found in right)),
            f"{max(errors, default=0):.1%}",
        )
    return table


def main() -> None:
    """Measure and print the tables."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    console = Console(width=120)
    console.print(composed_table(list(composed(all_cases()))))
    try:
        measured = list(labelled(fetch_bunny()))
    except UserError as error:
        raise SystemExit(str(error)) from error
    for number, half in enumerate(HALVES):
        rows = [row for row in measured if row[0].shot % 2 == number]
        console.print(confusion(f"{half}, all", [(label.kind, found.camera_kind) for label, found in rows]))
        named = [(label, found) for label, found in rows if label.kind == found.camera_kind and label.direction]
        right = sum(label.direction == found.camera_direction for label, found in named)
        console.print(f"direction right in {right} of {len(named)}")
    spread = [(label.kind, found.camera_kind) for label, found in measured if label.drawn == "spread"]
    console.print(confusion("the 100 stretches spread over the film, both halves", spread))


if __name__ == "__main__":
    main()
