"""Rules on the game page, over real HTTP on loopback: standings by branch and take, other motions, and long games."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flows.game.folder import GameFolder
from flows.game.records import Changes, CharacterValues, TurnRecord
from flows.web.play_rules import Referee
from flows.web.rules import SHIPPED, Rules, read_rules
from flows.web.standings import Standing
from models.config import ModelConfig
from models.shipped import PACKED
from tests.support.servers.played_page import Player, Served, served, settings

CONFIG = ModelConfig.read(PACKED)
RULES = read_rules(SHIPPED)
SHORT = Rules.model_validate({**RULES.model_dump(), "turns": 3})
RUN = "Character: Haru; Motion: run; Background: daytime city street."
HUG = "Character: Yuki, Mika; Motion: hug; Background: daytime meadow."


@pytest.fixture
def ruled(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, config=CONFIG, rules=SHORT) as game:
        yield game


def standing(player: Player, turn: str) -> dict[str, Any]:
    reply = player.http.get(f"/api/games/{player.game}/turns/{turn}/standing")
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def stamina(player: Player, turn: str) -> dict[str, int]:
    return {person["name"]: person["values"]["stamina"] for person in standing(player, turn)["people"]}


def test_a_tired_character_does_something_else_and_the_page_is_told(ruled: Served) -> None:
    player = Player(ruled)
    first = player.play(RUN)
    second = player.play(RUN, first)
    now = standing(player, second)
    assert now["hindered"]["Haru"]["run"].endswith("Haru will walk instead.")
    assert {person["mood"] for person in now["people"]} == {"worn out"}
    note = player.ask(RUN, second).json()["note"]
    third = player.steps()[-1]["turn"]
    assert note == now["hindered"]["Haru"]["run"]
    assert ruled.engine.seen[-1][1] == "Character: Haru; Motion: walk; Background: daytime city street."
    assert standing(player, third)["ending"].items() >= {"turns": 3, "motions": 2, "places": 1}.items()
    assert now["ending"] is None


def test_branches_and_takes_have_their_own_standings_also_after_a_restart(ruled: Served, tmp_path: Path) -> None:
    player = Player(ruled)
    first = player.play(RUN)
    take = player.play(RUN, None)
    rested = player.play("Character: Haru; Motion: sit down; Background: meadow.", first)
    tired = player.play(RUN, take)
    known = {turn: standing(player, turn) for turn in (first, take, rested, tired)}
    assert stamina(player, first) == stamina(player, take)
    assert stamina(player, rested)["Haru"] > stamina(player, tired)["Haru"]
    game = player.game
    with served(tmp_path, config=CONFIG, rules=SHORT) as restarted:
        player = Player(restarted)
        player.game = game
        for turn, before in known.items():
            assert {**standing(player, turn), "surprise": ""} == {**before, "surprise": ""}


def test_players_at_the_same_time_have_their_own_standings_and_endings(tmp_path: Path) -> None:
    lines = (RUN, "Character: Mika; Motion: wave; Background: daytime beach.", HUG)
    without_wishes = SHORT.model_copy(update={"wishes": ()})  # they differ from game to game

    def play_to_the_end(player: Player, line: str) -> dict[str, Any]:
        turn = None
        for _ in range(SHORT.turns):
            turn = player.play(line, turn)
        return standing(player, str(turn))

    with served(tmp_path, config=CONFIG, rules=without_wishes) as game, ThreadPoolExecutor(len(lines)) as threads:
        together, alone = ([Player(game) for _ in lines] for _ in range(2))
        found = list(threads.map(play_to_the_end, together, lines))
        for now, player, line in zip(found, alone, lines, strict=True):
            assert play_to_the_end(player, line)["people"] == now["people"]
    assert [[person["name"] for person in now["people"]] for now in found] == [["Haru"], ["Mika"], ["Yuki", "Mika"]]
    assert [now["who"] for now in found] == [["Haru"], ["Mika"], ["Yuki", "Mika"]]
    assert [now["ending"]["motions"] for now in found] == [2, 1, 1], "Haru tires, and the others do not"


def test_a_refused_turn_is_not_drawn(tmp_path: Path) -> None:
    rules = Rules.model_validate({"motions": {"run": {"stamina": -50, "needs": {"stamina": 10}}}})
    with served(tmp_path, config=CONFIG, rules=rules) as game:
        player = Player(game)
        first = player.play(RUN)
        reply = player.ask(RUN, first)
        assert (reply.status_code, "Haru is too tired to run" in reply.json()["message"]) == (422, True)
        assert len(game.engine.seen) == 1
        assert player.ask(RUN, "0009").status_code == 409


def test_without_rules_nothing_is_at_stake(tmp_path: Path) -> None:
    with served(tmp_path, config=CONFIG) as game:
        player = Player(game)
        last = None
        for _ in range(4):
            last = player.play(RUN, last)
        assert {text for _, text in game.engine.seen} == {RUN}
        assert player.read()["turns"][-1]["values"]["stamina"] == 30
        assert player.http.get("/api/info").json()["rules"] is None
        assert player.http.get("/api/standing").status_code == 404
        assert player.http.get(f"/api/games/{player.game}/turns/{last}/standing").status_code == 404


def test_the_first_turn_has_suggestions_and_unknown_turns_have_no_standing(ruled: Served) -> None:
    player = Player(ruled)
    opening = player.http.get("/api/standing").json()
    assert len(opening["suggestions"]) == 3
    assert all("daytime" in each["instruction"] or "night" in each["instruction"] for each in opening["suggestions"])
    assert (opening["people"], opening["wishes"]) == ([], [])
    for turn in ("0001", "..", "%00"):
        assert player.http.get(f"/api/games/{player.game}/turns/{turn}/standing").status_code == 404
    assert player.read()["fulfilled"] == {}


def record(number: int, instruction: str) -> TurnRecord:
    parent = f"{number - 1:04d}" if number > 1 else None
    changes, values = (
        Changes(stamina=-1, social=0, entertainment=1),
        CharacterValues(stamina=0, social=0, entertainment=0),
    )
    said = {"instruction": instruction, "level": 2, "scope_px": 1.0, "seconds": {}}
    return TurnRecord(id=f"{number:04d}", parent=parent, number=number, changes=changes, values=values, **said)


def test_a_long_game_is_computed_once_and_then_turn_by_turn(tmp_path: Path) -> None:
    folder, referee = GameFolder.create(tmp_path / "game", settings()), Referee(RULES, CONFIG)
    lines = [f"Character: {name}; Motion: wave; Background: meadow." for name in CONFIG.characters]

    def standings(turns: list[TurnRecord]) -> list[Standing]:
        (folder.path / "turns.jsonl").write_text("".join(f"{turn.model_dump_json()}\n" for turn in turns))
        return list(referee.standings(GameFolder.open(folder.path))[1].values())

    def same(one: list[Standing], other: list[Standing]) -> int:
        return sum(before is now for before, now in zip(one, other, strict=False))

    turns = [record(number, lines[number % 4]) for number in range(1, 401)]
    first = standings(turns)
    assert [now.number for now in first[-2:]] == [399, 400]
    grown = standings([*turns, record(401, lines[0])])
    assert (len(grown), same(first, grown)) == (401, 400)
    changed = standings([*turns[:390], record(391, lines[0].replace("wave", "jump")), *turns[391:]])
    assert same(grown, changed) == 390, "the changed turn and those after it are new"
    assert {path.name for path in folder.path.iterdir()} == {"game.json", "turns.jsonl"}, "no file of the rules"
