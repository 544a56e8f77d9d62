"""Stand-in for model servers: OpenAI's chat protocol on loopback, with rules instead of a model.

    with serving() as address:
        ...                                   # `benchmark write`, `evaluate run` and `judge` with `--server ADDRESS`

A story is assembled from lists. The scene of a baseline is the instruction itself, with the states of its motion from
these lists. Scores for the judge are higher if neighbouring frames differ less. The program shown first gets two more
points for its overall quality, so that there is a bias to find. The stand-in shows that client, checks and statistics
work, but its stories and scores mean nothing.
"""

from __future__ import annotations

import base64
import json
import math
import random
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import cv2
import numpy as np
from fastapi import FastAPI

from flows.web.page_server import PageServer, address_of, listening
from pipeline.captions.rules import ADVERBS
from prompts.evaluation_replies import CRITERIA, StoryPanel, format_panel, format_scores
from training.evaluation.judge import FIELD, FRAMES

MODEL = "stand-in"
"""Name of the model, as figures and report show it."""
FAVOUR = 2
"""Undeserved points for the overall quality of the program shown first."""
_PLACES = ("beach", "meadow", "city street", "classroom", "shrine", "snowy hill")
_DEEDS: tuple[tuple[str, int, Literal[0, 1], Literal[-1, 1]], ...] = (
    ("walk", 3, 0, -1), ("run", 5, 1, -1), ("jump", 4, 1, -1), ("wave", 2, 1, -1), ("dance", 4, 1, -1),
    ("spin", 3, 1, -1), ("fall over", 5, 0, -1), ("sit down", 1, 0, 1), ("fly on a broom", 4, 1, -1),
    ("swing a sword", 4, 1, -1),
)  # fmt: skip
"""Motion, level, entertainment, stamina. Motions and places come from the world in miniature."""
_STORY = re.compile(r"It is about (?P<protagonist>.+), has (?P<panels>\d+) panels.*It is story (?P<number>\d+) about")
_COMPANIONS = re.compile(r"at most one in a panel:\n(.+?)\n\n", re.S)
_ROUTED = re.compile(r"instruction for the turn to come:\n(.+)")
_PROGRAMS = re.compile(r"(\d+) programs")


@contextmanager
def serving() -> Iterator[str]:
    """Serve the stand-in on a free port, and yield its address."""
    with listening(0, MODEL) as listener:
        server = PageServer(_app(), lambda: None)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"{address_of(listener)}v1"
        finally:
            server.should_exit = True
            thread.join()


def reply_to(body: dict[str, Any]) -> str:
    """Return the reply to a request: a story, a scene, or scores if it shows pictures."""
    content = body["messages"][0]["content"]
    if isinstance(content, str):
        routed = _ROUTED.search(content)
        return _scene(routed[1]) if routed else _story(content)
    programs = int(_matched(_PROGRAMS, content[-1]["text"])[1])
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    return _scores([_steadiness(url) for url in urls[-programs:]])


def _app() -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": MODEL, "object": "model"}]}

    @app.post("/v1/chat/completions")
    def complete(body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": reply_to(body)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "1", "object": "chat.completion", "model": MODEL, "choices": [choice]}

    return app


def _story(text: str) -> str:
    """Write a story that leaves a place and comes back; every other panel has a companion, if there is one."""
    asked = _matched(_STORY, " ".join(text.split()))
    protagonist, panels = asked["protagonist"], int(asked["panels"])
    companions = [name for name in _matched(_COMPANIONS, text)[1].splitlines() if name != "(none)"]
    dice = random.Random(f"{protagonist} {asked['number']}")
    home, away = dice.sample(_PLACES, 2)
    lines = []
    for turn, (motion, level, entertainment, stamina) in enumerate(dice.sample(_DEEDS, panels)):
        friends = dice.sample(companions, 1) if companions and turn % 2 else []
        place = away if panels // 3 <= turn < 2 * panels // 3 else home
        social: Literal[0, 1] = 1 if friends else 0
        names = (protagonist, *friends)
        panel = StoryPanel(names, motion, place, level, ADVERBS[level], social, entertainment, stamina)
        lines.append(format_panel(panel))
    return "\n".join(lines)


def _scene(instruction: str) -> str:
    """Route an instruction unchanged; a comma in it means two characters."""
    known = (deed for deed in _DEEDS if deed[0] in instruction)
    _, level, entertainment, stamina = next(known, ("", 3, 0, -1))
    values = {"motion_level": level, "social": int("," in instruction), "entertainment": entertainment}
    return json.dumps({"scene": instruction, **values, "stamina": stamina})


def _scores(steadiness: Sequence[float]) -> str:
    fair = tuple(1 + round(7 * value) for value in steadiness)
    favoured = (fair[0] + FAVOUR, *fair[1:])
    scores = {name: favoured if name == CRITERIA[0] else fair for name in CRITERIA}
    return f"{format_scores(scores)}\n<WHY>A stand-in without a model compares neighbouring frames.</WHY>"


def _steadiness(url: str) -> float:
    """Return a value that falls from 1, for frames that are all equal, towards 0."""
    coded = np.frombuffer(base64.b64decode(url.partition(",")[2]), np.uint8)
    sheet_HWC = np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), np.float64)
    frames_HTWC = sheet_HWC.reshape(len(sheet_HWC), FRAMES, FIELD[0], 3)
    return math.exp(-float(np.abs(np.diff(frames_HTWC, axis=1)).mean()) / 20)


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.search(text)
    assert found, f"a request in another form: {text[:200]}"
    return found
