"""Choice of the frames of a scene's clips, by presentation time alone.

With t_0 the time of the scene's first clean frame, clip c (from 0) starts at t_0 + c * seconds, and its frame j shows
the picture on screen at

    t(c, j) = t_0 + c * seconds + j / fps           j = 0..frames - 1

With `placing = "overlap"` the rest of a scene gives one more clip. Clips then start where others end or later, so all
frames lie on one row of moments t_0 + n / fps. The last clip takes the last clean moments:

    t(last, j) = t_0 + (m - frames + 1 + j) / fps   m the largest n whose frame is on screen for 1 / fps

It reaches back into the clip before it, and is left out if nothing is left after that one.

If a clip does not show one scene alone, a later start is tried, `TRIED_STEPS` frames of a clip at a time, and t_0 moves
on by as much. If no start within the length of the clip is better, or the scene ends, the clip stays where it was. So
it does where clips do not start on the row of moments, such as every 2.1 seconds at 8 fps.

A frame that stays on screen for longer than `HELD_SECONDS`, mostly because of a wrong timestamp, is in no clip. Clips
end before it, as at the end of a scene, and start again at the next frame, whose time is the new t_0.

Only presentation times count, so the grid is exact for every frame rate, including variable ones. It needs no
look-ahead, so a film can be split while it is decoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Generic, Protocol, TypeVar

from pipeline.core.config import ClipSettings

TOLERANCE_SECONDS = 0.0043
"""A frame that starts at most this long after the wanted time counts as on screen. Containers round timestamps to a
millisecond, and 24000/1001 drifts from the grid by 2 ms in 2 s. Without the tolerance, the first step of every clip
would be a frame short. (Not a round number, so that no drift equals it exactly.)"""

TRIED_STEPS = 2
"""Clip frames between the starts that are tried, a quarter of a second by default."""
HELD_SECONDS = 30
"""Longest time on screen of a frame in clips: a timestamp that jumps by an hour would give 1,800 still clips."""


class Timed(Protocol):
    """Interface of a frame to the grid."""

    @property
    def ordinal(self) -> int:
        """Number of the frame in the film."""

    @property
    def seconds(self) -> float:
        """Presentation time of the frame."""


F = TypeVar("F", bound=Timed)
P = TypeVar("P")


@dataclass(frozen=True)
class Piece(Generic[P]):
    """A complete clip: its span, and its pictures in order."""

    start_seconds: float
    end_seconds: float
    source_frames: tuple[int, ...]
    pictures: tuple[P, ...]
    overlap_seconds: float = 0.0
    """Shared with the piece before."""


class ClipGrid(Generic[F, P]):
    """Splitter of one scene into clips; the scene's clean frames are added one by one.

    A clip exists if the frames at all its times are clean and the clean part of the scene lasts as long as the clip.
    The grid buffers the pictures of the current clip, and of the starts tried for it.

    Args:
        settings: frames, rate and spacing.
        keep: callback that converts a chosen frame into the picture to keep; called once per frame.
        is_clean: callback that returns whether the pictures of a clip show one scene alone.
    """

    def __init__(
        self, settings: ClipSettings, keep: Callable[[F], P], is_clean: Callable[[Sequence[P]], bool] = lambda _: True
    ) -> None:
        self._settings = settings
        self._is_clean = is_clean
        self._frames = settings.frames
        self._step_seconds = float(1 / settings.fps)
        self._grid_seconds = settings.seconds
        self._span_seconds = span_seconds(settings)
        self._keep = keep
        self._kept: tuple[int, P] | None = None
        self._begin()

    def _begin(self) -> None:
        self._scene_start: float | None = None
        self._done = 0
        self._on_screen: F | None = None
        self._shift = 0
        """Clip frames by which the next clip starts later than on the grid."""
        self._chosen: list[tuple[int, P]] = []
        """Frames from the next clip's place on the grid."""
        self._latest: deque[tuple[int, P]] = deque(maxlen=self._frames + 1)
        """The last frames of the row of moments, if `placing` is overlap."""

    def add(self, frame: F) -> list[Piece[P]]:
        """Take the next clean frame and return the clips that it completes."""
        if self._is_held(frame.seconds):
            pieces = self.finish(frame.seconds)
            self._begin()
        else:
            pieces = self._advance(frame.seconds)
        if self._scene_start is None:
            self._scene_start = frame.seconds
        self._on_screen = frame
        return pieces

    def finish(self, end_seconds: float) -> list[Piece[P]]:
        """Return the clips completed when the last clean frame leaves the screen."""
        if self._on_screen is not None and self._is_held(end_seconds):
            end_seconds = self._on_screen.seconds
        pieces = self._advance(end_seconds)
        while self._shift:  # the scene ends before a better start was found
            pieces += [self._piece(0), *self._advance(end_seconds)]
        last = self._last_piece(end_seconds)
        return [*pieces, last] if last else pieces

    def _is_held(self, until_seconds: float) -> bool:
        return self._on_screen is not None and until_seconds - self._on_screen.seconds > HELD_SECONDS

    def _advance(self, until_seconds: float) -> list[Piece[P]]:
        """Return the clips completed if the frame on screen stays there `until_seconds`."""
        pieces: list[Piece[P]] = []
        if self._on_screen is None or self._scene_start is None:
            return pieces
        while True:
            start = self._scene_start + self._done * self._grid_seconds
            end = start + self._shift * self._step_seconds + self._span_seconds
            self._choose(start, until_seconds, self._on_screen)
            if len(self._chosen) < self._frames + self._shift or until_seconds + TOLERANCE_SECONDS < end:
                return pieces
            if self._is_clean([picture for _, picture in self._chosen[self._shift :]]):
                pieces.append(self._piece(self._shift))
            elif self._shift + TRIED_STEPS < self._frames and self._settings.stride.denominator == 1:
                self._shift += TRIED_STEPS
            else:
                pieces.append(self._piece(0))

    def _piece(self, shift: int) -> Piece[P]:
        """Return the next clip, which starts later than on the grid by `shift` frames, and go on after it."""
        assert self._scene_start is not None
        self._scene_start += shift * self._step_seconds
        start = self._scene_start + self._done * self._grid_seconds
        ordinals, pictures = zip(*self._chosen[shift : shift + self._frames], strict=True)
        self._done, self._shift = self._done + 1, 0
        self._chosen = self._chosen[shift + ceil(self._settings.stride) :]
        return Piece(start, start + self._span_seconds, ordinals, pictures)

    def _last_piece(self, end_seconds: float) -> Piece[P] | None:
        """Return the clip of the last moments, which ends with the scene; None if the grid leaves no rest."""
        if self._settings.placing == "grid" or self._scene_start is None or not self._done:
            return None
        previous = (self._done - 1) * int(self._settings.stride)
        first = (self._done * int(self._settings.stride)) + len(self._chosen) - self._frames
        latest = list(self._latest)
        if self._scene_start + first * self._step_seconds + self._span_seconds > end_seconds + TOLERANCE_SECONDS:
            first, latest = first - 1, latest[:-1]  # the last frame leaves the screen before its time is over
        if first <= previous:
            return None
        start = self._scene_start + first * self._step_seconds
        ordinals, pictures = zip(*latest[-self._frames :], strict=True)
        shared = self._scene_start + (self._done - 1) * self._grid_seconds + self._span_seconds - start
        return Piece(start, start + self._span_seconds, ordinals, pictures, shared)

    def _choose(self, start: float, until_seconds: float, frame: F) -> None:
        while len(self._chosen) < self._frames + self._shift:
            moment = start + len(self._chosen) * self._step_seconds
            if moment + TOLERANCE_SECONDS >= until_seconds:
                return
            if self._kept is None or self._kept[0] != frame.ordinal:
                self._kept = frame.ordinal, self._keep(frame)
            self._chosen.append(self._kept)
            if self._settings.placing == "overlap":
                self._latest.append(self._kept)


def span_seconds(settings: ClipSettings) -> float:
    """Return the length of film that a clip covers; of 17 frames at 8 fps, the last is also the next clip's first."""
    return min(settings.seconds, float(settings.frames / settings.fps))
