"""Cadence of fields: progressive, telecine or interlaced, for each frame, as the cheapest explanation of its combs.

In a film under telecine (3:2 pulldown) the fields of four film frames A B C D fill five frames of video:

    phase            0     1     2     3     4
    first field      A     B     B     C     D
    second field     A     B     C     D     D

Phases 2 and 3 are combed where something moves, but a first field and the second field of the frame before are of one
moment in phases 2, 3 and 4. In interlaced video no two fields are. Each state of `STATES` says which fields are of one
moment; combs between them cost up to 1, and so does a change of state. The cheapest sequence (Viterbi's algorithm, a
few frames behind the film) bridges holds, in which every state is free, and finds the jump of the phase at an edit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from pipeline.video.combs import Fields, combs, motion

Kind = Literal["progressive", "telecine", "interlaced"]

DELAY = 12
"""Frames by which a decision follows its frame: two cycles of telecine and two frames more."""
CHANGE_COST: dict[Kind, float] = {"progressive": 1.5, "telecine": 1.5, "interlaced": 3.0}
"""Costs of entering a state out of turn. One frame that only seems combed must not be enough."""
LONE_COST = 0.6
"""Cost of a frame that mixes two film frames among progressive ones: less than its combs, two more than a cycle."""
TELECINE_COST = 0.002
"""Cost of each frame of telecine, so that it is only found where something speaks for it."""
INTERLACED_COST = 0.2
INTERLACED_PAIRS = 0.7
"""Cost of interlaced video per difference between two neighbouring pairs of fields: they are equally combed."""


@dataclass(frozen=True)
class Evidence:
    """Combs, 0 to 1, of pairs of fields that may be of one moment."""

    own: float = 0.0
    """The two fields of the frame."""
    top_first: float = 0.0
    """Its top field and the bottom field of the frame before."""
    bottom_first: float = 0.0
    """Its bottom field and the top field of the frame before."""


@dataclass(frozen=True)
class State:
    """Possible place of a frame in a cadence."""

    kind: Kind
    phase: int | None = None
    """Phase of telecine; None in telecine is a lone mixed frame."""
    top_first: bool = True

    def cost_alone(self, evidence: Evidence) -> float:
        """Cost of the frame's own combs, if its two fields should be of one moment."""
        if self.kind == "progressive":
            return evidence.own
        if self.kind == "interlaced":
            return INTERLACED_COST
        if self.phase is None:
            return LONE_COST
        return TELECINE_COST + (0.0 if self.phase in (2, 3) else evidence.own)

    def cost_across(self, evidence: Evidence) -> float:
        """Cost of combs between the frame and the one before, if it follows that in turn."""
        across = evidence.top_first if self.top_first else evidence.bottom_first
        if self.kind == "interlaced":
            return INTERLACED_PAIRS * abs(evidence.own - min(evidence.top_first, evidence.bottom_first))
        if self is LONE:
            return min(evidence.top_first, evidence.bottom_first)
        return across if self.phase in (2, 3, 4) else 0.0


PROGRESSIVE, LONE, INTERLACED = State("progressive"), State("telecine"), State("interlaced")
STATES = (
    PROGRESSIVE,
    LONE,
    INTERLACED,
    *(State("telecine", phase, top_first) for top_first in (True, False) for phase in range(5)),
)
_IN_TURN = ((0, 1), (0,), (2,), *((first + (phase - 1) % 5,) for first in (3, 8) for phase in range(5)))
"""Numbers of the states that each state may follow without a change."""


class CadenceFinder:
    """Decision on the state of each frame, from frames in order; `DELAY` frames late.

    Call `finish` where the sequence breaks, and start with a new finder.
    """

    def __init__(self) -> None:
        self._last: Fields | None = None
        self._calm = 0
        self._costs = [0.0 if state is PROGRESSIVE else CHANGE_COST[state.kind] for state in STATES]
        self._paths: deque[list[int]] = deque()
        """Number of the state before each state, for each undecided frame."""

    def add(self, fields: Fields) -> State | None:
        """Take the next frame and return the state of the one `DELAY` frames before it; None at the start."""
        self._step(self._evidence(fields))
        self._last = fields
        if len(self._paths) <= DELAY:
            return None
        decided = self._decided()[0]
        self._paths.popleft()
        return decided

    def finish(self) -> list[State]:
        """Return the states of the frames that are not decided yet."""
        return self._decided()

    def _evidence(self, fields: Fields) -> Evidence:
        if self._last is None:
            return Evidence()
        motion_LC = motion(fields, self._last)
        own = combs(fields, motion_LC)
        self._calm = self._calm + 1 if own == 0 else 0
        if self._calm > DELAY and min(self._costs) == self._costs[0]:
            return Evidence()  # progressive, and no other state could win: the pairs across frames are not needed
        top_first, bottom_first = (combs(pair, motion_LC) for pair in fields.woven(self._last))
        return Evidence(own, top_first, bottom_first)

    def _step(self, evidence: Evidence) -> None:
        cheapest = min(range(len(STATES)), key=self._costs.__getitem__)
        costs, path = [], []
        for state, in_turn in zip(STATES, _IN_TURN, strict=True):
            before = min(in_turn, key=self._costs.__getitem__)
            cost = self._costs[before] + state.cost_across(evidence)
            changed = self._costs[cheapest] + CHANGE_COST[state.kind]
            if state is not LONE and changed < cost:  # at an edit the frame before belongs to another scene
                before, cost = cheapest, changed
            path.append(before)
            costs.append(cost + state.cost_alone(evidence))
        least = min(costs)
        self._costs = [cost - least for cost in costs]
        self._paths.append(path)

    def _decided(self) -> list[State]:
        number = min(range(len(STATES)), key=self._costs.__getitem__)
        states = []
        for path in reversed(self._paths):
            states.append(STATES[number])
            number = path[number]
        return states[::-1]
