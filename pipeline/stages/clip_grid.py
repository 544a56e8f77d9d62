"""Which frames make a clip: the grid that chops a scene, by presentation time alone.

A scene's clips start at its first clean frame and follow each other every `seconds`. Clip frame j shows what is on
screen j/fps after the clip's start. The rule needs nothing but presentation times, so it is exact for every frame
rate, a variable one included; and it needs no look ahead, so a film can be chopped while it streams by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pipeline.core.config import ClipSettings

TOLERANCE_SECONDS = 0.0043
"""A frame that begins so little after the wanted moment is taken as on screen. Containers round times to a millisecond,
and 24000/1001 drifts from the grid by 2 ms in 2 s: without it the first step of every clip would be a frame short.
(No round number, so that no drift ever meets it exactly.)"""


class Timed(Protocol):
    """A frame as far as the grid is concerned."""

    @property
    def ordinal(self) -> int:
        """Its number in the film."""

    @property
    def seconds(self) -> float:
        """When it comes on screen."""


F = TypeVar("F", bound=Timed)
P = TypeVar("P")


@dataclass(frozen=True)
class Piece(Generic[P]):
    """A clip that is complete: its span, and its pictures in order."""

    start_seconds: float
    end_seconds: float
    source_frames: tuple[int, ...]
    pictures: tuple[P, ...]


class ClipGrid(Generic[F, P]):
    """Chops one scene, whose clean frames are added one by one.

    A clip exists if the frames of all its moments are clean and the clean part lasts as long as the clip.
    The grid holds only the pictures of the clip under way.

    Args:
        settings: frames, rate and spacing.
        keep: turns a frame that was chosen into the picture that is wanted of it; called once per frame.
    """

    def __init__(self, settings: ClipSettings, keep: Callable[[F], P]) -> None:
        self._frames = settings.frames
        self._step_seconds = float(1 / settings.fps)
        self._grid_seconds = settings.seconds
        self._span_seconds = span_seconds(settings)
        self._keep = keep
        self._scene_start: float | None = None
        self._done = 0
        self._on_screen: F | None = None
        self._kept: tuple[int, P] | None = None
        self._chosen: list[tuple[int, P]] = []

    def add(self, frame: F) -> list[Piece[P]]:
        """Take the next clean frame; gives the clips that are complete with it."""
        pieces = self._advance(frame.seconds)
        if self._scene_start is None:
            self._scene_start = frame.seconds
        self._on_screen = frame
        return pieces

    def finish(self, end_seconds: float) -> list[Piece[P]]:
        """The clips that are complete when the last clean frame leaves the screen."""
        return self._advance(end_seconds)

    def _advance(self, until_seconds: float) -> list[Piece[P]]:
        """The frame on screen stays there `until_seconds`."""
        pieces: list[Piece[P]] = []
        if self._on_screen is None or self._scene_start is None:
            return pieces
        while True:
            start = self._scene_start + self._done * self._grid_seconds
            self._choose(start, until_seconds, self._on_screen)
            if len(self._chosen) < self._frames or until_seconds + TOLERANCE_SECONDS < start + self._span_seconds:
                return pieces
            ordinals, pictures = zip(*self._chosen, strict=True)
            pieces.append(Piece(start, start + self._span_seconds, ordinals, pictures))
            self._done += 1
            self._chosen = []

    def _choose(self, start: float, until_seconds: float, frame: F) -> None:
        while len(self._chosen) < self._frames:
            moment = start + len(self._chosen) * self._step_seconds
            if moment + TOLERANCE_SECONDS >= until_seconds:
                return
            if self._kept is None or self._kept[0] != frame.ordinal:
                self._kept = frame.ordinal, self._keep(frame)
            self._chosen.append(self._kept)


def span_seconds(settings: ClipSettings) -> float:
    """The stretch of film that a clip stands for; 17 frames at 8 fps share their last moment with the next clip."""
    return min(settings.seconds, float(settings.frames / settings.fps))
