"""True motion of the world's clips: the optical flow of the shapes that they are drawn of, without any estimate.

A picture is drawn once more, each shape in its number instead of a colour. The pixels of a shape move by the affine map
that takes its corners to those of the same shape in the other drawing, the others by the camera. A shape that the other
drawing lacks counts as moving.

Letters of the shapes: T frames, H W pixels, K shapes, N corners.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from examples.miniature.dataset import CONFIG, StoryFilm, drawn_scenes, films_of_the_world, scripts_of
from examples.miniature.story import StoryScene
from examples.world.brush import BITS, Brush, Colour
from examples.world.film import FPS
from examples.world.scenery import SCALE, WIDTH, Scenery
from examples.world.truth import truth_about
from pipeline.core.records import Clip
from pipeline.core.store import Dataset, open_dataset

LEAST_PX = 0.2
"""Least motion of a pixel that moves, in pixels of the clip per frame."""
_FAR = 1e3
Corners = NDArray[np.float64]
"""Corners of a shape in pixels of the film, [N, 2]."""


@dataclass(frozen=True, eq=False)
class Tracer(Brush):
    """Brush that draws shapes in their numbers, from 1, and keeps their corners."""

    corners: list[Corners] = field(default_factory=list)

    def _fill(self, corners: NDArray[np.int32], colour: Colour) -> None:  # noqa: ARG002
        cv2.fillPoly(self.canvas_HWC, [corners], self._number(corners), cv2.LINE_8, BITS)

    def _stroke(self, corners: NDArray[np.int32], width: float, colour: Colour, *, closed: bool) -> None:  # noqa: ARG002
        wide, number = max(1, round(width)), self._number(corners)
        cv2.polylines(self.canvas_HWC, [corners], closed, number, wide, cv2.LINE_8, BITS)

    def _number(self, corners: NDArray[np.int32]) -> int:
        self.corners.append(corners / (1 << BITS))
        return len(self.corners)


@dataclass(frozen=True, eq=False)
class Traced:
    """Picture of shapes."""

    shapes_HW: NDArray[np.int32]
    """Number of the shape in front; 0 where the place is seen."""
    corners: Sequence[Corners]
    left: float
    """Left border of the camera's box, in pixels."""

    @classmethod
    def of(cls, scene: StoryScene, frame: int) -> Traced:
        """Draw the shapes of a frame of a scene."""
        drawn = scene.drawn("")
        scenery, box = drawn.place, drawn.box(frame)
        assert isinstance(scenery, Scenery)
        shapes_HW = np.zeros(scenery.size[::-1], np.int32)
        brush = Tracer.on(shapes_HW, SCALE * WIDTH / (box[2] - box[0]), box[0], box[1])
        assert isinstance(brush, Tracer)
        scenery.paint(brush, drawn.sprites(frame), box)
        return cls(shapes_HW, brush.corners, SCALE * box[0])

    def speed_to(self, other: Traced) -> NDArray[np.float64]:
        """Return how far each pixel moves to another picture of the scene, [H, W] in pixels of the film."""
        maps_K23 = np.zeros((len(self.corners) + 1, 2, 3))
        maps_K23[0, 0, 2] = self.left - other.left
        maps_K23[1:, 0, 2] = _FAR
        if [len(each) for each in self.corners] == [len(each) for each in other.corners]:
            for number, (here_N2, there_N2) in enumerate(zip(self.corners, other.corners, strict=True), start=1):
                maps_K23[number] = _displacement(here_N2, there_N2)
        rows_HW, columns_HW = np.indices(self.shapes_HW.shape)
        places_HW3 = np.stack([columns_HW, rows_HW, np.ones_like(rows_HW)], axis=-1)
        return np.asarray(np.linalg.norm(np.einsum("hwij,hwj->hwi", maps_K23[self.shapes_HW], places_HW3), axis=-1))


def _displacement(here_N2: Corners, there_N2: Corners) -> NDArray[np.float64]:
    """Return the affine map [2, 3] from places to displacements that fits the corners of a shape best.

    The corners of a line leave some open; of the maps that fit, it is the one that turns and stretches least.
    """
    middle_2, moved_N2 = here_N2.mean(axis=0), there_N2 - here_N2
    shift_2 = moved_N2.mean(axis=0)
    linear_22, *_ = np.linalg.lstsq(here_N2 - middle_2, moved_N2 - shift_2, rcond=1e-3)
    return np.column_stack([linear_22.T, shift_2 - middle_2 @ linear_22])


def moving(scene: StoryScene, frames: Sequence[int]) -> NDArray[np.bool_]:
    """Return where something moves in the clip of these frames of a scene, [T, H, W] at the size of the clips.

    A pixel moves in a frame if it does on the way from the frame before or to the next.
    """
    traced, found = [Traced.of(scene, frame) for frame in frames], []
    for number, one in enumerate(traced):
        beside = traced[max(0, number - 1) : number] + traced[number + 1 : number + 2]
        found.append(np.max([_seen(one.speed_to(other)) for other in beside], axis=0) > LEAST_PX)
    return np.stack(found)


def _seen(speed_HW: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return speeds in a film as seen in its clips, which are cropped at the sides and smaller."""
    (height, width), clips = speed_HW.shape, CONFIG.clips
    kept = round(height * clips.width / clips.height)
    left = (width - kept) // 2
    size = (clips.width, clips.height)
    seen_HW = cv2.resize(speed_HW[:, left : left + kept], size, interpolation=cv2.INTER_NEAREST_EXACT)
    return np.asarray(seen_HW * clips.height / height)


def moving_in_clips(out: Path, data: str, clip_ids: Sequence[str]) -> Iterator[NDArray[np.bool_]]:
    """Yield where something moves in each of some clips of a dataset of the world."""
    scenes = dict(_scenes(open_dataset(out / data), films_of_the_world()[data]))
    for clip_id in clip_ids:
        yield moving(*scenes[clip_id])


def _scenes(dataset: Dataset, films: Sequence[StoryFilm]) -> Iterator[tuple[str, tuple[StoryScene, Sequence[int]]]]:
    """Yield the scene of every clip, and the clip's frames in it."""
    for folder, film in zip(dataset.folders(), films, strict=True):
        drawn = drawn_scenes(film)
        truth, scripts = truth_about(drawn, FPS), scripts_of(film, drawn)
        for clip in folder.read("clips", Clip):
            scene = truth.scene_at(clip.source_frames[0])
            if scene.name in scripts:
                yield clip.clip_id, (scripts[scene.name], [frame - scene.start_frame for frame in clip.source_frames])
