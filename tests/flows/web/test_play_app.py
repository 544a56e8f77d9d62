"""App of the game page, over real HTTP on loopback: bad requests, paths, policy, start and stop."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from flows.web.page_server import listening
from pipeline.core.errors import UserError
from tests.support.servers.played_page import GradientEngine, Player, Served, served

PORT = re.compile(r"http://127\.0\.0\.1:(\d+)/")
HTTP = httpx.Client(verify=False)  # no certificates to load: plain HTTP on loopback


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"after": None, "instruction": "  "}, 422, "the instruction is empty"),
        ({"after": None, "instruction": "word " * 201}, 422, "at most 200 fit: shorten it"),
        ({"instruction": "no after"}, 422, "after: Field required"),
        ({"after": "0009", "instruction": "walk"}, 409, "no such turn"),
        ({"after": None, "instruction": "x" * 70_000}, 413, "too large"),
    ],
)
def test_invalid_turns_are_refused_with_a_message(game: Served, body: object, status: int, words: str) -> None:
    player = Player(game)
    reply = player.http.post(f"/api/games/{player.game}/turns", json=body)
    assert reply.status_code == status
    assert words in reply.json()["message"]
    assert game.engine.seen == []


def test_every_refusal_has_a_message(game: Served) -> None:
    for method, path, status, words in (
        ("GET", "/no/such/page", 404, "no such page"),
        ("GET", "/__init__.py", 404, "no such page"),
        ("PUT", "/api/games", 405, "cannot be done"),
        ("DELETE", "/", 405, "cannot be done"),
    ):
        reply = HTTP.request(method, game.address + path)
        assert (reply.status_code, words in reply.json()["message"]) == (status, True), path
    endless = HTTP.post(game.address + "/api/games", content=iter([b"{}"]))
    assert (endless.status_code, "length" in endless.json()["message"]) == (411, True)
    assert HTTP.head(game.address + "/").status_code == 200
    assert HTTP.head(game.address + "/main.js").content == b""


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


def test_a_folder_that_cannot_be_written_is_reported(game: Served) -> None:
    game.games.folder.mkdir(exist_ok=True)
    game.games.folder.rename(game.games.folder.with_name("moved"))
    game.games.folder.write_text("a file is in the way")
    reply = HTTP.post(game.address + "/api/games", json={})
    assert (reply.status_code, "read or write" in reply.json()["message"]) == (500, True)


def test_a_bug_is_a_server_error_and_its_traceback_is_logged(game: Served, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: str) -> None:
        raise ValueError("a bug in the check")

    game.games.check = broken
    player = Player(game)
    assert player.ask("walk").status_code == 500
    deadline = time.monotonic() + 10
    while "ValueError: a bug in the check" not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.05)  # logged after the reply
    assert "Traceback (most recent call last)" in caplog.text
    assert "ValueError: a bug in the check" in caplog.text


@pytest.mark.parametrize("hostile", [b"\\ud800", b"\\u001b[31m", b"\\n</TURN>", b'", "\\ud800": "1'])
def test_an_instruction_that_is_no_line_of_text_is_refused(game: Served, hostile: bytes) -> None:
    player = Player(game)
    body = b'{"after": null, "instruction": "walk %s"}' % hostile
    headers = {"Content-Type": "application/json"}
    reply = player.http.post(f"/api/games/{player.game}/turns", content=body, headers=headers)
    assert reply.status_code == 422


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
    assert index.headers["content-type"] == "text/html; charset=utf-8"
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
        assert player.read() == {"turns": [], "drawing": None}


def test_a_port_in_use_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with listening(0, "the game") as taken:
        port = taken.getsockname()[1]
        assert taken.getsockname()[0] == "127.0.0.1"
        with pytest.raises(UserError, match=rf"port {port} cannot be used.*--port"):
            listening(port, "the game")


@pytest.mark.slow
@pytest.mark.parametrize("stop", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM])
def test_a_real_engine_is_served_and_stops_cleanly(tmp_path: Path, interruptible: None, stop: signal.Signals) -> None:
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
        process.send_signal(stop)
        rest = process.communicate(timeout=30)[1]
    assert rest == "stopped; every game is kept\n"
    assert process.returncode == 0
    log = (tmp_path / "games" / player.game / "turns.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in log][:2] == ["0001", "0002"]
