"""App of the study page over real HTTP: answers on disk, links, blindness, hosts and origins, kills, the command."""

from __future__ import annotations

import csv
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.web.page_server import lan_address
from flows.web.study_app import LAN_WARNING
from flows.web.study_games import shown_games
from pipeline.core.atomic import held
from pipeline.core.errors import UserError
from pipeline.video.clip_files import clip_shape
from tests.support.servers.study_page import AGENTS, Studied, painted_evaluation, play_painted, studied
from training.evaluation.figures import Figures
from training.evaluation.measures import read_measures
from training.evaluation.study import StudyError, open_study, read_answers


def rank(http: httpx.Client, order: str, token: str = "", criterion: str = "overall", **headers: str) -> httpx.Response:
    """Send an answer about the game with a token; without one, about the participant's first game."""
    answer = {"game": token or tokens(http)[0], "criterion": criterion, "order": list(order)}
    return http.post("/api/answers", json=answer, headers=headers)


def tokens(http: httpx.Client) -> list[str]:
    return [game["token"] for game in http.get("/api/study").json()["games"]]


def shown(page: Studied, number: int = 0) -> list[dict[str, Any]]:
    games: list[dict[str, Any]] = page.http(number).get("/api/study").json()["games"]
    return games


def test_an_answer_is_on_disk_before_the_reply_and_letters_are_undone(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path)
    with studied(evaluation, names=("anna", "ben")) as page:
        for number in (0, 1):
            assert rank(page.http(number), "DB").json() == {"order": ["D", "B"]}
            assert not page.answers[-1].is_complete
            assert rank(page.http(number), "DBCA").status_code == 200
        assert [answer.participant for answer in page.answers] == ["anna", "ben"]
        for answer in page.answers:
            assert answer.order == tuple(answer.shown["ABCD".index(letter)] for letter in "DBCA")
        assert page.answers[0].shown != page.answers[1].shown
        assert shown(page)[0]["orders"] == {"overall": ["D", "B", "C", "A"]}
        assert shown(page)[1]["orders"] == {}
    with studied(evaluation, names=()) as page:
        assert shown(page)[0]["orders"] == {"overall": ["D", "B", "C", "A"]}, "a new server goes on"


def test_no_reply_names_an_agent_a_game_or_another_participant(tmp_path: Path) -> None:
    with studied(painted_evaluation(tmp_path), names=("anna", "ben")) as page:
        http = page.http()
        films = [film["name"] for game in shown(page) for film in game["films"]]
        replies = [http.get("/api/study"), *(http.get(f"/api/films/{name}.mp4") for name in films)]
        for reply in replies:
            assert reply.status_code == 200
            text = f"{reply.headers} {reply.content.decode(errors='replace')}"
            assert [name for name in (*AGENTS, "game-0", "anna", "ben", str(tmp_path)) if f'"{name}' in text] == []
        assert len(set(films)) == 8
        theirs = {film["name"] for game in shown(page, 1) for film in game["films"]}
        assert not theirs & set(films), "two participants cannot compare names"


def test_a_film_is_the_whole_game_and_answers_ranges(tmp_path: Path) -> None:
    with studied(painted_evaluation(tmp_path)) as page:
        film = shown(page)[0]["films"][0]
        assert film["starts"] == [0, 1, 2]
        reply = page.http().get(f"/api/films/{film['name']}.mp4")
        (tmp_path / "film.mp4").write_bytes(reply.content)
        assert clip_shape(tmp_path / "film.mp4").frames == 24
        part = page.http().get(f"/api/films/{film['name']}.mp4", headers={"Range": "bytes=10-19"})
        assert (part.status_code, part.content) == (206, reply.content[10:20])
        for name in ("..%2f..%2fstudy", "../study", film["name"] + "%00", "A"):
            assert page.http().get(f"/api/films/{name}.mp4").status_code == 404


def test_clips_of_two_sizes_become_one_film(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, games=1)
    play_painted(evaluation, "gc", "game-0", 3, True, (64, 64))
    small = (evaluation.games / "gc" / "game-0" / "0001.mp4").read_bytes()
    play_painted(evaluation, "gc", "game-0", 3, True, (96, 128))
    (evaluation.games / "gc" / "game-0" / "0003.mp4").write_bytes(small)
    film = clip_shape(shown_games(evaluation)[0].films["gc"].path)
    assert (film.width, film.height, film.frames) == (128, 96, 24)


def test_only_games_that_every_agent_has_played_are_shown(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path)
    (evaluation.games / "gc" / "game-1" / "turns.jsonl").unlink()
    assert [game.name for game in shown_games(evaluation)] == ["game-0"]
    (evaluation.games / "gc" / "game-0" / "0002.mp4").write_bytes(b"no film")
    with pytest.raises(StudyError, match="0002"):
        shown_games(evaluation)
    (evaluation.games / "gc" / "game-0" / "turns.jsonl").unlink()
    with pytest.raises(StudyError, match="animegamer evaluate run"):
        shown_games(evaluation)
    with pytest.raises(StudyError, match="1 agents"):
        shown_games(painted_evaluation(tmp_path / "one", agents=("ours",)))


def test_state_is_asked_only_where_every_agent_gives_values(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path)
    play_painted(evaluation, "gc", "game-1", 3, False, (64, 96))
    with studied(evaluation) as page:
        games = {len(game["criteria"]): game["token"] for game in shown(page)}
        assert games.keys() == {5, 6}
        assert rank(page.http(), "ABCD", games[6], "state").status_code == 200
        assert rank(page.http(), "ABCD", games[5], "state").status_code == 422


@pytest.mark.parametrize(
    "answer",
    [
        {"game": "0"},
        {"game": 0},
        {"game": "game-0"},
        {"criterion": "beauty"},
        {"order": ["A", "A"]},
        {"order": ["E"]},
        {"order": ["ours"]},
        {"order": "AB"},
        {"participant": "ben"},
    ],
)
def test_what_is_no_answer_is_refused(tmp_path: Path, answer: dict[str, object]) -> None:
    with studied(painted_evaluation(tmp_path)) as page:
        fine = {"game": tokens(page.http())[0], "criterion": "overall", "order": ["A"]}
        reply = page.http().post("/api/answers", json=fine | answer)
        assert (reply.status_code, page.answers) == (422, [])
        assert reply.json()["message"]


def test_an_answer_of_a_page_that_stayed_open_is_about_the_films_it_showed_or_refused(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, games=3, turns=1)
    late, kept = evaluation.games / "gc" / "game-1" / "turns.jsonl", tmp_path / "turns.jsonl"
    orders = ("ABCD", "DCBA")
    late.rename(kept)
    with studied(evaluation, names=("anna", "ben")) as page:
        seen = tokens(page.http())
        assert not set(seen) & set(tokens(page.http(1)))
        assert rank(page.http(1), "ABCD", seen[0]).status_code == 422, "each participant has tokens of their own"
        for token, order in zip(seen, orders, strict=True):
            assert rank(page.http(), order, token).status_code == 200
    kept.rename(late)
    with studied(evaluation, names=()) as page:
        assert len(tokens(page.http())) == 3
        for token, order in zip(seen, orders, strict=True):
            assert rank(page.http(), order, token, "style").status_code == 200
        before = {(answer.game, answer.criterion): answer.order for answer in page.answers}
        assert len({game for game, _ in before}) == 2
        assert all(before[game, "overall"] == order for (game, _), order in before.items())
    with studied(painted_evaluation(tmp_path, agents=(*AGENTS, "new"), games=3, turns=1), names=()) as page:
        for token in seen:
            reply = rank(page.http(), "BADC", token)
            assert (reply.status_code, "reload it" in reply.json()["message"]) == (422, True)
        assert {(answer.game, answer.criterion): answer.order for answer in page.answers} == before


def test_other_hosts_origins_and_links_are_refused(tmp_path: Path) -> None:
    with studied(painted_evaluation(tmp_path)) as page:
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            assert rank(page.http(), "ABCD", **headers).status_code == 403, headers
        assert page.http().get("/", headers={"Host": "evil.example"}).status_code == 421
        _refuses_strangers(page)
        assert page.answers == []


def test_in_the_network_only_its_address_and_a_link_admit(tmp_path: Path) -> None:
    try:
        host = lan_address()
    except UserError as error:
        pytest.skip(f"needs a local network: {error}")
    with studied(painted_evaluation(tmp_path), host=host) as page:
        port = page.root.rpartition(":")[2]
        assert page.root == f"http://{host}:{port}"
        assert page.http().get("/").status_code == 200
        assert rank(page.http(), "ABCD", Origin=page.root).status_code == 200
        for foreign in ("evil.example", f"127.0.0.1:{port}", f"localhost:{port}", f"192.0.2.77:{port}"):
            assert page.http().get("/", headers={"Host": foreign}).status_code == 421, foreign
        for origin in ("https://evil.example", f"http://127.0.0.1:{port}", "null"):
            assert rank(page.http(), "BACD", Origin=origin).status_code == 403, origin
        _refuses_strangers(page)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{port}/", verify=False)
        assert "".join(shown(page)[0]["orders"]["overall"]) == "ABCD"


def _refuses_strangers(page: Studied) -> None:
    film, token = shown(page)[0]["films"][0]["name"], shown(page)[0]["token"]
    link = page.games.study.participants[0].link
    for stranger in ("x" * 32, link[:-1], link.swapcase(), f"{link}x", "%2e%2e", "api"):
        for path in ("/", "/main.js", "/api/study", f"/api/films/{film}.mp4"):
            reply = httpx.get(f"{page.root}/{stranger}{path}", verify=False)
            assert reply.status_code in (403, 404), (stranger, path)
            assert "films" not in reply.text
        http = httpx.Client(base_url=f"{page.root}/{stranger}", verify=False)
        assert rank(http, "ABCD", token).status_code in (403, 404)
    for path in ("/", "/main.js", "/api/study", "/docs", "/openapi.json"):
        assert httpx.get(page.root + path, verify=False, follow_redirects=True).status_code in (403, 404), path


def test_a_file_that_cannot_be_written_is_reported_and_nothing_is_shown_as_saved(tmp_path: Path) -> None:
    with studied(painted_evaluation(tmp_path)) as page:
        file = page.games.folder / "answers.jsonl"
        file.mkdir()
        reply = rank(page.http(), "ABCD")
        assert (reply.status_code, "could not be written" in reply.json()["message"]) == (500, True)
        assert str(tmp_path) not in reply.text
        assert shown(page)[0]["orders"] == {}
        file.rmdir()
        assert rank(page.http(), "ABCD").status_code == 200


@pytest.mark.slow
def test_kill_9_of_the_command_loses_nothing_that_was_saved_and_the_same_link_goes_on(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path)
    orders = ["ABCD", "DCBA", "BADC", "CDAB"]
    saved: list[str] = []
    with _command(evaluation.path) as server:
        address = _address(server)
        with httpx.Client(base_url=address, verify=False) as http:
            token = tokens(http)[0]
            for number in range(5000):
                if number == 20:
                    threading.Timer(0.05, server.send_signal, [signal.SIGKILL]).start()
                try:
                    assert rank(http, orders[number % 4], token).status_code == 200
                except httpx.TransportError:
                    break
                saved.append(orders[number % 4])
    lines = (evaluation.path / "study" / "answers.jsonl").read_bytes().split(b"\n")
    assert len(saved) >= 20
    assert len(saved) <= len(lines) - 1 <= len(saved) + 1, "at most the answer in flight is there besides"
    assert read_answers(evaluation.path / "study").faults <= 1
    with _command(evaluation.path) as server:
        again = _address(server)
        assert again.split("/")[-2] == address.split("/")[-2], "the same link"
        last = httpx.get(f"{again}api/study", verify=False).json()["games"][0]["orders"]["overall"]
        assert "".join(last) in (saved[-1], orders[len(saved) % 4])
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    scores = list(read_measures(evaluation.path / "measures" / "study.parquet"))
    assert sorted(each.value for each in scores) == [1, 4, 7, 10]


def _command(evaluation: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flows.cli", "evaluate", "study", str(evaluation), "--port", "0", *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stderr
    return next(found[0] for line in server.stderr if (found := re.search(r"http://\S+", line)))


@pytest.mark.slow
def test_lan_is_spelled_out_with_a_warning_and_a_link_for_each(tmp_path: Path) -> None:
    try:
        host = lan_address()
    except UserError as error:
        pytest.skip(f"needs a local network: {error}")
    evaluation = painted_evaluation(tmp_path, games=1)
    with _command(evaluation.path, "--lan", "--participant", "anna", "--participant", "ben") as server:
        assert server.stderr
        lines = []
        for line in server.stderr:
            lines.append(line.rstrip("\n"))
            if line.startswith("Ctrl-C"):
                break
        server.send_signal(signal.SIGTERM)
        server.communicate()
    for warning in LAN_WARNING.format(host=host).splitlines():
        assert warning in lines
    people = open_study(evaluation.path / "study", []).participants
    for person in people:
        assert any(line.startswith(person.name) and line.endswith(f"/{person.link}/") for line in lines)


@pytest.mark.slow
def test_export_writes_table_and_results_without_a_server(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path)
    with studied(evaluation, names=("anna", "=ben")) as page:
        rank(page.http(0), "ABCD")
        rank(page.http(1), "ABC")
        rank(page.http(1), "DCBA", tokens(page.http(1))[1], "style")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "flows.cli",
            "evaluate",
            "study",
            str(evaluation.path),
            "--export",
            str(tmp_path / "r.csv"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"Overall +(\d+\.00 +){4}1 ", done.stdout), done.stdout
    with (tmp_path / "r.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["participant"], row["criterion"]) for row in rows] == 4 * [("anna", "overall")] + 4 * [
        ("'=ben", "style")
    ]
    assert {row["agent"] for row in rows} == set(AGENTS)
    figures = Figures.model_validate_json(evaluation.figures.read_bytes())
    assert {metric.name for metric in figures.metrics} == {"study_overall", "study_style"}
    assert "Human study" in (evaluation.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_results_are_not_written_while_another_command_is_at_work(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, games=1)
    with _command(evaluation.path) as server:
        with httpx.Client(base_url=_address(server), verify=False) as http:
            assert rank(http, "ABCD").status_code == 200
        with held(evaluation.path, "animegamer evaluate judge"):
            server.send_signal(signal.SIGTERM)
            _, said = server.communicate()
    assert server.returncode == 0
    assert "no results yet" in said
    assert "is held by `animegamer evaluate judge`" in said
    assert not (evaluation.path / "measures" / "study.parquet").exists()
    with held(evaluation.path, "animegamer evaluate run"):
        table = ["evaluate", "study", str(evaluation.path), "--export", str(tmp_path / "r.csv")]
        for words in (table, ["evaluate", "report", str(evaluation.path)]):
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 1
            assert "is held by `animegamer evaluate run`" in done.output
    assert not evaluation.figures.exists()
    assert CliRunner().invoke(app, table).exit_code == 0
    assert evaluation.figures.exists()


@pytest.mark.slow
def test_a_study_is_served_once(tmp_path: Path) -> None:
    evaluation = painted_evaluation(tmp_path, games=1)
    with _command(evaluation.path) as first:
        _address(first)
        with _command(evaluation.path) as second:
            assert second.stderr
            assert "is held by `animegamer evaluate study`" in second.stderr.read()
        assert second.returncode == 1
        first.send_signal(signal.SIGTERM)
