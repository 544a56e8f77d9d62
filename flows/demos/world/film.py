"""A 2D film composed from anime art, and the exact truth about it: scenes, transitions, characters, movement, camera.

The art is that of two Debian packages (painted backgrounds, characters as RGBA sprites, Expat licence). They are
fetched by name once and unpacked in the user's cache folder; no picture of them is kept in the repository. The film
has what drawn films have and detectors trip over: drawings held on twos and threes, a fast pan, a zoom, white flashes,
cuts between scenes that look alike, big changes of drawing inside a scene, a dissolve, a fade through black.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import av
import numpy as np
from PIL import Image

from flows.demos.world.art import art_folder

FPS = 24
WIDTH, HEIGHT = 640, 360
WORLD_WIDTH, WORLD_HEIGHT = 1280, 720
"""Size of a painted background; the camera is a box inside it."""
SPRITES = {
    "sylvie": ("sylvie green normal", "sylvie green surprised", "sylvie green giggle", "sylvie green smile"),
    "sylvie in blue": ("sylvie blue normal", "sylvie blue surprised", "sylvie blue giggle", "sylvie blue smile"),
    "eileen": ("eileen happy", "eileen vhappy", "eileen concerned"),
    "lucy": ("lucy happy", "lucy mad"),
}
"""Expressions of each character (sylvie has two outfits); the first word of a key is the character's name."""

TransitionKind = Literal["cut", "dissolve", "fade"]
Movement = Literal["none", "talks", "walks", "fights", "dances", "hugs"]
Camera = Literal["static", "pan", "zoom"]


@dataclass(frozen=True)
class SceneTruth:
    """One scene: frames [start_frame, end_frame), and what is to be seen in it."""

    name: str
    start_frame: int
    end_frame: int
    characters: tuple[str, ...]
    background: str
    time_of_day: Literal["day", "night"] | None
    """None: nothing is to be seen."""
    movement: Movement
    camera: Camera
    frames_per_drawing: int
    flashes: tuple[tuple[int, int], ...]
    """First white frame and number of white frames of each flash; frames of the film."""


@dataclass(frozen=True)
class TransitionTruth:
    """How a scene gives way to the next. `frame` opens the new scene; that of a dissolve or fade lies in its middle.

    A fade through black is two fades with a scene of black between.
    """

    frame: int
    kind: TransitionKind
    last_clean_before: int
    first_clean_after: int


@dataclass(frozen=True)
class Truth:
    """Everything known about the film; the scenes tile its frames."""

    fps: int
    width: int
    height: int
    scenes: tuple[SceneTruth, ...]
    transitions: tuple[TransitionTruth, ...]

    @property
    def frames(self) -> int:
        """How many the film has."""
        return self.scenes[-1].end_frame


@dataclass(frozen=True)
class Sprite:
    """A character in one drawing: which picture, where its feet are in the world (pixels), how large, mirrored."""

    picture: str
    x: int
    y: int = WORLD_HEIGHT
    size: float = 1.0
    mirrored: bool = False


Box = tuple[float, float, float, float]
"""What the camera sees: left, top, right, bottom in world pixels."""
WHOLE: Box = (0, 0, WORLD_WIDTH, WORLD_HEIGHT)
BLACK = "black"
"""The background of a scene in which nothing is to be seen."""


@dataclass(frozen=True)
class Shot:
    """A scene before it has a place in the film: what each drawing shows, and where the camera is at each frame."""

    name: str
    length: int
    background: str
    characters: tuple[str, ...]
    draw: Callable[[int], tuple[Sprite, ...]]
    """Drawing number -> the sprites on it."""
    frames_per_drawing: int = 3
    movement: Movement = "talks"
    camera: Camera = "static"
    look: Callable[[int], Box] = lambda _: WHOLE
    """Frame of the scene -> the camera's box."""
    night: bool = False
    flashes: tuple[tuple[int, int], ...] = ()
    opened_by: TransitionKind = "cut"
    opening_frames: int = 0
    """Even number of mixed frames of the dissolve or fade; half of them lie in the scene before."""


def compose_film(path: Path, shots: tuple[Shot, ...] | None = None) -> Truth:
    """Write a film to `path` (MP4, H.264) and return the truth about it. The same art gives the same film.

    Args:
        path: the film file.
        shots: what is to be seen, scene by scene; by default `short_film()`.

    Raises:
        UserError: the Debian packages can be neither found in the cache nor fetched.
    """
    shots = shots or short_film()
    truth = truth_about(shots)
    folder = art_folder()
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "20", "preset": "superfast", "threads": "1"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for picture_HWC in _pictures(shots, folder):
            frame = av.VideoFrame.from_ndarray(picture_HWC, format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return truth


def talk(*speakers: tuple[str, int]) -> Callable[[int], tuple[Sprite, ...]]:
    """Characters (key of SPRITES, x) who stand and change their expression now and then, the first one most."""

    def draw(drawing: int) -> tuple[Sprite, ...]:
        return tuple(
            Sprite(SPRITES[who][drawing // (1 + 3 * rank) % len(SPRITES[who])], x)
            for rank, (who, x) in enumerate(speakers)
        )

    return draw


def nobody(_drawing: int) -> tuple[Sprite, ...]:
    """An empty place."""
    return ()


def stand(who: str, x: int) -> Callable[[int], tuple[Sprite, ...]]:
    """A character who does nothing."""
    return lambda _: (Sprite(SPRITES[who][0], x),)


def walk(who: str, start: int, step: int) -> Callable[[int], tuple[Sprite, ...]]:
    """A character who crosses the place from `start`, `step` world pixels a drawing."""
    return lambda drawing: (
        Sprite(SPRITES[who][drawing // 4 % 2], start + step * drawing, y=WORLD_HEIGHT + (0, 8, 14, 8)[drawing % 4]),
    )


def fight(first: str, second: str) -> Callable[[int], tuple[Sprite, ...]]:
    """Two characters who leap about: every drawing has them somewhere else, mirrored and of another size."""

    def draw(drawing: int) -> tuple[Sprite, ...]:
        dice = random.Random(drawing)
        return tuple(
            Sprite(
                SPRITES[who][drawing % 2], dice.randint(200, 1080), dice.randint(720, 1000), dice.uniform(0.9, 1.7),
                mirrored=dice.random() < 0.5,
            )
            for who in (first, second)
        )  # fmt: skip

    return draw


def pan(start: float, step: float) -> Callable[[int], Box]:
    """From `start` to the right by `step` world pixels a frame."""
    return lambda frame: (start + step * frame, 0, start + step * frame + WORLD_WIDTH, WORLD_HEIGHT)


def zoom(x: float, y: float, start: float, end: float, length: int) -> Callable[[int], Box]:
    """Around the point (x, y), from magnification `start` to `end`."""

    def look(frame: int) -> Box:
        scale = start + (end - start) * frame / (length - 1)
        width, height = WORLD_WIDTH / scale, WORLD_HEIGHT / scale
        left = min(max(x - width / 2, 0), WORLD_WIDTH - width)
        top = min(max(y - height / 2, 0), WORLD_HEIGHT - height)
        return left, top, left + width, top + height

    return look


def short_film() -> tuple[Shot, ...]:
    """Half a minute with everything that trips a scene detector; a test knows every cut of it."""
    return (
        Shot("lecture", 72, "bg lecturehall", ("sylvie",), talk(("sylvie", 560))),
        Shot("answer", 48, "bg lecturehall", ("lucy",), talk(("lucy", 760))),
        Shot("walk", 72, "bg uni", ("eileen",), walk("eileen", 200, 24), 2, "walks"),
        Shot("pan", 48, "bg panorama", (), nobody, 1, "none", "pan", pan(300, 64)),
        Shot("zoom", 48, "bg club", ("sylvie",), stand("sylvie in blue", 700), 1, "none", "zoom",
             zoom(700, 200, 1, 2, 48)),
        Shot("flash", 60, "bg whitehouse", ("lucy",), talk(("lucy", 640)), flashes=((14, 1), (30, 2), (44, 3))),
        Shot("meadow", 72, "bg meadow", ("sylvie",), talk(("sylvie in blue", 400)), opened_by="dissolve",
             opening_frames=12),
        Shot("fight", 72, "bg club", ("eileen", "lucy"), fight("eileen", "lucy"), 2, "fights", night=True),
        Shot("evening", 60, "bg uni", ("sylvie",), stand("sylvie", 640), movement="none", night=True),
        Shot("black", 26, BLACK, (), nobody, 1, "none", opened_by="fade", opening_frames=16),
        Shot("morning", 76, "bg lecturehall", ("eileen", "sylvie"), talk(("eileen", 420), ("sylvie", 820)),
             opened_by="fade", opening_frames=16),
        Shot("close-up", 48, "bg lecturehall", ("sylvie",), talk(("sylvie", 820)), look=zoom(820, 200, 2, 2, 48)),
    )  # fmt: skip


def truth_about(shots: tuple[Shot, ...]) -> Truth:
    """Lay the shots end to end."""
    scenes, transitions, start = [], [], 0
    for shot in shots:
        end = start + shot.length
        flashes = tuple((start + at, length) for at, length in shot.flashes)
        time_of_day: Literal["day", "night"] | None = "night" if shot.night else "day"
        if shot.background == BLACK:
            time_of_day = None
        scenes.append(
            SceneTruth(shot.name, start, end, shot.characters, shot.background, time_of_day,
                       shot.movement, shot.camera, shot.frames_per_drawing, flashes)
        )  # fmt: skip
        if start > 0:
            half = shot.opening_frames // 2
            transitions.append(TransitionTruth(start, shot.opened_by, start - 1 - half, start + half))
        start = end
    return Truth(FPS, WIDTH, HEIGHT, tuple(scenes), tuple(transitions))


def _pictures(shots: tuple[Shot, ...], folder: Path) -> Iterator[np.ndarray]:
    """Every frame of the film as an RGB picture, uint8 HWC; what is mixed is the last and the first clean picture."""
    for before, shot, after in zip((None, *shots), shots, (*shots[1:], None), strict=False):
        for frame in range(shot.length):
            picture_HWC = _clean(shot, frame, folder)
            left = shot.length - frame
            if before and frame < shot.opening_frames // 2:
                picture_HWC = _mixed(_clean(before, before.length - 1, folder), picture_HWC, frame, shot.opening_frames)
            elif after and left <= after.opening_frames // 2:
                picture_HWC = _mixed(picture_HWC, _clean(after, 0, folder), -left, after.opening_frames)
            yield picture_HWC


def _mixed(old_HWC: np.ndarray, new_HWC: np.ndarray, offset: int, mixed_frames: int) -> np.ndarray:
    """The frame `offset` frames after the new scene's first one, inside a dissolve or fade of `mixed_frames`."""
    share = (offset + mixed_frames // 2 + 1) / (mixed_frames + 1)
    return np.round(old_HWC * (1 - share) + new_HWC * share).astype(np.uint8)


def _clean(shot: Shot, frame: int, folder: Path) -> np.ndarray:
    """A frame of the shot alone, as the camera sees it, uint8 RGB HWC."""
    if any(at <= frame < at + length for at, length in shot.flashes):
        return np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    held = frame if shot.camera != "static" else frame - frame % shot.frames_per_drawing
    return _seen(shot, frame // shot.frames_per_drawing, shot.look(held), folder)


@cache
def _painting(folder: Path, name: str) -> Image.Image:
    if name == BLACK:
        return Image.new("RGB", (WORLD_WIDTH, WORLD_HEIGHT))
    (file,) = sorted(folder.glob(f"*/game/images/{name}.*"))[:1]
    return Image.open(file).convert("RGBA" if not name.startswith("bg ") else "RGB")


@lru_cache(maxsize=8)  # held drawings, and the still half of a dissolve, are painted once
def _seen(shot: Shot, drawing: int, box: Box, folder: Path) -> np.ndarray:
    world = _painting(folder, shot.background).copy()
    for sprite in shot.draw(drawing):
        picture = _painting(folder, sprite.picture)
        picture = picture.resize((round(picture.width * sprite.size), round(picture.height * sprite.size)))
        if sprite.mirrored:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        world.paste(picture, (sprite.x - picture.width // 2, sprite.y - picture.height), picture)
    seen_HWC = np.asarray(world.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR, box=box, reducing_gap=1.0))
    if shot.night:
        seen_HWC = np.round(seen_HWC * np.array((0.35, 0.4, 0.6))).astype(np.uint8)
    return seen_HWC
