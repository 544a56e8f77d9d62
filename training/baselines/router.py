"""Router of the baselines: from an instruction to a scene description and state, with or without a language model.

The baselines have no memory and predict no state. As in the paper, a language model gets the story as text and answers
with a description of the scene to generate and with the state of the turn. Any endpoint with OpenAI's chat protocol
works. `PlainRouter` needs none: it returns the instruction unchanged.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from models.tokens import State
from pipeline.captions.endpoint import Endpoint, assistant, user
from pipeline.core.errors import UserError
from prompts.template import load_prompt

MOST_TURNS = 20
"""Maximum number of last turns of the story in the prompt."""
MOST_WORDS = 50
"""Maximum words of a description that the prompt asks for: SDXL reads at most 77 tokens."""
REPAIRS = 2
"""Number of repair requests after an invalid answer."""
NEUTRAL = State(level=3, social=0, entertainment=0, stamina=-1)
"""Default state without a language model: moderate motion, no gain, and acting costs stamina."""

_NOISE = re.compile(r"<think>.*?</think>|```\w*", re.S | re.I)


class RouterError(Exception):
    """Error for an answer of the wrong format; the message is addressed to the language model."""


@dataclass(frozen=True)
class SceneDescription:
    """Description and state of a turn's scene."""

    description: str
    """Prompt for the generator; understandable without the story."""
    state: State
    seconds: float = field(default=0.0, compare=False)
    """Time of the language model, also for a stored scene; 0 without a language model."""


@dataclass(frozen=True)
class StoryTurn:
    """Turn of the story so far."""

    instruction: str
    scene: SceneDescription


class Router(Protocol):
    """Map from instructions to scenes."""

    def route(self, story: Sequence[StoryTurn], instruction: str) -> SceneDescription:
        """Return the scene of the turn after `story`. UserError for an empty instruction."""
        ...


class PlainRouter:
    """Router without a language model: the instruction is the description, the state is neutral."""

    def route(self, _story: Sequence[StoryTurn], instruction: str) -> SceneDescription:
        """Return the instruction as the description."""
        return SceneDescription(_checked(instruction), NEUTRAL)


class LanguageRouter:
    """Router that asks a language model."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def route(self, story: Sequence[StoryTurn], instruction: str) -> SceneDescription:
        """Ask for the scene; must not be called from a running event loop.

        Raises:
            UserError: the instruction is empty, the service fails, or its answers stay invalid after all repairs.
        """
        prompt = load_prompt("scene").render(
            story=_story_text(story), instruction=_checked(instruction), words=MOST_WORDS, example=_EXAMPLE
        )
        started = time.perf_counter()
        return replace(asyncio.run(self._ask(prompt)), seconds=time.perf_counter() - started)

    async def _ask(self, prompt: str) -> SceneDescription:
        from pipeline.captions.chat_client import ChatClient  # takes a second, and only a model server needs it

        messages = [user(prompt)]
        async with ChatClient(self.endpoint) as client:
            for _ in range(1 + REPAIRS):
                reply = (await client.chat(messages)).text
                try:
                    return parse_scene(reply)
                except RouterError as error:
                    fault = error
                repair = load_prompt("scene-repair").render(fault=str(fault))
                messages += [assistant(reply), user(repair)]
        raise UserError(
            f"{self.endpoint.model} at {self.endpoint.address} gave {1 + REPAIRS} unusable answers (the last: {fault}) "
            "Name another model, or play without a language model"
        )


def _whole(value: object) -> object:
    if type(value) is not int:
        raise ValueError("it must be a whole number without quotes")
    return value


_WHOLE = BeforeValidator(_whole)  # a literal 1 alone also accepts `true`


class _Answer(BaseModel):
    """JSON object that the prompt asks for."""

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
    """Parse a language model's answer, ignoring reasoning, code fences and prose around the JSON object.

    Raises:
        RouterError: the answer is invalid; the message lists all faults as sentences to the model.
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


def _story_text(story: Sequence[StoryTurn]) -> str:
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
        raise UserError("the instruction is empty: say what happens, such as `run along the beach at dusk`")
    return text
