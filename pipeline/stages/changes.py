"""Changes between scenes as the detectors find them, before they are judged together (`scenes.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TransitionKind = Literal["cut", "wipe", "dissolve", "fade"]
KINDS: tuple[TransitionKind, ...] = ("cut", "wipe", "dissolve", "fade")

LOPSIDED = 0.2
"""Largest distance of the middle of a lopsided change from the nearer of its ends, as a share of its length."""


@dataclass(frozen=True)
class Change:
    """A detected change, not judged yet; frames are counted from the first one added."""

    before: int
    frame: int
    after: int
    kind: TransitionKind
    is_sure: bool = True
    """False: stands only where no sure change overlaps it."""
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

        A gradual change proceeds evenly. Between an iris that closes on black and one that opens, a window that ends
        inside the second one shows a single change from before the first to there, with its middle near one end. Of
        changes joined from several nothing follows from the middle, so they are never replaced.
        """
        if self.kind == "cut" or other.is_joined or (other.is_sure and not self.is_sure):
            return False
        length, whole = self.after - self.before, other.after - other.before
        shared = min(self.after, other.after) - max(self.before, other.before)
        is_lopsided = not LOPSIDED < (other.frame - other.before) / whole < 1 - LOPSIDED
        return is_lopsided and whole > 2 * length and shared > 0.75 * length

    def joined(self, other: Change) -> Change:
        """Merge two overlapping changes: the frame of the longer one, the kind of the more gradual one.

        A step within a gradual change is a part of it.
        """
        longer = max(self, other, key=lambda change: change.after - change.before)
        kind = max(self.kind, other.kind, key=KINDS.index)
        before = min(self.before, other.before)
        earlier = before - min(one.before if one.is_step else one.start for one in (self, other))
        return Change(before, longer.frame, max(self.after, other.after), kind, self.is_sure, earlier, is_joined=True)
