"""Phrasings: the instruction of a recorded turn as a player might type it, made from the tags of its caption.

The instruction line of a clip has three labelled fields. A player may fill in the same three, or type a sentence:

    recorded    Character: Qiqi; Motion: slowly fly over the sea; Background: morning sky.
    fields      Background: morning sky; Motion: fly over the sea.
    sentence    In the morning sky Qiqi flies over the sea slowly.
    caption     the clip in a plain sentence, if the captioner wrote one

Fields and sentences leave out a part now and then. Some sentences are never trained on: they measure how well free text
is understood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from training.data.order import Position, chooser
from training.data.turns import RecordedTurn
from training.data.windows import Window

Parts = dict[str, str]
"""Known parts of an instruction: `who`, `motion`, `manner`, `place`, and `does`, the motion as a verb for `who`."""

_TRAINED = (
    "{who}|{manner}|{does}|in the {place}",
    "{who}|{does}|{manner}|in the {place}",
    "in the {place}|{who}|{does}|{manner}",
    "{place}:|{who}|{does}|{manner}",
    "let {who}|{motion}|{manner}|in the {place}",
    "{who} should|{manner}|{motion}|at the {place}",
    "{who},|{manner}|{motion},|{place}",
)
"""Sentences in pieces; a piece is left out with its part."""
HELD_OUT = (
    "we are in the {place},|and {who}|{does}|{manner}",
    "I want {who} to|{motion}|{manner},|with the {place} around",
    "now in the {place}:|watch {who}|{motion}|{manner}",
    "next {who}|{manner}|{does},|and around is the {place}",
)
"""Sentences held out for measuring."""
_LABELS = (("Character", "who"), ("Motion", "motion"), ("Background", "place"))
_LEFT_OUT = 8
"""One in so many parts is left out."""
_FINE = 1 << 20
_IRREGULAR = {"be": "is", "have": "has"}
_HISSING = ("s", "x", "z", "ch", "sh", "o")

Choose = Callable[[int], int]


def rephrased(window: Window, share: float, seed: int, position: Position) -> Window:
    """Return a window with a share of its instructions in other words, a function of the seed and the position."""
    choices = (chooser(seed, position, number) for number in range(len(window.turns)))
    pairs = zip(window.turns, choices, strict=True)
    return _with(
        window, [phrasing(t, choose) if choose(_FINE) < share * _FINE else t.instruction for t, choose in pairs]
    )


def as_typed(window: Window, number: int = 0) -> Window:
    """Return a window in sentences that are never trained on; `number` selects the last turn's."""
    first = number - len(window.turns) + 1
    typed = [_sentence(HELD_OUT[(first + at) % len(HELD_OUT)], parts_of(turn)) for at, turn in enumerate(window.turns)]
    return _with(window, [text or turn.instruction for text, turn in zip(typed, window.turns, strict=True)])


def phrasing(turn: RecordedTurn, choose: Choose) -> str:
    """Return the instruction of a turn in other words; the recorded one if the motion is not known.

    Args:
        choose: function from n to a random number below n.
    """
    caption, parts = turn.sample.caption, parts_of(turn)
    if "motion" not in parts:
        return turn.instruction
    kind = choose(3 if caption.sentence else 2)
    if kind == 2:
        return caption.sentence or ""
    kept = {name: value for name, value in parts.items() if name in ("motion", "does") or choose(_LEFT_OUT)}
    return _fields(kept, choose) if kind else _sentence(_TRAINED[choose(len(_TRAINED))], kept)


def wordings(turn: RecordedTurn) -> list[str]:
    """Return the longest texts that may replace a turn's instruction; all other texts leave out parts of these."""
    parts = parts_of(turn)
    sentences = [_sentence(pieces, parts) for pieces in (*_TRAINED, *HELD_OUT)]
    return [text for text in (turn.instruction, turn.sample.caption.sentence, *sentences) if text]


def parts_of(turn: RecordedTurn) -> Parts:
    """Return the known parts of a turn's instruction."""
    caption = turn.sample.caption
    names = [name for name in (caption.actor, *(caption.characters or ())) if name]
    who = _listed(list(dict.fromkeys(names))) or caption.S
    one = len(set(names)) < 2
    found = {"who": who, "motion": caption.MD, "manner": caption.MD and caption.MA, "place": caption.EV}
    parts = {name: value for name, value in found.items() if value}
    if caption.MD:
        parts["does"] = third_person(caption.MD) if one else caption.MD
    return parts


def third_person(motion: str) -> str:
    """Return a motion with its verb in the third person: `fly a kite` becomes `flies a kite`."""
    verb, *rest = motion.split(" ")
    if (verb.endswith("ing") and len(verb) > 5) or (verb.endswith("s") and not verb.endswith("ss")):
        return motion  # of a captioner with another grammar
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        verb = f"{verb[:-1]}ies"
    else:
        verb = _IRREGULAR.get(verb) or verb + ("es" if verb.endswith(_HISSING) else "s")
    return " ".join([verb, *rest])


def _fields(parts: Parts, choose: Choose) -> str:
    """Return labelled fields in a random order."""
    movement = " ".join(parts[name] for name in ("manner", "motion") if name in parts)
    values = {**parts, "motion": movement}
    left = [f"{label}: {values[name]}" for label, name in _LABELS if name in values]
    return "; ".join(left.pop(choose(len(left))) for _ in range(len(left))) + "."


def _sentence(pieces: str, parts: Parts) -> str:
    """Return a sentence of the pieces whose part is known; empty if none is."""
    given = parts if "who" in parts else {**parts, "does": parts.get("motion", "")}
    known = [piece.format(**given) for piece in pieces.split("|") if any(f"{{{name}}}" in piece for name in parts)]
    text = " ".join(known).rstrip(",:;")
    return text and f"{text[0].upper()}{text[1:]}" + ("" if text[-1] in ".!?" else ".")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _with(window: Window, instructions: Sequence[str]) -> Window:
    pairs = zip(window.turns, instructions, strict=True)
    return Window(tuple(turn.model_copy(update={"instruction": text}) for turn, text in pairs))
