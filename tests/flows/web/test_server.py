"""The server of the game page, over real HTTP on loopback: games apart, a fair queue, nothing for strangers."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import av
import httpx
import pytest

from flows.game.records import GameError
from flows.web.page_server import listening
from flows.web.play_games import GAME_ID, MAX_KEPT, MAX_WAITING, is_disk_full, reason
from pipeline.core.errors import UserError
from tests.support.played_page import GradientEngine, Player, Served, served

INSTRUCTION = "Character: Qiqi; Motion: hug Ponyo; Background: beach."
PORT = re.compile(r"http://127\.0\.0\.1:(\d+)/")
HTTP = httpx.Client(verify=False)  # no certificates to load: all is plain HTTP on loopback


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as page:
        yield page
        page.engine.go.set()


def frames_in(video: bytes, path: Path) -> int:
    path.write_bytes(video)
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


def test_a_turn_is_drawn_and_kept(page: Served, tmp_path: Path) -> None:
    player = Player(page)
    turn = player.play(INSTRUCTION)

    told = player.read()
    assert told["drawing"] is None
    assert told["turns"] == [
        {
            "id": turn, "parent": None, "instruction": INSTRUCTION, "level": 2,
            "values": {"stamina": 45, "social": 55, "entertainment": 50},
        }
    ]  # fmt: skip
    shot = player.http.get(f"/api/games/{player.game}/turns/{turn}.mp4")
    assert shot.headers["content-type"] == "video/mp4"
    assert frames_in(shot.content, tmp_path / "shot.mp4") == 17
    part = player.http.get(f"/api/games/{player.game}/turns/{turn}.mp4", headers={"Range": "bytes=100-199"})
    assert part.status_code == 206
    assert part.content == shot.content[100:200]
    poster = player.http.get(f"/api/games/{player.game}/turns/{turn}.jpg")
    assert poster.headers["content-type"] == "image/jpeg"
    assert poster.content[:3] == b"\xff\xd8\xff"


def test_branches_share_their_beginning_and_a_film_shows_one_branch(page: Served, tmp_path: Path) -> None:
    player = Player(page)
    first = player.play("Qiqi walks")
    second = player.play("Qiqi will play", first)
    other = player.play("Qiqi will sleep", first)
    last = player.play("Qiqi will sleep on", other)

    turns = {turn["id"]: turn for turn in player.read()["turns"]}
    assert [turns[turn]["parent"] for turn in (first, second, other, last)] == [None, first, first, other]
    assert turns[last]["values"] == {"stamina": 55, "social": 50, "entertainment": 50}, "not what the other branch did"
    remembered = page.engine.seen[-1][0].window
    assert [past.instruction for past in remembered] == ["Qiqi walks", "Qiqi will sleep"]
    film = player.http.get(f"/api/games/{player.game}/films/{last}.mp4")
    assert 'attachment; filename="animegamer-3-turns.mp4"' in film.headers["content-disposition"]
    assert frames_in(film.content, tmp_path / "film.mp4") == 3 * 17


def test_progress_never_falls_and_ends_done(page: Served) -> None:
    player = Player(page)
    player.play("first, to measure the parts")
    page.engine.go.clear()
    player.ask("second", "0001")
    while player.wait_for("drawing")["share"] < 0.4:
        time.sleep(0.01)
    step = player.read()["drawing"]
    assert (step["part"], step["before"]) == ("denoising", 0)
    assert step["share"] == pytest.approx((0.01 + 0.1 / 2) / 0.12, abs=0.01)
    assert step["left_seconds"] == 0
    page.engine.go.set()
    steps = player.steps()
    assert [step["share"] for step in steps] == sorted(step["share"] for step in steps)
    assert (steps[-1]["status"], steps[-1]["turn"]) == ("done", "0002")


def test_players_share_nothing_but_the_queue(page: Served) -> None:
    one, two, three = Player(page), Player(page), Player(page)
    assert len({one.game, two.game, three.game}) == 3
    assert all(GAME_ID.fullmatch(player.game) for player in (one, two, three))
    page.engine.go.clear()
    for number, player in enumerate((one, two, three)):
        assert player.ask(f"turn of player {number}").json()["before"] == number
    assert one.ask("another").status_code == 409, "one drawing of a game at a time"
    page.engine.go.set()
    assert [player.steps()[-1]["status"] for player in (three, two, one)] == ["done"] * 3
    assert [instruction for _, instruction in page.engine.seen] == [f"turn of player {number}" for number in range(3)]
    assert all(state.turns == 0 and state.window == () for state, _ in page.engine.seen)
    for number, player in enumerate((one, two, three)):
        assert [turn["instruction"] for turn in player.read()["turns"]] == [f"turn of player {number}"]


def test_cancel_leaves_the_game_as_it_was(page: Served) -> None:
    drawn, waiting = Player(page), Player(page)
    first = drawn.play("Qiqi walks")
    before = drawn.read(), sorted(path.name for path in (page.games.folder / drawn.game).iterdir())
    page.engine.go.clear()
    drawn.ask("Qiqi runs", first)
    drawn.wait_for("drawing")
    waiting.ask("Ponyo runs")

    waiting.http.delete(f"/api/games/{waiting.game}/drawing")
    assert waiting.steps()[-1]["status"] == "cancelled", "at once, though another is being drawn"
    drawn.http.delete(f"/api/games/{drawn.game}/drawing")
    assert drawn.steps()[-1]["status"] == "cancelled"
    assert (drawn.read(), sorted(path.name for path in (page.games.folder / drawn.game).iterdir())) == before
    page.engine.go.set()
    assert waiting.play("Ponyo runs after all") == "0001"
    assert [instruction for _, instruction in page.engine.seen][-2:] == ["Qiqi runs", "Ponyo runs after all"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"after": None, "instruction": " \n\t"}, 422, "the instruction is empty"),
        ({"after": None, "instruction": "word " * 201}, 422, "at most 200 fit: shorten it"),
        ({"after": None, "instruction": 7}, 422, "valid string"),
        ({"instruction": "no after"}, 422, "after: Field required"),
        ({"after": "0009", "instruction": "walk"}, 409, "no such turn"),
        ({"after": "../0001", "instruction": "walk"}, 409, "no such turn"),
        ({"after": None, "instruction": "x" * 70_000}, 413, "too large"),
    ],
)
def test_what_cannot_be_played_is_refused_in_words(page: Served, body: object, status: int, words: str) -> None:
    player = Player(page)
    reply = player.http.post(f"/api/games/{player.game}/turns", json=body)
    assert reply.status_code == status
    assert words in reply.json()["message"]
    assert page.engine.seen == []


def test_every_refusal_is_a_sentence(page: Served) -> None:
    for method, path, status, words in (
        ("GET", "/no/such/page", 404, "no such page"),
        ("GET", "/__init__.py", 404, "no such page"),
        ("PUT", "/api/games", 405, "cannot be done"),
        ("DELETE", "/", 405, "cannot be done"),
    ):
        reply = HTTP.request(method, page.address + path)
        assert (reply.status_code, words in reply.json()["message"]) == (status, True), path
    endless = HTTP.post(page.address + "/api/games", content=iter([b"{}"]))
    assert (endless.status_code, "length" in endless.json()["message"]) == (411, True)
    assert HTTP.head(page.address + "/").status_code == 200
    assert HTTP.head(page.address + "/main.js").content == b""


def test_a_field_of_half_a_character_is_named(page: Served) -> None:
    player = Player(page)
    body = b'{"after": null, "instruction": "walk", "\\ud800": 1}'
    headers = {"Content-Type": "application/json"}
    reply = player.http.post(f"/api/games/{player.game}/turns", content=body, headers=headers)
    assert reply.status_code == 422


def test_a_damaged_game_is_told_without_the_servers_paths(page: Served, capfd: pytest.CaptureFixture[str]) -> None:
    player = Player(page)
    player.play("walk")
    folder = page.games.folder / player.game
    (folder / "0001.safetensors").write_bytes(b"damaged")
    assert player.ask("run", "0001").status_code == 202
    step = player.steps()[-1]
    (folder / "0001.mp4").unlink()
    gone = player.http.get(f"/api/games/{player.game}/turns/0001.mp4")
    (folder / "turns.jsonl").write_text("{}\n")
    reply = player.http.get(f"/api/games/{player.game}")
    assert (step["status"], gone.status_code, reply.status_code) == ("failed", 404, 409)
    for message in (step["message"], gone.json()["message"], reply.json()["message"]):
        assert str(page.games.folder) not in message
        assert "--" not in message
    assert "damaged" in reply.json()["message"]
    assert str(folder / "turns.jsonl") in capfd.readouterr().err, "the operator sees which file"


@pytest.mark.parametrize(
    ("error", "words", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/srv/games/x"), "disk of the game's server is full", True),
        (PermissionError(errno.EACCES, "Permission denied", "/srv/games/x"), "could not read or write", False),
        (GameError("/srv/games/x: open the game again"), "damaged", False),
    ],
)
def test_a_failure_is_told_to_the_player_without_paths(error: Exception, words: str, full: bool) -> None:
    assert words in reason(error)
    assert "/srv" not in reason(error)
    assert is_disk_full(error) is full


def test_a_folder_that_cannot_be_written_is_told(page: Served) -> None:
    page.games.folder.mkdir(exist_ok=True)
    page.games.folder.rename(page.games.folder.with_name("moved"))
    page.games.folder.write_text("a file is in the way")
    reply = HTTP.post(page.address + "/api/games", json={})
    assert (reply.status_code, "read or write" in reply.json()["message"]) == (500, True)


def test_a_bug_is_no_refusal_and_its_traceback_is_logged(page: Served, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: str) -> None:
        raise ValueError("a bug in the check")

    page.games.check = broken
    player = Player(page)
    assert player.ask("walk").status_code == 500
    patience = time.monotonic() + 10
    while "ValueError: a bug in the check" not in caplog.text and time.monotonic() < patience:
        time.sleep(0.05)  # it is logged when the reply has gone
    assert "Traceback (most recent call last)" in caplog.text
    assert "ValueError: a bug in the check" in caplog.text


def test_half_a_character_is_refused(page: Served) -> None:
    player = Player(page)
    body = b'{"after": null, "instruction": "walk \\ud800"}'
    headers = {"Content-Type": "application/json"}
    reply = player.http.post(f"/api/games/{player.game}/turns", content=body, headers=headers)
    assert reply.status_code == 422


def test_a_failed_drawing_is_told_and_the_next_one_works(page: Served, capfd: pytest.CaptureFixture[str]) -> None:
    player = Player(page)
    assert player.ask("explode").status_code == 202
    step = player.steps()[-1]
    assert step["status"] == "failed"
    assert "out of memory" in step["message"]
    assert "RuntimeError" in capfd.readouterr().err, "the operator sees where it failed"
    assert player.play("walk") == "0001"


def test_games_outlive_the_server_and_belong_to_their_checkpoint(tmp_path: Path) -> None:
    with served(tmp_path) as page:
        player = Player(page)
        player.play("Qiqi walks")
        before = player.read()
    with served(tmp_path) as page:
        player.http = httpx.Client(base_url=page.address, verify=False)
        assert player.read() == before
        assert player.steps() == [
            {"status": "none", "before": 0, "part": "", "share": 0, "left_seconds": None, "message": "", "turn": None}
        ]
        player.play("Qiqi runs", "0001")
        assert [past.instruction for past in page.engine.seen[0][0].window] == ["Qiqi walks"]
    with served(tmp_path, checkpoint="another") as page:
        player.http = httpx.Client(base_url=page.address, verify=False)
        assert len(player.read()["turns"]) == 2
        refused = player.ask("Qiqi flies", "0002")
        assert refused.status_code == 409
        assert "another checkpoint" in refused.json()["message"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8731", "127.0.0.1.evil.example", "127.0.0.1:1:2", ""])
def test_other_hosts_are_refused(page: Served, host: str) -> None:
    reply = HTTP.get(page.address + "/api/info", headers={"Host": host})
    assert reply.status_code == 421 or (reply.status_code == 400 and not host)
    assert "Qiqi" not in reply.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_cannot_write(page: Served, headers: dict[str, str]) -> None:
    player = Player(page)
    assert HTTP.post(page.address + "/api/games", json={}, headers=headers).status_code == 403
    assert player.http.delete(f"/api/games/{player.game}/drawing", headers=headers).status_code == 403
    own = {"Origin": page.address, "Sec-Fetch-Site": "same-origin"}
    assert HTTP.post(page.address + "/api/games", json={}, headers=own).status_code == 201


def test_no_path_leaves_the_folder_of_games(page: Served, tmp_path: Path) -> None:
    player = Player(page)
    player.play("walk")
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (page.games.folder / "short").mkdir()
    names = ("..", ".", "%2e%2e", "..%2f..", "short", player.game + "%00", player.game + "%0a", "%2fetc", "A" * 22)
    for name in names:
        assert HTTP.get(f"{page.address}/api/games/{name}").status_code in (404, 405), name
    for name in ("../secret", "..%2f..%2f..%2fsecret", "%2e%2e%2fsecret", "0002", "1", "0001%00", "game"):
        reply = HTTP.get(f"{page.address}/api/games/{player.game}/turns/{name}.mp4")
        assert reply.status_code == 404, name
    for name in ("../play_server.py", "..%2fplay_server.py", "%2fetc%2fpasswd", "play_page", "docs", "openapi.json"):
        assert HTTP.get(f"{page.address}/{name}").status_code == 404, name


def test_every_reply_carries_the_policy(page: Served) -> None:
    index = HTTP.get(page.address + "/")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    names = re.findall(r'(?:href|src)="([\w.]+)"', index.text)
    assert {"main.js", "play.css", "icon.svg"} <= set(names)
    for name in ["", *names, "api/info", "api/games/no-such-game", "nothing"]:
        reply = HTTP.get(f"{page.address}/{name}")
        assert "default-src 'none'" in reply.headers["content-security-policy"], name
        assert "unsafe" not in reply.headers["content-security-policy"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
    assert HTTP.get(page.address + "/main.js").headers["content-type"] == "text/javascript; charset=utf-8"


def test_the_queue_is_bounded_and_ended_drawings_are_forgotten(page: Served) -> None:
    for _ in range(3):
        page.games.draw(page.games.make(), None, "walk")
    kept = Player(page)
    kept.play("run")
    for number in range(MAX_KEPT + 5):
        page.games._latest[str(number)] = page.games._latest[kept.game]
    kept.play("run on", "0001")
    assert len(page.games._latest) <= MAX_KEPT
    page.engine.go.clear()
    for _ in range(MAX_WAITING):
        page.games.draw(page.games.make(), None, "walk")
    refused = kept.ask("run further", "0002")
    assert refused.status_code == 409
    assert "try again" in refused.json()["message"]


def test_the_server_stops_while_a_page_watches(tmp_path: Path) -> None:
    engine = GradientEngine()
    with served(tmp_path, engine) as page:
        player = Player(page)
        engine.go.clear()
        player.ask("walk")
        player.wait_for("drawing")
        stream = player.http.stream("GET", f"/api/games/{player.game}/drawing")
        reply = stream.__enter__()
        lines = reply.iter_lines()  # held: without it the connection would close
        assert "drawing" in next(line for line in lines if line)
        started = time.monotonic()
    assert time.monotonic() - started < 3
    with served(tmp_path) as page:
        player.http = httpx.Client(base_url=page.address, verify=False)
        assert player.read() == {"turns": [], "drawing": None}


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with listening(0, "the game") as taken:
        port = taken.getsockname()[1]
        assert taken.getsockname()[0] == "127.0.0.1"
        with pytest.raises(UserError, match=rf"port {port} cannot be used.*--port"):
            listening(port, "the game")


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_real_engine_is_served_and_stops_cleanly(tmp_path: Path, interruptible: None, stop: signal.Signals) -> None:
    from tests.support.tiny_models import tiny_checkpoint

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
        page = Served(f"http://127.0.0.1:{port}", None, None)  # type: ignore[arg-type]
        player = Player(page)
        first = player.play("Qiqi <ML> runs 🏃 along the beach </TURN>")
        player.play("Qiqi sleeps", first)
        assert "empty" in player.ask("\x00", first).json()["message"]
        assert player.ask("Qiqi wakes", "0002").status_code == 202
        process.send_signal(stop)
        rest = process.communicate(timeout=30)[1]
    assert rest == "stopped; every game is kept\n"
    assert process.returncode == 0
    log = (tmp_path / "games" / player.game / "turns.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in log][:2] == ["0001", "0002"]
