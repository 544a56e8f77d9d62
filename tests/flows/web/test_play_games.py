"""Games of the page, played over HTTP: turns, branches, progress, a fair queue, cancellation, failed drawings."""

from __future__ import annotations

import time
import weakref
from concurrent.futures import wait
from io import BytesIO
from pathlib import Path

import av
import httpx
import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from flows.web.play_games import GAME_ID, MAX_KEPT, MAX_WAITING, Games
from models.engine_options import PartProgress, unwatched
from models.turns import GameState, Show, Turn, unseen
from tests.support.servers.played_page import GradientEngine, Player, Served, check, painted, served, settings

INSTRUCTION = "Character: Qiqi; Motion: hug Ponyo; Background: beach."


def frames_in(video: bytes, path: Path) -> int:
    path.write_bytes(video)
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


def test_a_turn_is_drawn_and_kept(game: Served, tmp_path: Path) -> None:
    player = Player(game)
    turn = player.play(INSTRUCTION)

    values = {"stamina": 45, "social": 55, "entertainment": 50}
    told = {"id": turn, "parent": None, "instruction": INSTRUCTION, "level": 2, "values": values}
    told |= {"first_frame_seconds": 0.115, "stays": False, "continues": False}
    waited = "95% of 1 turn showed a frame within 0.12 s, on a brush."
    assert player.read() == {"drawing": None, "turns": [told], "waited": waited}
    shot = player.http.get(f"/api/games/{player.game}/turns/{turn}.mp4")
    assert shot.headers["content-type"] == "video/mp4"
    assert frames_in(shot.content, tmp_path / "shot.mp4") == 17
    part = player.http.get(f"/api/games/{player.game}/turns/{turn}.mp4", headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, shot.content[100:200])
    poster = player.http.get(f"/api/games/{player.game}/turns/{turn}.jpg")
    assert poster.content[:3] == b"\xff\xd8\xff"


def test_branches_share_their_beginning_and_a_film_shows_one_branch(game: Served, tmp_path: Path) -> None:
    player = Player(game)
    first = player.play("Qiqi walks")
    second = player.play("Qiqi will play", first)
    other = player.play("Qiqi will sleep", first)
    last = player.play("Qiqi will sleep on", other)

    turns = {turn["id"]: turn for turn in player.read()["turns"]}
    assert [turns[turn]["parent"] for turn in (first, second, other, last)] == [None, first, first, other]
    assert turns[last]["values"] == {"stamina": 55, "social": 50, "entertainment": 50}, (
        "independent of the other branch"
    )
    remembered = game.engine.seen[-1][0].window
    assert [past.instruction for past in remembered] == ["Qiqi walks", "Qiqi will sleep"]
    film = player.http.get(f"/api/games/{player.game}/films/{last}.mp4")
    assert 'attachment; filename="animegamer-3-turns.mp4"' in film.headers["content-disposition"]
    assert frames_in(film.content, tmp_path / "film.mp4") == 3 * 17


def test_progress_never_falls_and_ends_done(game: Served) -> None:
    player = Player(game)
    player.play("first, to measure the parts")
    game.engine.go.clear()
    player.ask("second", "0001")
    while player.wait_for("drawing")["share"] < 0.4:
        time.sleep(0.01)
    step = player.read()["drawing"]
    assert (step["part"], step["before"]) == ("denoising", 0)
    assert step["share"] == pytest.approx((0.01 + 0.1 / 2) / 0.12, abs=0.01)
    assert step["left_seconds"] == 0
    game.engine.go.set()
    steps = player.steps()
    assert [step["share"] for step in steps] == sorted(step["share"] for step in steps)
    assert (steps[-1]["status"], steps[-1]["turn"]) == ("done", "0002")


def test_players_share_nothing_but_the_queue(game: Served) -> None:
    one, two, three = Player(game), Player(game), Player(game)
    assert len({one.game, two.game, three.game}) == 3
    assert all(GAME_ID.fullmatch(player.game) for player in (one, two, three))
    game.engine.go.clear()
    for number, player in enumerate((one, two, three)):
        assert player.ask(f"turn of player {number}").json()["before"] == number
    assert one.ask("another").status_code == 409, "one drawing of a game at a time"
    game.engine.go.set()
    assert [player.steps()[-1]["status"] for player in (three, two, one)] == ["done"] * 3
    assert [instruction for _, instruction in game.engine.seen] == [f"turn of player {number}" for number in range(3)]
    assert all(state.turns == 0 and state.window == () for state, _ in game.engine.seen)
    for number, player in enumerate((one, two, three)):
        assert [turn["instruction"] for turn in player.read()["turns"]] == [f"turn of player {number}"]


def test_cancel_leaves_the_game_as_it_was(game: Served) -> None:
    drawn, waiting = Player(game), Player(game)
    first = drawn.play("Qiqi walks")
    before = drawn.read(), sorted(path.name for path in (game.games.folder / drawn.game).iterdir())
    game.engine.go.clear()
    drawn.ask("Qiqi runs", first)
    drawn.wait_for("drawing")
    waiting.ask("Ponyo runs")

    waiting.http.delete(f"/api/games/{waiting.game}/drawing")
    assert waiting.steps()[-1]["status"] == "cancelled", "at once, although another game is being drawn"
    drawn.http.delete(f"/api/games/{drawn.game}/drawing")
    assert drawn.steps()[-1]["status"] == "cancelled"
    assert (drawn.read(), sorted(path.name for path in (game.games.folder / drawn.game).iterdir())) == before
    game.engine.go.set()
    assert waiting.play("Ponyo runs after all") == "0001"
    assert [instruction for _, instruction in game.engine.seen][-2:] == ["Qiqi runs", "Ponyo runs after all"]


def test_the_first_frames_are_fetched_while_the_rest_is_drawn_and_a_stop_leaves_no_half_turn(game: Served) -> None:
    player = Player(game)
    player.play("Qiqi walks")
    place = f"/api/games/{player.game}/drawing.png"
    assert player.http.get(place).status_code == 404
    before = player.read(), sorted(path.name for path in (game.games.folder / player.game).iterdir())
    game.engine.rest.clear()
    player.ask("Qiqi runs", "0001")
    while not player.wait_for("drawing")["early"]:
        time.sleep(0.01)
    animation = Image.open(BytesIO(player.http.get(place).content))
    shown = np.stack([np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(animation)])
    np.testing.assert_array_equal(shown, painted("Qiqi runs", 2, game.engine.size)[:9])
    assert animation.info["duration"] == 125
    player.http.delete(f"/api/games/{player.game}/drawing")
    assert player.steps()[-1]["status"] == "cancelled"
    assert player.http.get(place).status_code == 404
    assert (player.read(), sorted(path.name for path in (game.games.folder / player.game).iterdir())) == before
    game.engine.rest.set()
    assert player.play("Qiqi runs", "0001") == "0002"


def test_a_failed_drawing_is_reported_and_the_next_one_works(game: Served, capfd: pytest.CaptureFixture[str]) -> None:
    player = Player(game)
    assert player.ask("explode").status_code == 202
    step = player.steps()[-1]
    assert step["status"] == "failed"
    assert "out of memory" in step["message"]
    assert "RuntimeError" in capfd.readouterr().err, "the operator's log has the traceback"
    assert player.play("walk") == "0001"


class FullEngine(GradientEngine):
    """Engine that runs out of memory in the middle of a turn; `tensor` refers to what it had computed until then."""

    tensor: weakref.ref[torch.Tensor]

    def next_turn(
        self,
        state: GameState,
        instruction: str,
        seed: int,
        progress: PartProgress = unwatched,
        show: Show = unseen,  # noqa: ARG002
    ) -> tuple[Turn, GameState]:
        progress("game model", 0, 1)
        computed = torch.zeros(8)
        self.tensor = weakref.ref(computed)
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        except torch.OutOfMemoryError as error:
            raise torch.OutOfMemoryError(f"{instruction} {seed} {state.turns}") from error


def test_a_drawing_without_memory_names_the_remedy_and_keeps_no_tensors(tmp_path: Path) -> None:
    engine = FullEngine()
    games = Games(tmp_path / "games", engine, settings(), check)
    drawing = games.draw(games.make(), None, "Qiqi walks")
    assert drawing.work
    wait([drawing.work])
    games.close()  # waits until the worker has settled it
    assert drawing.status == "failed"
    assert "--offload" in drawing.message
    assert engine.tensor() is None, "it fills the memory that the next turn needs"


def test_games_outlive_the_server_and_belong_to_their_checkpoint(tmp_path: Path) -> None:
    with served(tmp_path) as game:
        player = Player(game)
        player.play("Qiqi walks")
        before = player.read()
    with served(tmp_path) as game:
        player.http = httpx.Client(base_url=game.address, verify=False)
        assert player.read() == before
        assert player.steps() == [
            {
                "status": "none",
                "before": 0,
                "part": "",
                "share": 0,
                "left_seconds": None,
                "stays": False,
                "early": False,
                "message": "",
                "note": "",
                "turn": None,
            }
        ]
        player.play("Qiqi runs", "0001")
        assert [past.instruction for past in game.engine.seen[0][0].window] == ["Qiqi walks"]
    with served(tmp_path, checkpoint="another") as game:
        player.http = httpx.Client(base_url=game.address, verify=False)
        assert len(player.read()["turns"]) == 2
        refused = player.ask("Qiqi flies", "0002")
        assert refused.status_code == 409
        assert "another checkpoint" in refused.json()["message"]


def test_the_queue_is_bounded_and_finished_drawings_are_dropped(game: Served) -> None:
    for _ in range(3):
        game.games.draw(game.games.make(), None, "walk")
    kept = Player(game)
    kept.play("run")
    for number in range(MAX_KEPT + 5):
        game.games._latest[str(number)] = game.games._latest[kept.game]
    kept.play("run on", "0001")
    assert len(game.games._latest) <= MAX_KEPT
    game.engine.go.clear()
    for _ in range(MAX_WAITING):
        game.games.draw(game.games.make(), None, "walk")
    refused = kept.ask("run further", "0002")
    assert refused.status_code == 409
    assert "try again" in refused.json()["message"]
