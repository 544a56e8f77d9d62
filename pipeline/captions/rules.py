"""Rules that need no model: captions from measurements alone, and doubts about the captions of a model.

The rules captioner states whether the picture moves and what the camera does (tables looks and motion), an adverb for
the motion level, and night or day if the light is unambiguous. Everything that cannot be measured (characters, actions,
emotions) stays null, and the caption's source is `rules`, so it is not mistaken for a description.

A flag is a text `<kind>: <detail>`: a doubt that the cast, the motion level, the scene or the words themselves raise
against the model's words. Pages count the kinds, and a review begins with flagged clips; nothing else depends on flags.

Sentences that are short, repeat themselves or equal the sentence of a neighbour have the limits of cosmos-curator
(NVIDIA, `caption_quality_flags.py` of 2026, Apache-2.0), which sees the words that remain without case and the last
punctuation mark. Two clips are neighbours if no clip with a caption lies between them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import punctuation
from typing import Any

from pipeline.core.measurements import Looks, Motion
from pipeline.core.progress import Progress
from pipeline.core.records import Caption, Clip
from pipeline.core.store import FilmFolder

RULES_VERSION = 2
ADVERBS = {1: "barely", 2: "slightly", 3: "moderately", 4: "strongly", 5: "intensely"}
"""Adverb of each motion level."""

_NIGHT_LIGHT, _NIGHT_DARK_SHARE = 40.0, 0.5
_DAY_LIGHT, _DAY_DARK_SHARE = 110.0, 0.1
_STILL = "stay still"

UNKNOWN_CHARACTERS = "characters unknown"
ONCE_IN_SCENE = "character once in scene"
SUBJECT = "subject against cast"
SOCIAL = "social alone"
ADVERB = "adverb against level"
SHORT = "short sentence"
REPETITIVE = "repetitive sentence"
AS_NEIGHBOUR = "sentence of neighbour"

_RAISED_HERE = {ONCE_IN_SCENE, SUBJECT, SOCIAL, ADVERB, SHORT, REPETITIVE, AS_NEIGHBOUR}
LEAST_CLIPS = 3
"""Clips of a scene with known characters from which on one of them can be out of place."""
_FAINT = {
    *("barely", "calmly", "delicately", "faintly", "gently", "hardly", "imperceptibly", "lightly", "quietly"),
    *("slightly", "slowly", "softly", "still", "subtly"),
}
_STRONG = {
    *("abruptly", "energetically", "fast", "fiercely", "forcefully", "frantically", "furiously", "hastily"),
    *("intensely", "powerfully", "quickly", "rapidly", "strongly", "swiftly", "vigorously", "violently", "wildly"),
}
_FAINT_UP_TO, _STRONG_FROM = 3, 3
"""Levels that a faint and a strong adverb suit."""
_PEOPLE = {
    *("baby", "boy", "child", "couple", "crowd", "gentleman", "girl", "kid", "lady", "man", "people", "person"),
    *("soldier", "student", "teacher", "teenager", "toddler", "warrior", "woman"),
}
_LEAST_WORDS = 4
_ONE_WORD_SHARE, _ONE_WORD_FROM = 0.5, 6
"""Share of a sentence that one word takes up if it is repetitive, and the least number of words to judge by it."""
_TRIGRAM_TIMES = 3
_DISTINCT_SHARE, _DISTINCT_FROM = 0.4, 8
"""Share of different words below which a sentence is repetitive, and the least number of words to judge by it."""
_ALIKE = 0.9
"""Words that two sentences share, over the words in either (Jaccard index), from which on they are equal."""


@dataclass(frozen=True)
class RulesCaptioner:
    """Captioner from facts: offline, free and deterministic."""

    def ingredients(self) -> dict[str, Any]:
        """Version of the rules."""
        return {"captioner": "rules", "rules": RULES_VERSION}

    def captions(
        self, folder: FilmFolder, clips: Sequence[Clip], levels: Mapping[str, int | None], progress: Progress
    ) -> list[Caption]:
        """Return a caption for every clip, from the film's tables looks and motion."""
        looks = {row.clip_id: row for row in folder.read("looks", Looks)}
        motions = {row.clip_id: row for row in folder.read("motion", Motion)}
        rows = [rule_caption(c.clip_id, levels[c.clip_id], looks.get(c.clip_id), motions.get(c.clip_id)) for c in clips]
        progress(len(rows), len(rows))
        return rows


def rule_caption(clip_id: str, level: int | None, looks: Looks | None, motion: Motion | None) -> Caption:
    """Return the caption for the facts of one clip; a missing fact leaves its tags null."""
    moves = _motion_phrase(motion) if motion else None
    # no motion, so no manner of motion
    manner = ADVERBS[level] if level and moves not in (None, _STILL) else None
    return Caption(clip_id=clip_id, source="rules", MD=moves, MA=manner, EV=_time_of_day(looks) if looks else None)


def _motion_phrase(motion: Motion) -> str:
    if motion.scope_px == 0 or motion.unique_frames <= 1:
        return _STILL
    if motion.camera_kind is None:
        return "move"
    if motion.camera_kind == "static":
        return "move before a still camera"
    way = f" {motion.camera_direction}" if motion.camera_direction and motion.camera_kind != "follow" else ""
    return f"move while the camera {motion.camera_kind}s{way}"


def _time_of_day(looks: Looks) -> str | None:
    """Return night or day if light and shadows agree; a dim room or a grey dusk is neither."""
    if looks.light <= _NIGHT_LIGHT and looks.dark_share >= _NIGHT_DARK_SHARE:
        return "night"
    if looks.light >= _DAY_LIGHT and looks.dark_share <= _DAY_DARK_SHARE:
        return "day"
    return None


def flagged(captions: Sequence[Caption], clips: Sequence[Clip], levels: Mapping[str, int | None]) -> list[Caption]:
    """Return the captions of a film's clips, which are in the same order, with the doubts about each as flags."""
    once, alike = _seen_once(captions, clips), _alike(captions)
    rows = []
    for caption, clip in zip(captions, clips, strict=True):
        others = [flag for flag in caption.flags if flag.split(":", 1)[0] not in _RAISED_HERE]
        found = [*others, *_doubts(caption, levels[clip.clip_id])]
        found += [f"{ONCE_IN_SCENE}: {name} is in no other clip of scene {clip.scene}" for name in once[clip.clip_id]]
        found += [f"{AS_NEIGHBOUR}: as {other}" for other in alike[clip.clip_id][:1]]
        rows.append(caption.model_copy(update={"flags": tuple(found)}))
    return rows


def kinds_of(caption: Caption) -> list[str]:
    """Return the kinds of a caption's flags."""
    return [flag.split(":", 1)[0] for flag in caption.flags]


def _doubts(caption: Caption, level: int | None) -> Iterator[str]:
    found, others, noun = caption.characters, caption.others, caption.S
    if found is not None and others is not None:
        if others == 0 and caption.actor not in found and set((noun or "").split()) & _PEOPLE:
            yield f"{SUBJECT}: {noun} acts, but {_seen(found, others)} on screen"
        if caption.SC == 1 and len(found) + others < 2:
            yield f"{SOCIAL}: characters interact, but {_seen(found, others)} on screen"
    manner = set((caption.MA or "").split())
    if level and ((manner & _FAINT and level > _FAINT_UP_TO) or (manner & _STRONG and level < _STRONG_FROM)):
        yield f"{ADVERB}: {caption.MA} at level {level}"
    if words := _words(caption):
        if len(words) < _LEAST_WORDS:
            yield f"{SHORT}: {len(words)} words"
        yield from (f"{REPETITIVE}: {detail}" for detail in _repetition(words))


def _repetition(words: Sequence[str]) -> Iterator[str]:
    """Yield the first sign that a sentence repeats itself, if there is one."""
    word, count = Counter(words).most_common(1)[0]
    trigrams = Counter(zip(words, words[1:], words[2:], strict=False))
    trigram, times = max(trigrams.items(), key=lambda item: item[1], default=((), 0))
    if len(words) >= _ONE_WORD_FROM and count >= _ONE_WORD_SHARE * len(words):
        yield f"{word} is {count} of {len(words)} words"
    elif times >= _TRIGRAM_TIMES:
        yield f"{' '.join(trigram)} comes {times} times"
    elif len(words) >= _DISTINCT_FROM and len(set(words)) < _DISTINCT_SHARE * len(words):
        yield f"{len(set(words))} different words of {len(words)}"


def _words(caption: Caption) -> list[str]:
    """Words of the sentence in lower case, with their punctuation except the last."""
    return (caption.sentence or "").lower().strip().rstrip(punctuation).split()


def _alike(captions: Sequence[Caption]) -> dict[str, list[str]]:
    """Return, by clip id, the neighbours whose sentences are equal."""
    alike: dict[str, list[str]] = defaultdict(list)
    for one, other in pairwise(captions):
        first, second = set(_words(one)), set(_words(other))
        if first and second and len(first & second) >= _ALIKE * len(first | second):
            alike[one.clip_id].append(other.clip_id)
            alike[other.clip_id].append(one.clip_id)
    return alike


def _seen(found: Sequence[str], others: int) -> str:
    if not found and not others:
        return "nobody is"
    return f"only {' and '.join(found) or 'one unknown person'} is"


def _seen_once(captions: Sequence[Caption], clips: Sequence[Clip]) -> dict[str, list[str]]:
    """Return, by clip id, the characters that are in no other clip of the scene."""
    scenes: dict[int, list[Caption]] = defaultdict(list)
    for caption, clip in zip(captions, clips, strict=True):
        if caption.characters is not None:
            scenes[clip.scene].append(caption)
    once: dict[str, list[str]] = defaultdict(list)
    for scene in scenes.values():
        counts = Counter(name for caption in scene for name in caption.characters or ())
        for caption in scene if len(scene) >= LEAST_CLIPS else ():
            once[caption.clip_id] += [name for name in caption.characters or () if counts[name] == 1]
    return once
