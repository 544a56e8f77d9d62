"""Changes between scenes as the detectors find them, and the mixed frames at their ends.

The detectors find ends where everything stands still. While everything moves, the first and last frames of a gradual
change look like motion, and single drawings in the middle like cuts. To find both, a picture is treated as a mix of two
pictures somewhat farther away, which show one scene each; `same_scene.share_of` gives their shares. `scenes.py` judges
changes near each other together.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.stages import scene_thresholds as limits
from pipeline.stages.same_scene import mean_change, share_of

TransitionKind = Literal["cut", "wipe", "dissolve", "fade"]
KINDS: tuple[TransitionKind, ...] = ("cut", "wipe", "dissolve", "fade")


@dataclass(frozen=True)
class Change:
    """A detected change; frames are counted from the first one added."""

    before: int
    frame: int
    after: int
    kind: TransitionKind
    is_sure: bool = True
    """False: the change counts only if no sure change overlaps it."""
    earlier: int = 0
    """Number of frames up to `before` that already show some of the new scene, missed while everything moves."""
    is_step: bool = False
    """True: a step of a dissolve that looks like a cut."""
    is_joined: bool = False
    """True: joined from several detections."""

    @property
    def start(self) -> int:
        """Last frame that shows the old scene alone."""
        return self.before - self.earlier

    def frames_to(self, other: Change) -> int:
        """Return the number of frames between two changes; below 1 if they touch or overlap."""
        return max(self.before, other.before) - min(self.after, other.after) + 1

    def overlaps(self, other: Change) -> bool:
        """Return true if two changes share a frame that is not clean."""
        return self.before < other.after and other.before < self.after

    def replaces(self, other: Change) -> bool:
        """Return true if another gradual change is a false detection of this one: it is longer, and lopsided.

        A gradual change proceeds evenly. If one iris closes on black and another opens, a window that ends inside the
        second iris shows a single change. It begins before the first iris, and its middle is near one end. The middle
        of joined changes tells nothing, so they are never replaced.
        """
        if self.kind == "cut" or other.is_joined or (other.is_sure and not self.is_sure):
            return False
        length, whole = self.after - self.before, other.after - other.before
        shared = min(self.after, other.after) - max(self.before, other.before)
        is_lopsided = not limits.LOPSIDED < (other.frame - other.before) / whole < 1 - limits.LOPSIDED
        return is_lopsided and whole > 2 * length and shared > 0.75 * length

    def joined(self, other: Change) -> Change:
        """Merge two overlapping changes: the frame of the longer one, the kind of the more gradual one.

        A step within a gradual change is part of that change.
        """
        longer = max(self, other, key=lambda change: change.after - change.before)
        kind = max(self.kind, other.kind, key=KINDS.index)
        before = min(self.before, other.before)
        earlier = before - min(one.before if one.is_step else one.start for one in (self, other))
        return Change(before, longer.frame, max(self.after, other.after), kind, self.is_sure, earlier, is_joined=True)


@dataclass(frozen=True)
class MixedFrames:
    """Search for mixed frames next to changes, in frames counted from the first one.

    Args:
        tiny: result of `same_scene.tiny_gray` for a frame.
        fps: nominal rate.
        least_change: least difference of a changed pixel, in gray levels.
    """

    tiny: Callable[[int], np.ndarray]
    fps: float
    least_change: float

    @property
    def beside(self) -> int:
        """Frames between a picture and the one farther away."""
        return max(1, round(limits.BESIDE_SECONDS * self.fps))

    def is_step(self, cut: int, cuts: Set[int], newest: int) -> bool:
        """Return true if a cut is a step of a dissolve: both pictures at it are mixed, and others near it are alike.

        Args:
            cut: first frame after it.
            cuts: all cuts near it. Cuts in consecutive frames count as one, with mixed frames between.
            newest: last frame there is.
        """
        before, after = cut - 1, cut
        while before in cuts:
            before -= 1
        while after + 1 in cuts:
            after += 1
        old, new = max(before - self.beside, 0), min(after + self.beside, newest)
        shows_new = self._share(before, old, new) > limits.LEAST_MIX
        shows_old = self._share(after, old, new) < 1 - limits.LEAST_MIX
        beside = max(self._largest(old, before), self._largest(after, new))
        return shows_new and shows_old and self._largest(before, after) < limits.LARGEST_BESIDE * beside

    def clean_start(self, before: int, after: int, earliest: int) -> int:
        """Return the last frame up to `before` that shows nothing of the scene after a change, or `earliest`."""
        while before - self.beside > earliest and self._share(before, before - self.beside, after) > limits.LEAST_MIX:
            before -= 1
        return before

    def clean_end(self, before: int, after: int, latest: int) -> int:
        """Return the first frame from `after` on that shows nothing of the scene before a change, or `latest`."""
        while after + self.beside < latest and self._share(after, before, after + self.beside) < 1 - limits.LEAST_MIX:
            after += 1
        return after

    def _share(self, frame: int, old: int, new: int) -> float:
        """Return the share of the frame `new` in `frame`, treated as a mix of `old` and `new`."""
        return share_of(self.tiny(frame), self.tiny(old), self.tiny(new), self.least_change)

    def _largest(self, first: int, last: int) -> float:
        """Return the largest change from one frame to the next, in gray levels; 0 without a next one."""
        pairs = ((self.tiny(frame), self.tiny(frame + 1)) for frame in range(first, last))
        return max((mean_change(*pair) for pair in pairs), default=0.0)
