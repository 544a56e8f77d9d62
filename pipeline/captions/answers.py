"""Answers about a clip: its questions in order, the stored replies to them, and the caption made from these.

The first question, `who`, finds the characters on screen. The second, `what`, names them and asks which of them acts.
It is known only once the first has a usable reply or no repairs left. Without a usable reply, the second question is
asked without names, and the caption's characters are null.

A question that has used up its repairs is closed. It can be opened again for one new attempt (`reopened`).

A repeat is a clip with a good caption that a build would query again, because an ingredient of the question changed.
Replies cost money or GPU hours, so a build that finds repeats sends nothing (`refuse_repeats`) until the user decides:
`--ask-again` queries them, `[captions] keep_old` keeps the old captions and flags them. A clip that was never queried,
or never got a usable reply, is not a repeat. If the stored replies are gone, as in a dataset copied without them,
captions of the same model are kept and flagged as well.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeGuard

from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import Reply
from pipeline.captions.questions import AnyQuestion, Question, R, what_question, who_question
from pipeline.captions.reply_cache import Exchange, Replies
from pipeline.captions.rules import UNKNOWN_CHARACTERS
from pipeline.core.config import CaptionSettings
from pipeline.core.dialogue import SpokenLine
from pipeline.core.errors import UserError
from pipeline.core.ingredients import LONGEST_CHANGE, changed
from pipeline.core.plain_text import counted
from pipeline.core.records import KEPT, Caption, Clip
from prompts.tags import TAGS, WhatReply, WhoReply

_FOLLOWS_FROM_OTHERS = "text"
"""Ingredient that changes with the prompt, the level or the cast; named only if it changed alone."""
LOST = {"replies": "stored replies (gone)"}
"""Changed ingredient of a good caption that has no stored replies."""
_STRICTER = "the stored reply is not accepted any more"


@dataclass(frozen=True)
class Answers:
    """Questions about one clip, and the replies to them so far."""

    clip: Clip
    level: int | None
    settings: CaptionSettings
    cast: Cast
    kept: Replies
    said: tuple[SpokenLine, ...] = ()
    """Lines heard in the clip, if the second question shows them."""
    is_span: bool = False
    """True: `clip` stands for a span of several clips."""
    reopened: frozenset[str] = frozenset()
    """Fingerprints of the questions that get a new attempt if their replies are unusable."""

    @cached_property
    def who(self) -> Question[WhoReply] | None:
        """The first question; None without a cast or a motion level."""
        return who_question(self.clip, self.settings, self.cast) if self.cast.names and self.level else None

    @cached_property
    def what(self) -> Question[WhatReply] | None:
        """The second question; None without a motion level, or before the first is settled."""
        if self.level is None or self._who_is_open:
            return None
        names = self.characters or ()
        return what_question(self.clip, self.level, self.settings, names, self.said, is_span=self.is_span)

    @cached_property
    def characters(self) -> tuple[str, ...] | None:
        """Characters found by the first question; None if it was not asked or has no usable reply."""
        found = self._reply(self.who) if self.who else None
        return self.cast.named(found.indices) if found else None

    @property
    def open_question(self) -> AnyQuestion | None:
        """The next question to ask; None if every one has a usable reply or no repairs left."""
        if self._who_is_open:
            return self.who
        return self.what if self.what and self._is_open(self.what) else None

    @property
    def is_given_up(self) -> bool:
        """True if a question is closed without a usable reply."""
        asked = (self.who, self.what)
        return any(each and self._fault(each) and not self._is_open(each) for each in asked)

    @property
    def most_requests(self) -> int:
        """Most requests of a new attempt at the caption; 0 if the clip has a caption, or cannot have one."""
        if self.level is None or (self.what and self.kept.to(self.what.fingerprint) and not self._fault(self.what)):
            return 0
        is_found = self.who is None or self._reply(self.who) is not None
        return (1 + self.settings.repairs) * (1 if is_found else 2)

    def with_reply(self, question: AnyQuestion, reply: Reply) -> Answers:
        """Return a copy with the reply to the open question, the next of its attempt or the first of a new one."""
        key, anew = question.fingerprint, self._is_used_up(question)
        kept = self.kept.adding(key, question.request, question.ingredients, reply, anew=anew)
        return replace(self, kept=kept, reopened=self.reopened - {key} if anew else self.reopened)

    def to_repair(self, question: AnyQuestion) -> tuple[Reply, ...]:
        """Return the replies that the next request about the open question repairs; none for a new attempt."""
        return () if self._is_used_up(question) else self.kept.to(question.fingerprint)

    @property
    def raw(self) -> dict[str, str | None]:
        """Texts of the last reply to each question, as fields of a caption."""
        return {"raw_who": self._text(self.who), "raw_what": self._text(self.what)}

    def caption(self, failure: str | None) -> Caption:
        """Return the caption; without a usable reply to `what`, or with a `failure` of the clip, it is a fault."""
        fault = failure
        if self.level is None:
            fault = "its motion was not measured, and the captioner needs the motion level"
        elif not fault and self.what:
            fault = self._fault(self.what)
        tags = self._tags() if not fault else {}
        return Caption(clip_id=self.clip.clip_id, source=self.settings.model, fault=fault, **self.raw, **tags)

    def _tags(self) -> dict[str, Any]:
        reply = self._reply(self.what) if self.what else None
        if reply is None:
            return {}
        found = self._reply(self.who) if self.who else None
        return {
            **{tag: getattr(reply, tag) for tag in TAGS},
            "characters": self.characters,
            "actor": reply.actor or reply.S,
            "others": found.others if found else None,
            "sentence": reply.sentence,
            "raw_sentence": reply.raw_sentence,
            "flags": (f"{UNKNOWN_CHARACTERS}: {self._fault(self.who)}",) if self.who and not found else (),
        }

    @cached_property
    def _who_is_open(self) -> bool:
        return self.who is not None and self._is_open(self.who)

    def _is_open(self, question: AnyQuestion) -> bool:
        if not self.kept.to(question.fingerprint):
            return True
        may_go_on = not self._is_used_up(question) or question.fingerprint in self.reopened
        return may_go_on and self._fault(question) is not None

    def _is_used_up(self, question: AnyQuestion) -> bool:
        return len(self.kept.to(question.fingerprint)) > self.settings.repairs

    def _reply(self, question: Question[R]) -> R | None:
        replies = self.kept.to(question.fingerprint)
        usable = replies and question.fault_in(replies[-1]) is None
        return question.read(replies[-1].text) if usable else None

    def _fault(self, question: AnyQuestion) -> str | None:
        replies = self.kept.to(question.fingerprint)
        wrong = question.fault_in(replies[-1]) if replies else None
        return f"no usable reply to `{question.request}` in {len(replies)} tries; the last: {wrong}" if wrong else None

    def _text(self, question: AnyQuestion | None) -> str | None:
        replies = self.kept.to(question.fingerprint) if question else ()
        return replies[-1].text if replies else None


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
        """Return the changed ingredients with the number of clips of each, and with their values if all clips agree."""
        found: dict[str, list[str]] = defaultdict(list)
        for changes in self.changes.values():
            for name, description in changes.items():
                found[name].append(description)
        named = {name: each[0] if len(set(each)) == 1 else name for name, each in found.items()}
        return ", ".join(f"{named[name]}: {counted(len(each), 'clip')}" for name, each in found.items())


def merged(repeats: list[Repeats]) -> Repeats:
    """Return the repeats of several films as one."""
    return Repeats({clip_id: found for each in repeats for clip_id, found in each.changes.items()})


def refuse_repeats(repeats: Repeats, *, keep_old: bool) -> None:
    """Raise a UserError if there are repeats; it says how many, why, and what the user can do."""
    if not repeats:
        return
    remedy = "`[captions] keep_old = true` keeps captions of the same model"
    if keep_old:
        remedy = "`[captions] keep_old` cannot keep captions of another model, or captions not in the table yet"
    raise UserError(
        f"{counted(len(repeats), 'clip')} with a good caption would be captioned again ({repeats.reasons()}). "
        f"Nothing was sent. Pass --ask-again to caption again; {remedy}"
    )


def changes_of(question: AnyQuestion, stored: Replies, made: Caption | None) -> dict[str, str]:
    """Return the ingredients by which a clip's open question differs from the question behind its good caption.

    `made` is the clip's row in the table of captions. The result has descriptions by name, and is empty if the question
    is not a repeat.
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

    None if it has no good caption, or one by another model: a dataset never mixes two models.
    """
    if not is_good(made) or made.source != model:
        return None
    if made.is_kept and changes == LOST:  # only an earlier build knew the other changes
        return made
    doubts = [flag for flag in made.flags if not flag.startswith(KEPT)]
    return made.model_copy(update={"flags": (*doubts, KEPT + ", ".join(changes))})


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
