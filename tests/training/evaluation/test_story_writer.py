"""Stories by a model on a real server: written, repaired, refused, counted, and never asked for twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from prompts.evaluation_replies import StoryPanel, format_panel, parse_story, story_pattern
from prompts.tags import TagError
from tests.support.media.painted_clips import make_cast
from tests.support.servers.caption_server import Answer, CaptionServer, Request
from training.evaluation.benchmark import read_benchmark
from training.evaluation.story_checks import check_story, count_games, returns

PLACES = ("kitchen", "kitchen", "garden", "garden", "sea shore", "sea shore", "garden", "kitchen", "forest", "kitchen")
MOTIONS = ("wake", "eat", "dig", "run", "swim", "jump", "climb", "cook", "ride", "sleep")


def story(protagonist: str, companion: str | None) -> list[StoryPanel]:
    with_others = (protagonist, companion) if companion else (protagonist,)
    return [
        StoryPanel(
            with_others if turn % 2 else (protagonist,),
            f"{motion} at turn {turn}",
            place,
            turn % 5 + 1,
            "slowly",
            1 if turn % 2 and companion else 0,
            1 if turn > 4 else 0,
            1 if motion in ("eat", "sleep") else -1,
        )
        for turn, (motion, place) in enumerate(zip(MOTIONS, PLACES, strict=True))
    ]


def text_of(panels: list[StoryPanel]) -> str:
    return "\n".join(map(format_panel, panels))


def told(request: Request) -> Answer:
    """Good story, as the first message asks for it."""
    asked = request.body["messages"][0]["content"]
    found = re.search(r"It is about (.+), has", asked.replace("\n", " "))
    companions = re.search(r"at most one in a panel:\n(.+)", asked)
    assert found is not None
    assert companions is not None
    return Answer(text_of(story(found[1], companions[1])))


def write(tmp_path: Path, address: str, *more: str) -> str:
    cast = tmp_path / "cast"
    if not cast.exists():
        make_cast(cast, "Ponyo", "Sosuke")
    options = ["--cast", str(cast), "--server", address, "--model", "m", "--out", str(tmp_path / "games.jsonl"), *more]
    done = CliRunner().invoke(app, ["benchmark", "write", *options])
    return done.output if done.exit_code == 0 else f"failed: {done.output}{done.exception}"


def test_stories_become_a_benchmark_and_are_not_asked_for_twice(tmp_path: Path) -> None:
    with CaptionServer(told) as server:
        said = write(tmp_path, server.address, "--games", "2")
        assert "2 characters, 10 motions, 4 environments, 4 games, 40 rounds" in said
        assert "12 returns to a place, in 4 games" in said
        written = (tmp_path / "games.jsonl").read_bytes()
        assert len(server.requests) == 4
        write(tmp_path, server.address, "--games", "2")
        assert len(server.requests) == 4
        assert "6 games, 60 rounds" in write(tmp_path, server.address, "--games", "3")
        assert len(server.requests) == 6, "of more games, the new ones alone"
        write(tmp_path, server.address, "--games", "2")
    assert (tmp_path / "games.jsonl").read_bytes() == written
    benchmark = read_benchmark(tmp_path / "games.jsonl")
    assert [game.name for game in benchmark.games] == ["ponyo-01", "ponyo-02", "sosuke-01", "sosuke-02"]
    assert benchmark.games[2].panels[1].instruction == (
        "Character: Sosuke, Ponyo; Motion: slowly eat at turn 1; Background: kitchen."
    )


def test_an_unusable_story_is_repaired_or_left_out_with_its_reason(tmp_path: Path) -> None:
    def hostile(request: Request) -> Answer:
        asked = request.body["messages"][0]["content"]
        if "about Sosuke" in asked:
            return Answer("I would rather not. <S>Totoro</S>" * 40)
        return told(request) if request.turn else Answer(text_of(story("Ponyo", "Totoro")))

    with CaptionServer(hostile) as server:
        said = write(tmp_path, server.address, "--games", "1")
        repairs = [request.text for request in server.requests if request.turn]
    assert any('names "totoro", a character that is not in the list' in repair for repair in repairs)
    assert "left out: sosuke-01: no usable reply in 3 tries" in " ".join(said.split())
    assert "1 stories were usable after a repair" in said
    assert [game.name for game in read_benchmark(tmp_path / "games.jsonl").games] == ["ponyo-01"]


def test_a_file_that_was_edited_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "games.jsonl"
    with CaptionServer(told) as server:
        write(tmp_path, server.address, "--games", "1")
        written = file.read_text(encoding="utf-8")
        file.write_text(written.replace("kitchen", "attic"), encoding="utf-8")
        edited, asked = file.read_bytes(), len(server.requests)
        assert "was edited after it was written" in write(tmp_path, server.address, "--games", "2")
        assert (file.read_bytes(), len(server.requests)) == (edited, asked)
        file.rename(tmp_path / "mine.jsonl")
        write(tmp_path, server.address, "--games", "1")
        assert len(server.requests) == asked
    assert file.read_text(encoding="utf-8") == written


def test_no_usable_story_is_an_error(tmp_path: Path) -> None:
    with CaptionServer(lambda _: Answer("no")) as server:
        assert "none of 2 stories is usable" in write(tmp_path, server.address, "--games", "1")


def test_a_used_up_budget_is_an_error_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with CaptionServer(told) as server:
        said = write(tmp_path, server.address, "--games", "3", "--most-requests", "2")
        assert "used up" in said
        assert len(server.requests) == 2
        write(tmp_path, server.address, "--games", "3")
        assert len(server.requests) == 6


def test_stories_at_which_a_run_stopped_do_not_stop_the_next(tmp_path: Path) -> None:
    def only_of_sosuke(request: Request) -> Answer:
        if "It is about Ponyo" in request.body["messages"][0]["content"].replace("\n", " "):
            return Answer(status=400, raw=b"not allowed")
        return Answer(told(request).text, delay_seconds=1)

    with CaptionServer(only_of_sosuke) as server:
        assert "5 stories in a row failed" in write(tmp_path, server.address, "--games", "5")
        said = write(tmp_path, server.address, "--games", "5")
        assert "5 games, 50 rounds" in said
        assert "ponyo-01" in said
        assert len(server.requests) == 10 + 5, "the rejected ones again"


def test_a_story_in_its_form_matches_the_pattern_and_is_read_back() -> None:
    panels = story("Ponyo (girl)", "Sosuke")
    reply = text_of(panels)
    assert re.fullmatch(story_pattern("Ponyo (girl)", ["Sosuke", "Lisa"], 10), reply)
    assert not re.fullmatch(story_pattern("Ponyo (girl)", ["Lisa"], 10), reply)
    assert parse_story(reply, "Ponyo (girl)", ["Sosuke"], 10) == tuple(panels)
    assert parse_story(f"<think>{reply}</think>```\n{reply.lower()}\n```", "Ponyo (girl)", ["Sosuke"], 10) == tuple(
        panels
    )


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("Lisa, Ko and Jo", ("Lisa", "Ko and Jo")),
        ("Ko and Jo & Lisa", ("Lisa", "Ko and Jo")),
        ("LISA", ("Lisa",)),
        ('"Lisa" and Ko', ("Lisa", "Ko")),
        ("Lisa; Ponyo (girl)", ("Lisa", "Ponyo (girl)")),
    ],
)
def test_names_are_read_whole(said: str, read: tuple[str, ...]) -> None:
    reply = text_of(story("Lisa", None)[:1]).replace("<S>Lisa</S>", f"<S>{said}</S>")
    (panel,) = parse_story(reply, "Lisa", ["Ko", "Ko and Jo", "Ponyo (girl)"], 1)
    assert panel.characters == read


@pytest.mark.parametrize("said", ["Lisas", "Lisa, Kokoro", "Lisa's dog", "Lisa and the boy"])
def test_a_stranger_beside_a_name_is_a_fault(said: str) -> None:
    reply = text_of(story("Lisa", None)[:1]).replace("<S>Lisa</S>", f"<S>{said}</S>")
    with pytest.raises(TagError, match="a character that is not in the list"):
        parse_story(reply, "Lisa", ["Ko"], 1)


def test_json_with_a_panel_per_object_is_understood() -> None:
    panel = (
        '{"S": ["Ponyo", "Sosuke"], "MD": "runs", "EV": "shore", "ML": 4, "MA": "quick", "SC": 1, "ET": 0, "ST": -1}'
    )
    for panels in (2, 50):
        read = parse_story(f"[{', '.join([panel] * panels)}]", "Ponyo", ["Sosuke"], panels)
        assert read == (StoryPanel(("Ponyo", "Sosuke"), "run", "shore", 4, "quickly", 1, 0, -1),) * panels


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("<ML>3</ML>", "<ML>6</ML>"), "Panel 3: Tag <ML> must be 1 or 2 or 3 or 4 or 5"),
        (("<S>Ponyo, Sosuke</S>", "<S>Sosuke</S>"), "Panel 2: Tag <S> must be Ponyo"),
        (("<ET>0</ET>", ""), "Tag <ET> is missing"),
        (("<SC>0</SC>", "<SC>1</SC>"), "no other character is there"),
        (("<MD>wake at turn 0</MD>", "<MD></MD>"), "Panel 1: Tag <MD>"),
        (("<S>Ponyo</S>", ""), "must have 10 panels, not 5"),
    ],
)
def test_a_fault_of_a_story_is_named(change: tuple[str, str], said: str) -> None:
    with pytest.raises(TagError, match=re.escape(said)):
        parse_story(text_of(story("Ponyo", "Sosuke")).replace(*change), "Ponyo", ["Sosuke"], 10)


def test_a_story_has_to_come_back_and_not_to_repeat_itself() -> None:
    panels = story("Ponyo", None)
    check_story(panels)
    assert returns(PLACES) == 3
    with pytest.raises(TagError, match="never comes back"):
        check_story(panels[:6])
    with pytest.raises(TagError, match="occurs twice"):
        check_story([*panels, panels[0]])


def test_an_edited_file_with_unknown_values_is_counted(tmp_path: Path) -> None:
    (tmp_path / "games.jsonl").write_text('{"game": "a", "turn": 1, "words": "They dance"}\n', encoding="utf-8")
    counts = count_games(read_benchmark(tmp_path / "games.jsonl").games)
    assert (counts.rounds, counts.motions, counts.same_place, counts.levels) == (1, 0, None, {})
