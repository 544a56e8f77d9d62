"""Repeats: clips with a good caption that a build would ask about again, because an ingredient of the question changed.

Replies cost money or GPU hours, so a build that finds repeats stops before it asks (`refuse_repeats`), until the user
decides: `--ask-again` asks, `[captions] keep_old` keeps the old captions and flags them. A clip that was never asked,
or never got a usable reply, is no repeat. Captions whose stored replies are gone, as in a data set that was copied
without them, are kept and flagged as well, unless they are of another model.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from pipeline.captions.questions import AnyQuestion
from pipeline.captions.reply_cache import Exchange, Replies
from pipeline.core.errors import UserError
from pipeline.core.ingredients import LONGEST_CHANGE, changed
from pipeline.core.records import KEPT, Caption

_FOLLOWS_FROM_OTHERS = "text"
"""Ingredient that changes with the prompt, the level or the cast; named only where it changed alone."""
LOST = {"replies": "stored replies (gone)"}
"""Changed ingredient of a good caption that has no stored replies."""
_STRICTER = "the stored reply is not accepted any more"


@dataclass(frozen=True)
class Repeats:
    """Changed ingredients by clip id, each as name and description."""

    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.changes)

    def without(self, clip_ids: Mapping[str, object]) -> Repeats:
        """Return the repeats about other clips."""
        return Repeats({clip_id: found for clip_id, found in self.changes.items() if clip_id not in clip_ids})

    def reasons(self) -> str:
        """Return the changed ingredients with the number of clips of each; with their values where all clips agree."""
        found: dict[str, list[str]] = defaultdict(list)
        for changes in self.changes.values():
            for name, description in changes.items():
                found[name].append(description)
        named = {name: each[0] if len(set(each)) == 1 else name for name, each in found.items()}
        return ", ".join(f"{named[name]}: {_clips(len(each))}" for name, each in found.items())


def merged(repeats: list[Repeats]) -> Repeats:
    """Return the repeats of several films as one."""
    return Repeats({clip_id: found for each in repeats for clip_id, found in each.changes.items()})


def refuse_repeats(repeats: Repeats, *, keep_old: bool) -> None:
    """Stop before anything is asked again.

    Raises:
        UserError: there are repeats; it says how many, why, and what the user can do.
    """
    if not repeats:
        return
    remedy = "`[captions] keep_old = true` keeps captions of the same model"
    if keep_old:
        remedy = "`[captions] keep_old` cannot keep those of another model, nor those not yet in the table captions"
    raise UserError(
        f"{_clips(len(repeats))} with a good caption would be asked about again ({repeats.reasons()}); nothing was "
        f"asked: --ask-again asks; {remedy}"
    )


def changes_of(question: AnyQuestion, stored: Replies, made: Caption | None) -> dict[str, str]:
    """Return the ingredients by which an open question differs from the one that gave the clip its good caption.

    Args:
        question: the next question about the clip.
        stored: replies about the clip.
        made: the clip's row in the table of captions, if it has one.

    Returns:
        Descriptions by name; empty if the question is no repeat.
    """
    if present := stored.to(question.fingerprint):
        used = () if made is None else (made.raw_who if made.characters is not None else None, made.raw_what)
        return {"parser": _STRICTER} if present[-1].text in used and is_good(made) else {}
    earlier = [
        exchange
        for key, exchange in stored.exchanges.items()
        if exchange.request == question.request and (is_good(made) or question.fault_in(stored.to(key)[-1]) is None)
    ]
    if not earlier and question.request == "who" and is_good(made):
        return {"cast": "cast (none before)"}  # with the names that `who` finds, `what` is another question
    return min((_differences(exchange, question) for exchange in earlier), key=len, default={})


def kept_caption(made: Caption | None, changes: Mapping[str, str], model: str) -> Caption | None:
    """Return the clip's old caption, flagged with the ingredients that changed since.

    None if it has no good one, or one by another model: a data set never mixes two.
    """
    if not is_good(made) or made.source != model:
        return None
    if made.is_kept and changes == LOST:  # what else changed is known from an earlier build alone
        return made
    doubts = [flag for flag in made.flags if not flag.startswith(KEPT)]
    return made.model_copy(update={"flags": (*doubts, KEPT + ", ".join(changes))})


def _clips(count: int) -> str:
    return f"{count:,} clip{'s' if count != 1 else ''}"


def is_good(made: Caption | None) -> TypeGuard[Caption]:
    """Return true for a caption from a usable reply."""
    return made is not None and made.fault is None and made.source != "rules"


def _differences(earlier: Exchange, question: AnyQuestion) -> dict[str, str]:
    before, now = earlier.ingredients, question.ingredients
    names = changed(before, now)
    found = {}
    for name in [name for name in names if name != _FOLLOWS_FROM_OTHERS] or names:
        description = f"{name} ({json.dumps(before.get(name))} to {json.dumps(now.get(name))})"
        found[name] = description if len(description) <= LONGEST_CHANGE else name
    return found
