"""Keeping a game over real HTTP on loopback: films with their progress, saving, opening."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from flows.web import page_server
from pipeline.video.clip_files import clip_shape
from tests.support.servers.played_page import Player, Served, served


def making(player: Player, turn: str, **style: object) -> list[dict[str, Any]]:
    """Return the progress messages of a film until its end."""
    address = f"/api/games/{player.game}/films/{turn}"
    with player.http.stream("GET", address, params={key: str(value) for key, value in style.items()}) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line[5:]) for line in reply.iter_lines() if line.startswith("data:")]


def test_a_film_is_made_with_its_progress_and_taken_away(game: Served, tmp_path: Path) -> None:
    player = Player(game)
    last = player.play("Motion: run; Background: beach.", player.play("Motion: walk; Background: beach."))
    assert [turn["stays"] for turn in player.read()["turns"]] == [False, True]
    assert making(player, last, kind="gif", captions=True)[-1] == {"share": 1.0, "done": True, "message": ""}
    films = f"/api/games/{player.game}/films/{last}"
    gif = player.http.get(f"{films}.gif?captions=true")
    assert (gif.content[:6], gif.headers["content-type"]) == (b"GIF89a", "image/gif")
    film = player.http.get(f"{films}.mp4")
    assert film.headers["content-disposition"] == 'attachment; filename="animegamer-2-turns.mp4"'
    (tmp_path / "film.mp4").write_bytes(film.content)
    assert clip_shape(tmp_path / "film.mp4").frames == 34
    assert player.http.get(f"{films}.avi").status_code == 422
    (game.games.folder / player.game / f"{last}.mp4").write_bytes(b"damaged")
    assert "damaged" in making(player, last, captions=True)[-1]["message"]


def test_a_saved_game_is_opened_as_a_new_one_beside_the_old(game: Served, tmp_path: Path) -> None:
    player = Player(game)
    player.play("run", player.play("walk"))
    assert player.http.get(f"/api/games/{player.game}/savable").json() == {}
    saved = player.http.get(f"/api/games/{player.game}/saved")
    assert saved.headers["content-disposition"] == 'attachment; filename="animegamer-2-turns.animegame"'
    opened = player.http.post("/api/games/saved", content=saved.content)
    assert opened.status_code == 201
    before, player.game = player.game, opened.json()["id"]
    assert player.game != before
    assert [turn["instruction"] for turn in player.read()["turns"]] == ["walk", "run"]
    assert player.play("sleep", "0002") == "0003"
    (game.games.folder / before / "0001.mp4").unlink()
    assert "0001.mp4 of this game is gone" in player.http.get(f"/api/games/{before}/savable").json()["message"]
    with served(tmp_path / "other", checkpoint="brushes") as other:
        refused = Player(other).http.post("/api/games/saved", content=saved.content)
    assert refused.status_code == 422
    assert "the model tiny gradients" in refused.json()["message"]
    assert "plays tiny brushes" in refused.json()["message"]


def test_a_file_that_is_no_saved_game_or_too_large_is_refused(game: Served) -> None:
    player = Player(game)
    before = sorted(path.name for path in game.games.folder.iterdir())
    damaged = player.http.post("/api/games/saved", content=b"x" * 300_000)
    assert (damaged.status_code, "no saved game" in damaged.json()["message"]) == (422, True)
    assert "/" not in damaged.json()["message"]
    for address, length in (("/api/games/saved", 2**32), (f"/api/games/{player.game}/turns", 300_000)):
        request = f"POST {address} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", int(game.address.rpartition(":")[2]))) as connection:
            connection.sendall(request.encode())
            assert b"413" in connection.recv(64), address
    elsewhere = {"Origin": "http://example.org"}
    assert player.http.post("/api/games/saved", content=b"x", headers=elsewhere).status_code == 403
    assert sorted(path.name for path in game.games.folder.iterdir()) == before


def test_a_slow_upload_has_the_time_that_its_length_takes(game: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "REQUEST_SECONDS", 0.3)
    for seconds_for_it, answered in ((2.0, True), (0.0, False)):
        monkeypatch.setattr(page_server, "SLOWEST_UPLOAD", 100_000 / seconds_for_it if seconds_for_it else 1e12)
        with socket.create_connection(("127.0.0.1", int(game.address.rpartition(":")[2]))) as connection:
            head = "POST /api/games/saved HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
            connection.sendall(head.encode() + b"x" * 50_000)
            time.sleep(0.8)
            try:
                connection.sendall(b"x" * 50_000)
                reply = connection.recv(64)
            except ConnectionError:
                reply = b""
        assert (b"422" in reply) is answered
