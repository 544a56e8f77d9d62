"""Flags of captions: doubts that the cast, the motion level and the scene raise against the model's words.

A flag is a text `<kind>: <detail>`. It changes nothing else: pages count the kinds, and a review begins with them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pipeline.core.records import Caption, Clip

UNKNOWN_CHARACTERS = "characters unknown"
ONCE_IN_SCENE = "character once in scene"
SUBJECT = "subject against cast"
SOCIAL = "social alone"
ADVERB = "adverb against level"

_RAISED_HERE = {ONCE_IN_SCENE, SUBJECT, SOCIAL, ADVERB}
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


def flagged(captions: Sequence[Caption], clips: Sequence[Clip], levels: Mapping[str, int | None]) -> list[Caption]:
    """Return the captions of a film with the doubts about each added to its other flags.

    Args:
        captions: captions of `clips`, in the same order.
        clips: clips of one film.
        levels: motion level by clip id.
    """
    once = _seen_once(captions, clips)
    rows = []
    for caption, clip in zip(captions, clips, strict=True):
        others = [flag for flag in caption.flags if flag.split(":", 1)[0] not in _RAISED_HERE]
        found = [*others, *_doubts(caption, levels[clip.clip_id])]
        found += [f"{ONCE_IN_SCENE}: {name} is in no other clip of scene {clip.scene}" for name in once[clip.clip_id]]
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
