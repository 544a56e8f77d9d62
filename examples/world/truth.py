"""Ground truth of a composed film: its scenes, its transitions, and the content of every frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import hypot

from examples.world.scene import Box, Camera, Mix, Movement, Point, Scene, TimeOfDay, TransitionKind, mix_at, named

SOURCE = "the film's script"
"""Value of `caption.source` of captions made from a film's truth, without looking at pictures."""


@dataclass(frozen=True)
class SceneTruth:
    """Truth of one scene: frames [start_frame, end_frame), and their content."""

    name: str
    start_frame: int
    end_frame: int
    characters: tuple[str, ...]
    background: str
    time_of_day: TimeOfDay | None
    """None: unknown."""
    movement: Movement
    camera: Camera
    frames_per_drawing: int
    flashes: tuple[tuple[int, int], ...]
    """First white frame and number of white frames of each flash; frames of the film."""


@dataclass(frozen=True)
class TransitionTruth:
    """Change from one scene to the next. `frame` is the first of the new scene, the middle of a dissolve or fade."""

    frame: int
    kind: TransitionKind
    last_clean_before: int
    first_clean_after: int


@dataclass(frozen=True)
class CharacterTruth:
    """Character in one frame, in pixels of the picture; outside of it if not entered yet."""

    name: str
    position: Point
    """Position of its feet in a painting, of its middle in a drawn place."""
    moved: Point
    """Motion right and down over the place since the frame before, without the camera's; (0, 0) in the first frame."""

    @property
    def speed_px(self) -> float:
        """Distance moved since the frame before."""
        return hypot(*self.moved)


@dataclass(frozen=True)
class CameraTruth:
    """Camera motion since the frame before, in pixels of the picture; none in a scene's first frame."""

    moved: Point
    """Motion of the middle of its box, right and down."""
    zoom: float
    """Magnification; above 1 it zooms in."""


@dataclass(frozen=True)
class FrameTruth:
    """Truth of one frame. In a dissolve or fade, `characters` belong to its scene, and `mix` names the other scene."""

    scene: int
    place: str
    characters: tuple[CharacterTruth, ...]
    """Empty in a white frame."""
    camera: CameraTruth
    mix: Mix | None
    """None outside of transitions."""
    white: bool
    """True if part of a flash."""


@dataclass(frozen=True)
class Truth:
    """Ground truth of the film; the scenes tile its frames."""

    fps: Fraction
    width: int
    height: int
    scenes: tuple[SceneTruth, ...]
    transitions: tuple[TransitionTruth, ...]
    frames: tuple[FrameTruth, ...]

    def scene_at(self, frame: int) -> SceneTruth:
        """Return the scene of a frame of the film."""
        return self.scenes[self.frames[frame].scene]


def truth_about(scenes: Sequence[Scene], fps: Fraction) -> Truth:
    """Return the truth about a film of these scenes in order."""
    laid, transitions, start = [], [], 0
    for scene in scenes:
        laid.append(_scene_truth(scene, start))
        if start > 0:
            half = scene.opening_frames // 2
            transitions.append(TransitionTruth(start, scene.opened_by, start - 1 - half, start + half))
        start += scene.length
    frames = [
        _frame_truth(scenes, number, frame) for number, scene in enumerate(scenes) for frame in range(scene.length)
    ]
    return Truth(fps, *scenes[0].place.size, tuple(laid), tuple(transitions), tuple(frames))


def _scene_truth(scene: Scene, start: int) -> SceneTruth:
    return SceneTruth(
        name=scene.name,
        start_frame=start,
        end_frame=start + scene.length,
        characters=scene.characters,
        background=scene.place.name,
        time_of_day=scene.place.time_of_day,
        movement=scene.movement,
        camera=scene.camera,
        frames_per_drawing=scene.frames_per_drawing,
        flashes=tuple((start + first, count) for first, count in scene.flashes),
    )


def _frame_truth(scenes: Sequence[Scene], number: int, frame: int) -> FrameTruth:
    scene, before = scenes[number], max(frame - 1, 0)
    white = scene.is_white(frame)
    return FrameTruth(
        scene=number,
        place=scene.place.name,
        characters=() if white else _characters(scene, before, frame),
        camera=_camera(scene, scene.box(before), scene.box(frame)),
        mix=mix_at(scenes, number, frame),
        white=white,
    )


def _characters(scene: Scene, before: int, frame: int) -> tuple[CharacterTruth, ...]:
    box = scene.box(frame)
    scale_x, scale_y = _scales(scene, box)
    return tuple(
        CharacterTruth(
            name=new.name,
            position=scene.place.seen_at(new, box),
            moved=(scale_x * (new.x - old.x), scale_y * (new.y - old.y)),
        )
        for old, new in zip(named(scene.sprites(before)), named(scene.sprites(frame)), strict=True)
    )


def _camera(scene: Scene, before: Box, box: Box) -> CameraTruth:
    scale_x, scale_y = _scales(scene, box)
    across, down = ((box[side] + box[side + 2] - before[side] - before[side + 2]) / 2 for side in (0, 1))
    zoom = (before[2] - before[0]) / (box[2] - box[0])
    return CameraTruth(moved=(scale_x * across, scale_y * down), zoom=zoom)


def _scales(scene: Scene, box: Box) -> Point:
    """Return the pixels of the picture per pixel of the place, in x and y."""
    width, height = scene.place.size
    return width / (box[2] - box[0]), height / (box[3] - box[1])
