"""Cadence of fields in each frame (progressive, telecine, interlaced): the cheapest explanation of its combs.

In a film under telecine (3:2 pulldown) the fields of four film frames A B C D fill five frames of video:

    phase            0     1     2     3     4
    first field      A     B     B     C     D
    second field     A     B     C     D     D

Phases 2 and 3 are combed where something moves. In phases 2, 3 and 4, however, a first field shows the same moment as
the second field of the frame before. In film shifted by a field (often at 25 frames per second) this holds for every
frame, and every frame is combed. In interlaced video no two fields show the same moment.

Each state of `STATES` says which fields are of one moment; combs between them cost up to 1, and so does a change of
state. The cheapest sequence (Viterbi's algorithm, a second behind the film) bridges holds, in which every state is
free, and finds the jump of the phase at an edit.

In clean film a sample is enough. After `QUIET` frames without a trace of telecine or interlace, one frame in `APART` is
compared. In holds nothing moves, so the next frames are compared too, until the fields of one show the same moment.
Three of five frames of telecine show traces, and `APART` has no factor in common with five, so at most one such
comparison in turn misses them. At the first trace the frames before are compared after all: none of them is decided
yet. A film once found not to be progressive is not sampled again, because sampling would miss single mixed frames
between progressive ones, as at the edits of a badly restored film.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from math import inf

from pipeline.core.records import FieldKind
from pipeline.video.combs import FEW, Combs, Fields, Motion, certainly_combed, combs
from pipeline.video.film_reader import Frame

SHIFTED = 5
"""Phase of all frames of a film shifted by a field: the first field, and the second field of the frame before."""
DELAY = 24
"""Frames by which a decision follows its frame: a second of telecine."""
CHANGE_COST: dict[FieldKind, float] = {"progressive": 3.0, "telecine": 2.0, "interlaced": 3.0}
"""Costs of entering a state out of turn. One frame that only seems combed must not be enough, and a stretch of
telecine whose combs the coding has blurred is worth less than the two changes to leave it and to enter it again."""
LONE_COST = 0.8
"""Cost of a mixed frame among progressive ones: less than its combs, and three of them more than telecine."""
TELECINE_COST = 0.002
"""Cost of each frame of telecine, so that it is only found if there is evidence."""
INTERLACED_COST = 0.1
ALL_COMBED = 0.25
"""Least share of the combs of fields three apart in interlaced fields one apart; in film some fields have none."""
REPEAT_COST = 0.4
"""Cost of a progressive frame of which only one field moves. Thin level lines may all lie in one field."""
ACROSS_COST = 0.8
"""Cost of unexpected combs across frames; thin lines that scroll look like them."""
NO_REPEAT_COST = 0.4
"""Cost of a field that should repeat and does not; in noise it does not."""
QUIET = 240
"""Frames without a trace after which a sample is enough: ten seconds of film."""
APART = 8
"""Frames from one comparison of the sample to the next."""
TRACE, WHOLE = 0.05, 0.5
"""Certainty from which there is a trace of telecine or interlace, and from which a moving frame shows one moment. Of
14,314 pairs of frames of Big Buck Bunny, 1 shows a trace, and 84% one moment."""


@dataclass(frozen=True)
class Evidence:
    """Certainties, 0 to 1, about a frame.

    The two fields of the frame are its own pair. A pair across joins one of them with the other field of the frame
    before: in the tuples, first the top field of the frame, then its bottom field.
    """

    across_smooth: tuple[float, float] = (0.0, 0.0)
    """Only this pair across is smooth; its own pair and the other one are combed."""
    own_smooth: float = 0.0
    """Only its own pair is smooth; both pairs across are combed."""
    repeats: tuple[float, float] = (0.0, 0.0)
    """Its top field, or its bottom field, repeats the frame before although the other field moved."""
    all_combed: float = 0.0
    """Every pair is combed."""
    both_move: float = 0.0
    """Both of its fields differ from the frame before."""

    @property
    def is_trace(self) -> bool:
        """Return True if anything speaks against progressive film."""
        return max(*self.across_smooth, *self.repeats, self.all_combed) > TRACE

    @property
    def is_whole(self) -> bool:
        """Return True if the frame moves, and both its fields are of one moment."""
        return self.own_smooth > WHOLE

    @classmethod
    def between(cls, before: Fields, now: Fields) -> Evidence:
        """Compare a frame with the one before."""
        # 1. Nothing follows from frames that show the same.
        motion = Motion.between(before, now)
        if max(motion.top, motion.bottom) < FEW:
            return cls()
        # 2. Measure the combs of three pairs: its own fields, and each with the other field of the frame before.
        #    A pair of one moment has clearly fewer combs than both others.
        pairs = (now, now), (now, before), (before, now)
        own, top, bottom = (combs(*pair, motion) for pair in pairs)
        most = max(own.amount, top.amount, bottom.amount)

        def smooth(pair: Combs, *others: Combs) -> float:
            # thin lines that move up a line each frame are smooth in both pairs across: nothing follows from one alone
            return min(other.exceed(pair, most) for other in others)

        own_smooth, across_smooth = smooth(own, top, bottom), (smooth(top, own, bottom), smooth(bottom, own, top))
        # 3. If no pair is smooth, each may be of two moments, as in interlaced video. Then the pair across that is
        #    three fields apart has the most combs, or a block of the picture is certainly combed in both others.
        all_combed = 0.0
        if max(own_smooth, *across_smooth) < 0.5:
            near, far, across = (top, bottom, pairs[1]) if top.amount < bottom.amount else (bottom, top, pairs[2])
            least = min(own.amount, near.amount)
            if least > ALL_COMBED * far.amount:
                all_combed = min(far.exceed(own, most), far.exceed(near, most))
            if least > FEW:
                certain = min(certainly_combed(*pair, motion) for pair in (pairs[0], across))
                all_combed = max(all_combed, certain)
        return cls(across_smooth, own_smooth, motion.repeats(), all_combed, motion.alike)


@dataclass(frozen=True)
class State:
    """Possible position of a frame in a cadence."""

    kind: FieldKind
    phase: int | None = None
    """Phase of telecine, or `SHIFTED`; None in telecine is a lone mixed frame."""
    top_first: bool = True

    def cost_alone(self, evidence: Evidence) -> float:
        """Cost of the frame's own combs, if its two fields should be of one moment."""
        if self.kind == "interlaced":
            return INTERLACED_COST
        if self.phase is None and self.kind == "telecine":
            return LONE_COST + evidence.all_combed
        mixed = self.phase in (2, 3, SHIFTED)
        own = 0.0 if mixed else max(evidence.across_smooth)
        return max(own, evidence.all_combed) + (TELECINE_COST if self.kind == "telecine" else 0.0)

    def cost_across(self, evidence: Evidence) -> float:
        """Cost of combs across, and of repeated fields, if the frame follows the frame before in turn."""
        repeats = evidence.repeats
        if self.kind == "progressive":
            return REPEAT_COST * max(repeats)
        if self.kind == "interlaced":
            return max(evidence.own_smooth, *evidence.across_smooth, *repeats)
        if self.phase is None:
            return evidence.own_smooth
        if self.phase < 2:
            return max(repeats)
        first, second = (0, 1) if self.top_first else (1, 0)
        combed = ACROSS_COST * max(evidence.own_smooth, evidence.across_smooth[second])
        if self.phase == 3:
            return combed
        if self.phase == SHIFTED:
            return max(combed, REPEAT_COST * max(repeats))
        other = second if self.phase == 2 else first
        return max(combed, repeats[other], NO_REPEAT_COST * evidence.both_move)


PROGRESSIVE, LONE, INTERLACED = State("progressive"), State("telecine"), State("interlaced")
STATES = (
    PROGRESSIVE,
    LONE,
    INTERLACED,
    *(State("telecine", phase, top_first) for top_first in (True, False) for phase in range(5)),
    *(State("telecine", SHIFTED, top_first) for top_first in (True, False)),
)
_IN_TURN = (
    *((0, 1), (0,), (2,)),
    *((first + (phase - 1) % 5,) for first in (3, 8) for phase in range(5)),
    *((13,), (14,)),
)
"""Numbers of the states that each state may follow without a change."""


class CadenceFinder:
    """Decision on the state of each frame, from the evidence about frames in order; `DELAY` frames late.

    Call `finish` where the sequence breaks, and start with a new finder.
    """

    def __init__(self) -> None:
        # below the cost of a change: the first frame, which has no comparison, gets the state of the next
        self._costs = [0.0 if state is PROGRESSIVE else 0.9 * CHANGE_COST[state.kind] for state in STATES]
        self._paths: deque[list[int]] = deque()
        """Number of the state before each state, for each undecided frame."""

    def add(self, evidence: Evidence) -> State | None:
        """Take the next frame and return the state of the one `DELAY` frames before it; None at the start."""
        self._step(evidence)
        if len(self._paths) <= DELAY:
            return None
        # 1. Decide on the oldest frame: its state in the sequence that is the cheapest so far.
        first = self._first_states()
        decided = first[_cheapest(self._costs)]
        # 2. Rule out the sequences that begin otherwise: two explanations of equal cost must not alternate.
        self._costs = [cost if state == decided else inf for cost, state in zip(self._costs, first, strict=True)]
        self._paths.popleft()
        return STATES[decided]

    def finish(self) -> list[State]:
        """Return the states of the frames that are not decided yet."""
        number, states = _cheapest(self._costs), []
        for path in reversed(self._paths):
            states.append(STATES[number])
            number = path[number]
        return states[::-1]

    def _step(self, evidence: Evidence) -> None:
        """Extend the cheapest sequence to each state by one frame."""
        cheapest = _cheapest(self._costs)
        costs, path = [], []
        for state, in_turn in zip(STATES, _IN_TURN, strict=True):
            # 1. The frame before is in a state that this one follows in turn, and its fields tell what they should.
            before = min(in_turn, key=self._costs.__getitem__)
            cost = self._costs[before] + state.cost_across(evidence)
            # 2. Or the state changes here, as at an edit: the frame before belongs to another scene and tells nothing.
            changed = self._costs[cheapest] + CHANGE_COST[state.kind]
            if state is not LONE and changed < cost:
                before, cost = cheapest, changed
            # 3. The combs of the frame itself cost the same either way.
            path.append(before)
            costs.append(cost + state.cost_alone(evidence))
        # 4. Only differences count: keep the costs small over hours of film.
        least = min(costs)
        self._costs = [cost - least for cost in costs]
        self._paths.append(path)

    def _first_states(self) -> list[int]:
        """Number of the oldest undecided frame's state in the cheapest sequence to each state of the newest."""
        numbers = list(range(len(STATES)))
        for path in islice(reversed(self._paths), len(self._paths) - 1):
            numbers = [path[number] for number in numbers]
        return numbers


def _cheapest(costs: list[float]) -> int:
    return min(range(len(costs)), key=costs.__getitem__)


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

    Call `finish` where the sequence breaks, and start with a new watch. Without `may_sample`, it compares every frame.
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
        # 1. Compare every frame with the one before, and decide on the frame `DELAY` frames ago.
        evidence = Evidence.between(self._latest[-2].fields, frame.fields) if len(self._latest) > 1 else Evidence()
        state = self._finder.add(evidence)
        # 2. After `QUIET` frames that are progressive beyond doubt a sample is enough, unless some ever were not.
        self._quiet = 0 if evidence.is_trace or state not in (None, PROGRESSIVE) else self._quiet + 1
        self._may_sample &= state in (None, PROGRESSIVE)
        if self._may_sample and self._quiet >= QUIET:
            self._finder, self._until_next = None, APART
        return state

    def finish(self) -> list[State]:
        """Return the states of the frames that are not decided yet."""
        return self._finder.finish() if self._finder else [PROGRESSIVE] * DELAY

    def _sampled(self, frame: WatchedFrame) -> State | None:
        # 1. Compare one frame in `APART`, and in holds more.
        self._until_next -= 1
        if self._until_next > 0:
            return PROGRESSIVE
        evidence = Evidence.between(self._latest[-2].fields, frame.fields)
        # 2. At a trace, compare all undecided frames after all; the search for the cadence starts with them.
        if evidence.is_trace:
            self._quiet = 0
            self._finder = CadenceFinder()
            compared = (Evidence.between(before.fields, now.fields) for before, now in pairwise(self._latest))
            return [self._finder.add(evidence) for evidence in compared][-1]
        if evidence.is_whole:
            self._until_next = APART
        return PROGRESSIVE
