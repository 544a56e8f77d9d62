"""From the player's instruction to what is drawn: a language model that knows the story so far, or nobody.

The baselines have no memory and predict no state. The paper puts a language model in front of them, which is told the
story as text and answers with a description of the scene to draw and with the state of the turn. Any endpoint with
OpenAI's chat protocol will do. `PlainRouter` needs none: it hands the instruction on as it is.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from models.tokens import State
from pipeline.captions.chat_client import ChatClient, Endpoint, assistant, user
from pipeline.core.errors import UserError
from prompts.template import load_prompt

MOST_TURNS = 20
"""Turns of the story that the language model is told, the last ones."""
MOST_WORDS = 50
"""Words of a description that are asked for: SDXL reads 77 tokens and no more."""
REPAIRS = 2
"""How often a language model is told what is wrong with its answer."""
NEUTRAL = State(level=3, social=0, entertainment=0, stamina=-1)
"""The state where nobody says anything: moderate motion, nothing happens, and acting tires."""

_NOISE = re.compile(r"<think>.*?</think>|```\w*", re.S | re.I)


class RouterError(Exception):
    """An answer that is not in the asked form; the message is for the language model that wrote it."""


@dataclass(frozen=True)
class SceneDescription:
    """What a turn shows."""

    description: str
    """For whoever draws it; it stands for itself."""
    state: State


@dataclass(frozen=True)
class ToldTurn:
    """A turn of the story so far."""

    instruction: str
    scene: SceneDescription


class Router(Protocol):
    """What turns instructions into scenes."""

    def route(self, story: Sequence[ToldTurn], instruction: str) -> SceneDescription:
        """The scene of the turn after `story`. UserError for an empty instruction."""
        ...


class PlainRouter:
    """Draws the instruction as it is, in a neutral state; needs no language model."""

    def route(self, _story: Sequence[ToldTurn], instruction: str) -> SceneDescription:
        """The instruction itself."""
        return SceneDescription(_checked(instruction), NEUTRAL)


class LanguageRouter:
    """Asks a language model.

    Args:
        endpoint: where it is.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def route(self, story: Sequence[ToldTurn], instruction: str) -> SceneDescription:
        """Ask for the scene; must not be called from a running event loop.

        Raises:
            UserError: the instruction is empty, the service cannot be used, or its answer stays unusable.
        """
        prompt = load_prompt("scene").render(
            story=_told(story), instruction=_checked(instruction), words=MOST_WORDS, example=_EXAMPLE
        )
        return asyncio.run(self._ask(prompt))

    async def _ask(self, prompt: str) -> SceneDescription:
        messages = [user(prompt)]
        async with ChatClient(self.endpoint) as client:
            for _ in range(1 + REPAIRS):
                reply = await client.chat(messages)
                try:
                    return parse_scene(reply)
                except RouterError as error:
                    fault = error
                repair = load_prompt("scene-repair").render(fault=str(fault))
                messages += [assistant(reply), user(repair)]
        raise UserError(
            f"{self.endpoint.model} at {self.endpoint.address} gave {1 + REPAIRS} answers that cannot be used; the "
            f"last one: {fault} Name another model, or play without a language model"
        )


def _whole(value: object) -> object:
    if type(value) is not int:
        raise ValueError("it must be a whole number without quotes")
    return value


_WHOLE = BeforeValidator(_whole)  # a literal 1 alone takes `true` as well


class _Answer(BaseModel):
    """The JSON object that is asked for."""

    model_config = ConfigDict(extra="forbid", strict=True)
    scene: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=600)]
    motion_level: Annotated[Literal[1, 2, 3, 4, 5], _WHOLE]
    social: Annotated[Literal[0, 1], _WHOLE]
    entertainment: Annotated[Literal[0, 1], _WHOLE]
    stamina: Annotated[Literal[-1, 1], _WHOLE]


_EXAMPLE = _Answer(
    scene="A gardener with a straw hat and green overalls slowly waters red tulips in a sunny greenhouse.",
    motion_level=2,
    social=0,
    entertainment=1,
    stamina=-1,
).model_dump_json()


def parse_scene(reply: str) -> SceneDescription:
    """Read a language model's answer; reasoning, code fences and prose around the object are passed over.

    Raises:
        RouterError: with all that is wrong, as sentences to the model that wrote it.
    """
    text = _NOISE.sub(" ", reply)
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise RouterError("The answer holds no JSON object.")
    try:
        answer = _Answer.model_validate_json(text[start : end + 1])
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc'])) or 'The object'}: {fault['msg']}." for fault in error.errors()]
        raise RouterError(" ".join(faults)[:1000]) from error
    description = " ".join(answer.scene.split())
    if len(description.split()) > 2 * MOST_WORDS:
        raise RouterError(f"scene: it has {len(description.split())} words, at most {MOST_WORDS} are asked for.")
    if description == json.loads(_EXAMPLE)["scene"]:
        raise RouterError("scene: it repeats the example; describe the turn instead.")
    return SceneDescription(
        description, State(answer.motion_level, answer.social, answer.entertainment, answer.stamina)
    )


def _told(story: Sequence[ToldTurn]) -> str:
    first = max(0, len(story) - MOST_TURNS)
    lines = [
        f"{number}. Instruction: {turn.instruction}\n   Shown: {turn.scene.description} "
        f"(motion level {turn.scene.state.level})"
        for number, turn in enumerate(story[first:], start=first + 1)
    ]
    return "\n".join(lines) or "This is the first turn."


def _checked(instruction: str) -> str:
    text = " ".join(instruction.split())
    if not text:
        raise UserError("the instruction is empty: say what happens, such as `Qiqi runs along the beach at dusk`")
    return text
