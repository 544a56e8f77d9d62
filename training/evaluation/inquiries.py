"""Questions to a model, whose replies are stored, repaired once or twice, and never requested again.

    answers = ask_all(inquiries, endpoint, folder, "stories", progress)
    answers.usable["ponyo-01"], answers.refused["ponyo-02"]

Client, stored replies and budget work as for captions. The replies to an inquiry are on disk before the next question
is sent, so after a kill only the questions in flight are sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pipeline.captions.asking import AskingLoop
from pipeline.captions.endpoint import Endpoint, Message, Reply, assistant, user
from pipeline.captions.reply_cache import Replies, read_replies, write_replies
from pipeline.core.ingredients import fingerprint
from pipeline.core.progress import Progress
from prompts.tags import TagError
from prompts.template import load_prompt

if TYPE_CHECKING:
    from pipeline.captions.chat_client import ChatClient

T = TypeVar("T")
REPAIRS = 2
"""Repair requests after an unusable reply."""
_LONGEST_QUOTE = 8000
_CUT_OFF = "It was too long and was cut off before its end."


@dataclass(frozen=True)
class Inquiry(Generic[T]):
    """One question, and the parser of its replies."""

    name: str
    """Name of its file of replies."""
    ingredients: dict[str, Any]
    """Inputs that the reply depends on."""
    messages: Callable[[], list[Message]]
    """Returns the conversation up to the question; called in a thread, because it may make pictures."""
    read: Callable[[str], T]
    """Parses a reply, or raises TagError with a sentence for the model."""
    pattern: str = ""
    """Regular expression of the replies, for servers with guided decoding."""
    repairs: int = REPAIRS

    @cached_property
    def fingerprint(self) -> str:
        """Key of the stored replies."""
        return fingerprint(self.ingredients)

    def fault_in(self, reply: Reply) -> str | None:
        """Return the fault of a reply as a sentence for the model, or None if the reply is usable."""
        if reply.cut_off:
            return _CUT_OFF
        try:
            self.read(reply.text)
        except TagError as error:
            return str(error)
        return None


@dataclass
class Answers(Generic[T]):
    """Parsed replies by inquiry, and reasons for the inquiries without a usable reply."""

    usable: dict[str, T] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    repaired: int = 0
    """Number of usable replies after a repair."""


def model_ingredients(endpoint: Endpoint) -> dict[str, Any]:
    """Return the settings of the model that replies depend on, without its address."""
    temperature = float(endpoint.temperature)
    return {"model": endpoint.model, "temperature": temperature, "max_tokens": endpoint.max_tokens}


def ask_all(
    inquiries: Sequence[Inquiry[T]], endpoint: Endpoint, folder: Path, kind: str, progress: Progress
) -> Answers[T]:
    """Send the inquiries without a stored usable reply, and return the parsed replies of all.

    Args:
        inquiries: the questions, each with a unique name.
        kind: plural noun for the inquiries in errors.

    Raises:
        UserError: the service does not work for any inquiry, or the budget is used up; received replies are stored.
    """

    def is_open(inquiry: Inquiry[T]) -> bool:
        replies = _stored(folder, inquiry).to(inquiry.fingerprint)
        return len(replies) <= inquiry.repairs and (not replies or inquiry.fault_in(replies[-1]) is not None)

    async def ask(client: ChatClient, inquiry: Inquiry[T]) -> None:
        messages = await asyncio.to_thread(inquiry.messages)
        while is_open(inquiry):
            stored = _stored(folder, inquiry)
            conversation = [*messages, *_repairs(inquiry, stored.to(inquiry.fingerprint))]
            reply = await client.chat(conversation, inquiry.pattern)
            added = stored.adding(inquiry.fingerprint, kind, inquiry.ingredients, reply)
            await asyncio.to_thread(write_replies, _path(folder, inquiry), added)

    waiting = {inquiry.name: inquiry for inquiry in inquiries if is_open(inquiry)}
    failures: dict[str, str] = {}
    if waiting:
        failed_before = {name for name, inquiry in waiting.items() if _stored(folder, inquiry).failure}
        fresh_first = dict(sorted(waiting.items(), key=lambda item: item[0] in failed_before))
        loop = AskingLoop(endpoint, fresh_first, ask, kind, failed_before)
        failures = loop.failures
        try:
            asyncio.run(loop.run(lambda: progress(len(inquiries) - loop.left, len(inquiries))))
        finally:  # store also the failures that stopped this run, so that the next run tries those inquiries last
            for name, reason in failures.items():
                noted = _stored(folder, waiting[name]).model_copy(update={"failure": reason})
                write_replies(_path(folder, waiting[name]), noted)
    return _answers(inquiries, folder, failures)


def _answers(inquiries: Sequence[Inquiry[T]], folder: Path, failures: dict[str, str]) -> Answers[T]:
    answers: Answers[T] = Answers(refused=dict(failures))
    for inquiry in inquiries:
        replies = _stored(folder, inquiry).to(inquiry.fingerprint)
        fault = inquiry.fault_in(replies[-1]) if replies else None
        if fault:
            answers.refused.setdefault(inquiry.name, f"no usable reply in {len(replies)} tries; the last: {fault}")
        elif replies:
            answers.usable[inquiry.name] = inquiry.read(replies[-1].text)
            answers.repaired += len(replies) > 1
    return answers


def _repairs(inquiry: Inquiry[T], replies: Sequence[Reply]) -> list[Message]:
    """Return every unusable reply with its fault."""
    messages = []
    for reply in replies:
        messages.append(assistant(reply.text[:_LONGEST_QUOTE] or "(no words)"))
        messages.append(user(load_prompt("form-repair").render(fault=inquiry.fault_in(reply) or "")))
    return messages


def _stored(folder: Path, inquiry: Inquiry[T]) -> Replies:
    return read_replies(_path(folder, inquiry), inquiry.name)


def _path(folder: Path, inquiry: Inquiry[T]) -> Path:
    return folder / f"{inquiry.name}.json"
