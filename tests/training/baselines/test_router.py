"""Router against a real HTTP server: good answers, garbage, repairs, and a failing server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from models.tokens import State
from pipeline.captions.endpoint import Endpoint, EndpointDownError, RequestError
from pipeline.core.errors import UserError
from tests.support.servers.caption_server import Answer, CaptionServer, Request
from training.baselines.router import (
    MOST_TURNS,
    NEUTRAL,
    REPAIRS,
    LanguageRouter,
    PlainRouter,
    RouterError,
    SceneDescription,
    StoryTurn,
    parse_scene,
)

GOOD: dict[str, Any] = {
    "scene": "Qiqi, a girl with purple hair, quickly runs over the waves at dusk.",
    "motion_level": 4,
    "social": 0,
    "entertainment": 1,
    "stamina": -1,
}
SCENE = SceneDescription(GOOD["scene"], State(level=4, social=0, entertainment=1, stamina=-1))


def router(server: CaptionServer, attempts: int = 1) -> LanguageRouter:
    return LanguageRouter(Endpoint(server.address, "director", attempts=attempts, first_pause_seconds=0.01))


def saying(*texts: str) -> Callable[[Request], Answer]:
    """Answer function that returns these texts one after another in a conversation."""
    return lambda request: Answer(texts[request.turn])


def test_an_answer_becomes_a_scene_and_the_story_is_in_the_prompt() -> None:
    with CaptionServer(saying(json.dumps(GOOD))) as server:
        story = [StoryTurn("Qiqi wakes up", SceneDescription("Qiqi yawns in a ${story} bed.", NEUTRAL))]
        assert router(server).route(story, "Qiqi runs\nover ${example} waves") == SCENE
    prompt = server.requests[0].text
    assert "1. Instruction: Qiqi wakes up" in prompt
    assert "Qiqi yawns in a ${story} bed. (motion level 3)" in prompt
    assert "Qiqi runs over ${example} waves" in prompt
    assert server.requests[0].body["model"] == "director"


def test_only_the_last_turns_of_a_long_game_are_in_the_prompt() -> None:
    story = [StoryTurn(f"instruction {number}", SceneDescription("x", NEUTRAL)) for number in range(1, 101)]
    with CaptionServer(saying(json.dumps(GOOD))) as server:
        router(server).route(story, "on")
    prompt = server.requests[0].text
    assert "100. Instruction: instruction 100" in prompt
    assert f"{101 - MOST_TURNS}. Instruction" in prompt
    assert f"{100 - MOST_TURNS}. Instruction" not in prompt


def test_a_faulty_answer_is_repaired_in_the_same_conversation() -> None:
    faulty = json.dumps({**GOOD, "motion_level": 9})
    with CaptionServer(saying("I would love to!", faulty, json.dumps(GOOD))) as server:
        scene = router(server).route([], "run")
        assert scene == SCENE
        assert scene.seconds > 0
    assert [request.turn for request in server.requests] == [0, 1, 2]
    assert "holds no JSON object" in server.requests[1].text
    assert "motion_level: Input should be 1, 2, 3, 4 or 5" in server.requests[2].text
    assert server.requests[2].body["messages"][3] == {"role": "assistant", "content": faulty}


def test_a_model_without_valid_answers_fails_with_its_last_fault() -> None:
    with CaptionServer(saying(*["Sure."] * 9)) as server, pytest.raises(UserError) as caught:
        router(server).route([], "run")
    assert len(server.requests) == 1 + REPAIRS
    assert f"gave {1 + REPAIRS} unusable answers (the last: The answer holds no JSON" in str(caught.value)
    assert "play without a language model" in str(caught.value)


def test_a_failing_server_is_retried_and_then_reported() -> None:
    answers = iter([Answer(status=500, raw=b"oops"), Answer(raw=b"<html>"), Answer(json.dumps(GOOD))])
    with CaptionServer(lambda _: next(answers)) as server:
        assert router(server, attempts=3).route([], "run") == SCENE
    with CaptionServer(lambda _: Answer(status=500, raw=b"oops")) as server, pytest.raises(RequestError, match="500"):
        router(server, attempts=2).route([], "run")
    with pytest.raises(EndpointDownError, match="no connection"):
        router(server).route([], "run")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"motion_level": "4"}, "motion_level"),
        ({"motion_level": 4.5}, "motion_level"),
        ({"motion_level": True}, "motion_level"),
        ({"social": -1}, "social"),
        ({"entertainment": None}, "entertainment"),
        ({"stamina": 0}, "stamina"),
        ({"scene": "  "}, "scene"),
        ({"scene": "word " * 101}, "scene"),
        ({"scene": "A gardener with a straw hat and green overalls slowly waters red tulips in a sunny greenhouse."},
         "repeats the example"),
        ({"mood": "happy"}, "mood"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(RouterError, match=fault):
        parse_scene(json.dumps({**GOOD, **changes}))


@pytest.mark.parametrize("garbage", ["", "}{", "{", '{"scene": ', "[1, 2]", "{}" * 3, "{" * 10_000 + "}" * 10_000])
def test_garbage_is_an_error(garbage: str) -> None:
    with pytest.raises(RouterError):
        parse_scene(garbage)


def test_without_a_language_model_the_instruction_is_drawn_unchanged() -> None:
    assert PlainRouter().route([], " Qiqi  runs ") == SceneDescription("Qiqi runs", NEUTRAL)
    with pytest.raises(UserError, match="the instruction is empty"):
        PlainRouter().route([], " \n")
