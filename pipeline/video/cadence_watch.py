"""Watch over the fields of a film: every frame compared with the one before, or in clean film a sample of them.

After `QUIET` frames without a trace of telecine or interlace, one frame in `APART` is compared, or more until one shows
that its fields are of one moment; in holds none does. Five frames of telecine show traces in three, and `APART` has no
factor in common with five, so at most one such comparison in turn misses them. At the first trace the frames before it
are compared after all: none of them is decided yet. A film once found not to be progressive is not sampled again, since
single mixed frames between progressive ones, as at the edits of a badly restored film, would be missed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pipeline.video.cadence import DELAY, PROGRESSIVE, CadenceFinder, Evidence, State
from pipeline.video.combs import Fields
from pipeline.video.film_reader import Frame

QUIET = 240
"""Frames without a trace after which a sample is enough: ten seconds of film."""
APART = 8
"""Frames from one comparison of the sample to the next."""


@dataclass(frozen=True)
class WatchedFrame:
    """A frame and its fields, which are sampled when they are first asked for."""

    frame: Frame

    @cached_property
    def fields(self) -> Fields:
        """Sampled luma of both fields."""
        return Fields.of(self.frame.picture)


class CadenceWatch:
    """Decision on the state of each frame, from frames in order; `DELAY` frames late.

    Call `finish` where the sequence breaks, and start with a new watch.

    Args:
        may_sample: False: compare every frame.
    """

    def __init__(self, may_sample: bool) -> None:
        self._may_sample = may_sample
        self._finder: CadenceFinder | None = CadenceFinder()
        """None while a sample is enough."""
        self._quiet = 0
        """Frames since the last trace."""
        self._until_next = 0
        self._latest: deque[WatchedFrame] = deque(maxlen=DELAY + 2)
        """The undecided frames, the newest included, and the one before them."""

    def add(self, frame: WatchedFrame) -> State | None:
        """Take the next frame and return the state of the one `DELAY` frames before it; None at the start."""
        self._latest.append(frame)
        if self._finder is None:
            return self._sampled(frame)
        evidence = Evidence.between(self._latest[-2].fields, frame.fields) if len(self._latest) > 1 else Evidence()
        state = self._finder.add(evidence)
        self._quiet = 0 if evidence.is_trace or state not in (None, PROGRESSIVE) else self._quiet + 1
        self._may_sample &= state in (None, PROGRESSIVE)
        if self._may_sample and self._quiet >= QUIET:
            self._finder, self._until_next = None, APART
        return state

    def finish(self) -> list[State]:
        """Return the states of the frames that are not decided yet."""
        return self._finder.finish() if self._finder else [PROGRESSIVE] * DELAY

    def _sampled(self, frame: WatchedFrame) -> State | None:
        self._until_next -= 1
        if self._until_next > 0:
            return PROGRESSIVE
        evidence = Evidence.between(self._latest[-2].fields, frame.fields)
        if evidence.is_trace:
            self._quiet = 0
            self._finder = CadenceFinder()
            return [self._finder.add(Evidence.between(*_fields(pair))) for pair in pairwise(self._latest)][-1]
        if evidence.is_whole:
            self._until_next = APART
        return PROGRESSIVE


def _fields(pair: tuple[WatchedFrame, WatchedFrame]) -> tuple[Fields, Fields]:
    before, now = pair
    return before.fields, now.fields
