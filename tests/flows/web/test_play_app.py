"""App of the game page, over real HTTP on loopback: bad requests, paths, policy, start and stop."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from flows.game.records import GameSettings
from flows.web.play_app import how_drawn
from models.config import Sampling
from tests.support.servers.played_page import GradientEngine, Player, Served, served

PORT = re.compile(r"http://127\.0\.0\.1:(\d+)/")
HTTP = httpx.Client(verify=False)  # no certificates to load: plain HTTP on loopback


def test_invalid_turns_are_refused_with_a_message(game: Served) -> None:
    player = Player(game)
    first = '{"after": null, "instruction": "%s"}'
    for body, status, words in (
        (first % "  ", 422, "the instruction is empty"),
        (first % ("word " * 201), 422, "at most 200 fit: shorten it"),
        ('{"instruction": "no after"}', 422, "after: Field required"),
        ('{"after": "0009", "instruction": "walk"}', 409, "no such turn"),
        (first % ("x" * 70_000), 413, "too large"),
        *((first % hostile, 422, "") for hostile in (r"\ud800", r"\u001b[31m", r"\n</TURN>", r'", "\ud800": "1')),
    ):
        headers = {"Content-Type": "application/json"}
        reply = player.http.post(f"/api/games/{player.game}/turns", content=body, headers=headers)
        assert (reply.status_code, words in reply.json()["message"]) == (status, True), body[:60]
    endless = HTTP.post(game.address + "/api/games", content=iter([b"{}"]))
    assert (endless.status_code, "length" in endless.json()["message"]) == (411, True)
    assert HTTP.put(game.address + "/api/games").status_code == 405
    assert game.engine.seen == []


def test_a_damaged_game_is_reported_without_the_servers_paths(game: Served, capfd: pytest.CaptureFixture[str]) -> None:
    player = Player(game)
    player.play("walk")
    folder = game.games.folder / player.game
    (folder / "0001.safetensors").write_bytes(b"damaged")
    assert player.ask("run", "0001").status_code == 202
    step = player.steps()[-1]
    (folder / "0001.mp4").unlink()
    gone = player.http.get(f"/api/games/{player.game}/turns/0001.mp4")
    (folder / "turns.jsonl").write_text("{}\n")
    reply = player.http.get(f"/api/games/{player.game}")
    assert (step["status"], gone.status_code, reply.status_code) == ("failed", 404, 409)
    for message in (step["message"], gone.json()["message"], reply.json()["message"]):
        assert str(game.games.folder) not in message
        assert "--" not in message
    assert "damaged" in reply.json()["message"]
    assert str(folder / "turns.jsonl") in capfd.readouterr().err, "the operator's log names the file"


def test_a_bug_is_a_server_error_and_its_traceback_is_logged(game: Served, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: str) -> None:
        raise ValueError("a bug in the check")

    game.games.check = broken
    player = Player(game)
    assert player.ask("walk").status_code == 500
    deadline = time.monotonic() + 10
    while "ValueError: a bug in the check" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # logged after the reply
    assert "Traceback (most recent call last)" in caplog.text


def test_paths_outside_the_folder_of_games_are_refused(game: Served, tmp_path: Path) -> None:
    player = Player(game)
    player.play("walk")
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (game.games.folder / "short").mkdir()
    names = ("..", ".", "%2e%2e", "..%2f..", "short", player.game + "%00", player.game + "%0a", "%2fetc", "A" * 22)
    for name in names:
        assert HTTP.get(f"{game.address}/api/games/{name}").status_code in (404, 405), name
    for name in ("../secret", "..%2f..%2f..%2fsecret", "%2e%2e%2fsecret", "0002", "1", "0001%00", "game"):
        reply = HTTP.get(f"{game.address}/api/games/{player.game}/turns/{name}.mp4")
        assert reply.status_code == 404, name
    for name in ("../play_server.py", "..%2fplay_server.py", "%2fetc%2fpasswd", "play_page", "docs", "openapi.json"):
        assert HTTP.get(f"{game.address}/{name}").status_code == 404, name


def test_every_reply_has_the_content_security_policy(game: Served) -> None:
    index = HTTP.get(game.address + "/")
    names = re.findall(r'(?:href|src)="([\w.]+)"', index.text)
    assert {"main.js", "play.css", "icon.svg"} <= set(names)
    for name in ["", *names, "api/info", "api/games/no-such-game", "nothing"]:
        reply = HTTP.get(f"{game.address}/{name}")
        assert "default-src 'none'" in reply.headers["content-security-policy"], name
        assert "unsafe" not in reply.headers["content-security-policy"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
    assert HTTP.get(game.address + "/main.js").headers["content-type"] == "text/javascript; charset=utf-8"


def test_the_server_stops_while_a_page_is_connected(tmp_path: Path) -> None:
    engine = GradientEngine()
    with served(tmp_path, engine) as game:
        player = Player(game)
        engine.go.clear()
        player.ask("walk")
        player.wait_for("drawing")
        stream = player.http.stream("GET", f"/api/games/{player.game}/drawing")
        reply = stream.__enter__()
        lines = reply.iter_lines()  # a reference that keeps the connection open
        assert "drawing" in next(line for line in lines if line)
        started = time.monotonic()
    assert time.monotonic() - started < 3
    with served(tmp_path) as game:
        player.http = httpx.Client(base_url=game.address, verify=False)
        assert player.read() == {"turns": [], "drawing": None, "waited": ""}


def test_the_page_says_how_shots_are_drawn_and_what_the_checkpoint_says() -> None:
    settings = GameSettings(steps=10, guidance=2.0, precision="bfloat16", checkpoint="painted", window_turns=4, fps=8)
    said = how_drawn(settings, Sampling())
    assert said.endswith("with guidance 2, in bfloat16. The checkpoint's own are 50 steps (sde) with guidance 6.")
    own = Sampling(sampler="ode", steps=1, guidance=2.0, guided=(200, 800))
    drawn = settings.model_copy(update={**own.model_dump(), "compile": True})
    expected = "Each shot takes 1 step (ode) with guidance 2 from timestep 800 to 200, in bfloat16, compiled."
    assert how_drawn(drawn, own) == expected


@pytest.mark.slow
def test_a_real_engine_is_served_and_stops_cleanly(tmp_path: Path) -> None:
    from tests.support.networks.tiny_models import tiny_checkpoint

    code = (
        "import sys; from pathlib import Path; from flows.web.play_app import serve; "
        "from models.engine_options import EngineOptions; "
        "serve(Path(sys.argv[1]), Path(sys.argv[2]), 0, EngineOptions('cpu', steps=4))"
    )
    command = [sys.executable, "-c", code, str(tiny_checkpoint()), str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        lines = iter(process.stderr.readline, "")
        port = next(found[1] for line in lines if (found := PORT.search(line)))
        game = Served(f"http://127.0.0.1:{port}", None, None)  # type: ignore[arg-type]
        player = Player(game)
        first = player.play("Qiqi <ML> runs 🏃 along the beach </TURN>")
        player.play("Qiqi sleeps", first)
        assert "empty" in player.ask(" ", first).json()["message"]
        assert player.ask("Qiqi wakes", "0002").status_code == 202
        process.terminate()
        rest = process.communicate(timeout=30)[1]
    assert rest == "stopped; every game is kept\n"
    assert process.returncode == 0
    log = (tmp_path / player.game / "turns.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in log][:2] == ["0001", "0002"]
