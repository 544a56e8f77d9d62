"""Game page served on loopback from this process, with an engine that paints gradients and can be paused.

`Player` plays it over HTTP; `opened` opens it in a browser, where `play` plays a turn.
"""

from __future__ import annotations

import colorsys
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import torch

from flows.game.records import GameSettings
from flows.web.page_server import PageServer, address_of, listening
from flows.web.play_app import make_app
from flows.web.play_games import Games
from flows.web.rules import Rules
from models.config import ModelConfig, tiny_config
from models.engine_options import PartProgress, unwatched
from models.tokens import PastTurn, State
from models.turns import GameState, Show, Turn, unseen
from pipeline.core.errors import UserError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

STEPS = 10
SIZES = {"phone": (390, 844), "desk": (1280, 800)}
CAST = ("Qiqi", "Ponyo", "Sosuke", "Kiki & Jiji")
CONFIG = tiny_config().replaced(characters=CAST)
"""Configuration of a checkpoint that knows characters, but no motions and places."""


@dataclass
class GradientEngine:
    """Engine that paints a gradient in the colour of the instruction and a disc that moves faster at a higher level.

    Words in the instruction set the state: `sleep` rests, `hug` is social, `play` entertains, `level 4` is level 4.
    While `go` is cleared, the engine waits in the middle of denoising; while `rest` is, after the first frames.
    """

    window_turns: int = 5
    size: tuple[int, int] = (64, 96)
    go: threading.Event = field(default_factory=threading.Event)
    rest: threading.Event = field(default_factory=threading.Event)
    continues: bool = False
    """Shots have an end, which the next one may continue."""
    seen: list[tuple[GameState, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.go.set()
        self.rest.set()

    def next_turn(
        self,
        state: GameState,
        instruction: str,
        seed: int,  # noqa: ARG002 - the pictures are the same for every seed
        progress: PartProgress = unwatched,
        show: Show = unseen,
    ) -> tuple[Turn, GameState]:
        self.seen.append((state, instruction))
        progress("game model", 0, 1)
        if "explode" in instruction:
            raise RuntimeError("CUDA error: out of memory <b>now</b>")
        progress("game model", 1, 1)
        for step in range(STEPS):
            progress("denoising", step, STEPS)
            while step == STEPS // 2 and not self.go.wait(0.02):
                progress("denoising", step, STEPS)
        progress("frames", 0, 1)
        level = next((level for level in range(1, 6) if f"level {level}" in instruction), 2)
        answer = State(
            level, int("hug" in instruction), int("play" in instruction), 1 if "sleep" in instruction else -1
        )
        past = PastTurn(instruction, torch.full((4, 8), float(len(self.seen))), answer)
        ending_CHW = torch.full((2, 1, 1), float(len(self.seen))) if self.continues else None
        after = state.after(past, self.window_turns, ending_CHW)
        frames = painted(instruction, level, self.size)
        show(frames[:9])
        while not self.rest.wait(0.02):
            progress("frames", 0, 1)
        seconds, waits = {"game model": 0.01, "denoising": 0.1, "frames": 0.01}, (0.115, "a brush")
        values, tokens_LD = after.values, past.shot_tokens_LD
        turn = Turn(after.turns, instruction, answer, 2.0 * level, values, frames, tokens_LD, seconds, *waits)
        turn = replace(turn, ending_CHW=ending_CHW, continues=state.last is not None)
        progress("frames", 1, 1)
        return turn, after


def painted(text: str, level: int, size: tuple[int, int]) -> np.ndarray:
    """17 frames (THWC, RGB): a gradient in the colour of the text, with a moving disc."""
    height, width = size
    hue = hashlib.sha256(text.encode(errors="replace")).digest()[0] / 256
    top, bottom = (
        np.array(colorsys.hsv_to_rgb(hue + shift, 0.55, light)) for shift, light in ((0, 0.95), (0.12, 0.35))
    )
    rows, columns = np.mgrid[0 : 1 : height * 1j, 0 : width / height : width * 1j]
    frames = []
    for moment in np.linspace(0, 1, 17):
        picture = top + (bottom - top) * rows[..., None]
        disc = np.hypot(rows - 0.45, columns - 0.3 - 0.18 * level * moment) < 0.14
        picture[disc] = (1.0, 0.93, 0.75)
        frames.append((255 * picture).astype(np.uint8))
    return np.stack(frames)


def settings(checkpoint: str = "gradients") -> GameSettings:
    return GameSettings(checkpoint=checkpoint, window_turns=5, fps=8)


def check(instruction: str) -> list[str]:
    """Return the words of an instruction. Raises for those that the real engine rejects too."""
    if not instruction.strip():
        raise UserError("the instruction is empty: say what happens, such as `run along the beach at dusk`")
    if len(instruction.split()) > 200:
        raise UserError(f"the instruction has {len(instruction.split())} tokens, at most 200 fit: shorten it")
    return instruction.split()


@dataclass
class Served:
    """Running page."""

    address: str
    games: Games
    engine: GradientEngine


@contextmanager
def served(
    folder: Path,
    engine: GradientEngine | None = None,
    port: int = 0,
    checkpoint: str = "gradients",
    config: ModelConfig = CONFIG,
    rules: Rules | None = None,
) -> Iterator[Served]:
    """Serve the page of the games in a folder on a free port, by default without rules."""
    engine = engine or GradientEngine()
    games = Games(folder / "games", engine, settings(checkpoint), check)
    with closing(games), serving(PageServer(make_app(games, config, rules), games.stop), port) as address:
        yield Served(address, games, engine)


@contextmanager
def serving(server: PageServer, port: int) -> Iterator[str]:
    """Run the server of a page in a thread, and yield its address."""
    with listening(port, "the page") as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield address_of(listener).rstrip("/")
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive(), "the server did not stop"


class Player:
    """API client of one player."""

    def __init__(self, page: Served) -> None:
        self.http = httpx.Client(base_url=page.address, timeout=60, verify=False)
        self.game = self.http.post("/api/games", json={}).json()["id"]

    def ask(self, instruction: str, after: str | None = None) -> httpx.Response:
        return self.http.post(f"/api/games/{self.game}/turns", json={"after": after, "instruction": instruction})

    def steps(self) -> list[dict[str, Any]]:
        """Return the progress messages of the drawing until its end."""
        with self.http.stream("GET", f"/api/games/{self.game}/drawing") as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            return [json.loads(line[5:]) for line in reply.iter_lines() if line.startswith("data:")]

    def play(self, instruction: str, after: str | None = None) -> str:
        assert self.ask(instruction, after).status_code == 202
        step = self.steps()[-1]
        assert step["status"] == "done", step
        return str(step["turn"])

    def read(self) -> dict[str, Any]:
        return dict(self.http.get(f"/api/games/{self.game}").json())

    def wait_for(self, status: str) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while (drawing := self.read()["drawing"] or {"status": "ended"})["status"] != status:
            assert time.monotonic() < deadline, drawing
            time.sleep(0.01)
        return dict(drawing)


@contextmanager
def opened(
    browser: Browser,
    game: Served,
    size: tuple[int, int] = SIZES["desk"],
    place: str = "/",
    motion: str = "no-preference",
    routes: Mapping[str, Callable[[Route], object]] | None = None,
) -> Iterator[Page]:
    """Open the page in a new browser; on exit, check that no error was logged and only our server was used.

    `routes` handle requests by the pattern of their address. They are set before the page opens, and stay: Chromium
    may let a request pass, or hang, that an open page makes while a route is set or taken away.
    """
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, reduced_motion=motion)  # type: ignore[arg-type]
    context.set_default_timeout(20_000)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(dialog.message))
    page.on("request", lambda request: None if request.url.startswith(game.address) else faults.append(request.url))
    for pattern, handle in (routes or {}).items():
        page.route(pattern, handle)
    page.goto(game.address + place)
    yield page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the window"
    context.close()
    assert [fault for fault in faults if "status of 4" not in fault] == []  # the page shows the message


CONTRASTS = """() => {
  const part = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (rgb) => 0.2126 * part(rgb[0]) + 0.7152 * part(rgb[1]) + 0.0722 * part(rgb[2]);
  const numbers = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const rgb = numbers(getComputedStyle(e).backgroundColor);
      if (rgb.length === 3 || rgb[3] === 1) return rgb;
    }
  };
  return [...document.querySelectorAll('body *')]
    .filter((e) => e.checkVisibility() && !e.closest('.hidden, :disabled'))
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .map((e) => {
      const [one, other] = [light(numbers(getComputedStyle(e).color)), light(ground(e))];
      return [e.textContent.slice(0, 30), (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)];
    });
}"""


def play(page: Page, motion: str) -> None:
    """Fill the fields, play, and wait for the shot."""
    from playwright.sync_api import expect  # tests over HTTP need no playwright

    before = page.locator("#strip li").count()
    page.locator("#motion-text").fill(motion)
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.locator("#strip li")).to_have_count(before + 1)
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_enabled()


def meter(page: Page, name: str) -> str:
    return str(page.get_by_role("meter", name=name).get_attribute("aria-valuenow"))
