"""Mixed frames: which pictures beside a change show some of both scenes.

The detectors find ends where everything stands still. While everything moves, the first and last frames of a gradual
change look like motion, and single drawings in the middle like cuts. Both show in the share of one picture in another,
taken as a mix of it and a third one (`tiny_pictures.share_of`): pictures somewhat farther away show one scene alone.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

import numpy as np

from pipeline.stages.tiny_pictures import mean_change, share_of

BESIDE_SECONDS = 0.25
"""Distance between a picture and the one farther away that shows one scene alone."""
LEAST_MIX = 0.07
"""Least share of the other scene in a mixed picture. On either side of a step of a dissolve it was .09 or more; at real
cuts the smaller of the two was .04 or less in a composed film, and .01 in Big Buck Bunny."""
LIKE = 2.0
"""Largest ratio of a step to the largest change beside it. At the steps of dissolves it was 1.5 or less with few
exceptions, at a cut between scenes that move on every frame 6."""


@dataclass(frozen=True)
class MixedFrames:
    """Judge of the pictures beside changes, in frames counted from the first one.

    Args:
        tiny: result of `tiny_pictures.tiny_gray` for a frame.
        fps: nominal rate.
        least_change: least difference of a changed pixel, in gray levels.
    """

    tiny: Callable[[int], np.ndarray]
    fps: float
    least_change: float

    @property
    def beside(self) -> int:
        """Frames between a picture and the one farther away."""
        return max(1, round(BESIDE_SECONDS * self.fps))

    def is_step(self, cut: int, cuts: Set[int], newest: int) -> bool:
        """Return true if a cut is a step of a dissolve: both pictures at it are mixed, and others near it are alike.

        Args:
            cut: first frame after it.
            cuts: all cuts near it. Those in consecutive frames are one, with mixed frames between.
            newest: last frame there is.
        """
        before, after = cut - 1, cut
        while before in cuts:
            before -= 1
        while after + 1 in cuts:
            after += 1
        old, new = max(before - self.beside, 0), min(after + self.beside, newest)
        is_mixed = self._share(before, old, new) > LEAST_MIX and self._share(after, old, new) < 1 - LEAST_MIX
        beside = max(self._largest(old, before), self._largest(after, new))
        return is_mixed and self._largest(before, after) < LIKE * beside

    def clean_start(self, before: int, after: int, earliest: int) -> int:
        """Return the last frame up to `before` that shows nothing of the scene after a change, or `earliest`."""
        while before - self.beside > earliest and self._share(before, before - self.beside, after) > LEAST_MIX:
            before -= 1
        return before

    def clean_end(self, before: int, after: int, latest: int) -> int:
        """Return the first frame from `after` on that shows nothing of the scene before a change, or `latest`."""
        while after + self.beside < latest and self._share(after, before, after + self.beside) < 1 - LEAST_MIX:
            after += 1
        return after

    def _share(self, frame: int, old: int, new: int) -> float:
        """Return the share of the frame `new` in `frame`, taken as a mix of `old` and `new`."""
        return share_of(self.tiny(frame), self.tiny(old), self.tiny(new), self.least_change)

    def _largest(self, first: int, last: int) -> float:
        """Return the largest change from one frame to the next, in gray levels; 0 without a next one."""
        pairs = ((self.tiny(frame), self.tiny(frame + 1)) for frame in range(first, last))
        return max((mean_change(*pair) for pair in pairs), default=0.0)
