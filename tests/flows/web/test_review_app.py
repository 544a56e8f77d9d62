"""App of the review page, over real HTTP on loopback: decisions on disk, bad requests, paths, kills, doubts."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.review_dataset import write_dataset
from flows.web.review_clips import InvalidDecisionError, ReviewedClips, ReviewTask, doubts_of
from pipeline.core.errors import UserError
from pipeline.core.records import Caption
from pipeline.reviews.clips import ReviewableClip, reviewable
from pipeline.reviews.decisions import MOST_NAME, read_decisions
from pipeline.video.sound_files import with_sound
from tests.support.datasets.made_dataset import make_dataset
from tests.support.datasets.sounds import write_sounds
from tests.support.servers.reviewed_page import decide, reviewing, small_dataset

MOTION = {"field": "MD", "value": "fly"}


def post(http: httpx.Client, *changes: dict[str, object], **headers: str) -> httpx.Response:
    return http.post("/api/decisions", json={"changes": list(changes)}, headers=headers)


def test_a_decision_is_on_disk_before_the_reply(tmp_path: Path) -> None:
    with reviewing(tmp_path) as page:
        first, second = page.ids[:2]
        reply = post(page.http, {"clip": first, **MOTION}, {"clip": second, "field": "characters", "value": ["Lisa"]})
        assert page.lines() == [("anna", "MD", "fly"), ("anna", "characters", ("Lisa",))]
        standing = {"value": "fly", "by": "anna", "conflict": False, "voices": {"anna": "fly"}}
        assert reply.json()["reviews"][first] == {"MD": standing}
        assert page.http.get("/api/reviews").json()["reviews"].keys() == {first, second}
        post(page.http, {"clip": first, "field": "MD"})
        assert page.lines()[2:] == [("anna", "MD", "withdrawn")]
        assert page.http.get("/api/reviews").json()["reviews"].keys() == {second}
        assert page.http.get("/api/info").json()["last"] == first


def test_an_audit_is_restricted_and_blind(tmp_path: Path) -> None:
    ids = [clip.clip_id for clip in reviewable(small_dataset(), tmp_path / "review.jsonl")]
    asked = [ids[30], ids[10]]
    with reviewing(tmp_path, clip_ids=asked, blind=True) as page:
        decide(page, 10, "ben", "MD", "swim")
        rows = page.http.get("/api/clips").json()["clips"]
        assert [row["id"] for row in rows] == [ids[place] for place in (8, 9, 10, 11, 12, 28, 29, 30, 31, 32)]
        assert [row["place"] for row in rows if row["place"] is not None] == [1, 0]
        assert {key for row in rows for key in row} == {"id", "film", "scene", "start", "end", "sound", "place"}
        assert page.http.get("/api/reviews").json()["reviews"] == {}, "another reviewer's answer is hidden"
        assert post(page.http, {"clip": ids[10], **MOTION}).json()["reviews"][ids[10]]["MD"]["conflict"] is False
        assert post(page.http, {"clip": ids[11], **MOTION}).status_code == 422, "not in the sample"
    with pytest.raises(UserError, match="1 clips are not in this dataset any more"):
        ReviewedClips(small_dataset(), ReviewTask(tmp_path / "answers.jsonl", "anna", ["gone"]))


def test_what_is_no_decision_is_refused_whole(tmp_path: Path) -> None:
    with reviewing(tmp_path) as page:
        changes: tuple[tuple[dict[str, object], str], ...] = (
            ({"value": "Flies <b>"}, "plain words"),
            ({"field": "keep", "value": "yes"}, "true or false"),
            ({"field": "sentence", "value": "two\nlines"}, "one line"),
            ({"field": "characters", "value": ["Nausicaa"]}, "cast"),
            ({"field": "characters", "value": {"a": 1}}, "value"),
            ({"field": "path", "value": "x"}, "field must be one of"),
            ({"clip": "../../etc/passwd"}, "not a clip"),
            ({"reviewer": "ben"}, "reviewer"),
        )
        for change, words in changes:
            reply = post(page.http, {"clip": page.ids[0], **MOTION}, {"clip": page.ids[0], **MOTION, **change})
            assert (reply.status_code, words in reply.json()["message"]) == (422, True), reply.text
        assert not page.task.file.exists(), "all or nothing"
    for name in ("", "a\nb", "x" * (MOST_NAME + 1)):
        with pytest.raises(InvalidDecisionError, match="reviewer"):
            ReviewedClips(small_dataset(), ReviewTask(tmp_path / "review.jsonl", name))


def test_lines_of_other_processes_are_seen_also_later_and_malformed_ones(tmp_path: Path) -> None:
    with reviewing(tmp_path) as page:
        clip = page.ids[3]
        post(page.http, {"clip": clip, **MOTION})
        page.task.file.write_text(page.task.file.read_text().replace('"time": "20', '"time": "21'))  # a clock set back
        decide(page, 3, "ben", "MD", "swim")
        with page.task.file.open("a") as file:
            file.write("not json <script>\n")
        standing = page.http.get("/api/reviews").json()["reviews"][clip]["MD"]
        assert (standing["conflict"], standing["voices"]) == (True, {"ben": "swim", "anna": "fly"})
        settle = {"clip": clip, "field": "MD", "value": "swim", "settle": True}
        settled = post(page.http, settle).json()["reviews"][clip]["MD"]
        assert (settled["value"], settled["conflict"]) == ("swim", False)
        info = page.http.get("/api/info").json()
        assert (info["counts"]["malformed"], info["faults"][0][:8]) == (1, "line 3: ")


def test_clips_are_served_by_id_with_ranges(tmp_path: Path) -> None:
    with reviewing(tmp_path) as page:
        path = reviewable(page.dataset, page.task.file)[0].path
        address = f"/api/clips/{page.ids[0]}.mp4"
        whole = page.http.get(address)
        assert (whole.content, whole.headers["content-type"]) == (path.read_bytes(), "video/mp4")
        part = page.http.get(address, headers={"Range": "bytes=100-199"})
        assert (part.status_code, part.content) == (206, path.read_bytes()[100:200])
        assert part.headers["content-range"] == f"bytes 100-199/{path.stat().st_size}"
        for name in ("../film", "..%2f..%2fdataset", "%2fetc%2fpasswd", "..%5c..%5cdataset", page.ids[0] + "%00"):
            assert page.http.get(f"/api/clips/{name}.mp4").status_code == 404, name


def test_clips_are_served_with_their_sound(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data")
    folder, clip = dataset.folders()[0], reviewable(dataset, None)[0]
    with reviewing(tmp_path, dataset) as page:
        assert page.http.get(f"/api/heard/{clip.clip_id}.mp4").content == clip.path.read_bytes()
        assert not page.http.get("/api/clips").json()["clips"][0]["sound"]
    write_sounds(folder)
    with reviewing(tmp_path, dataset) as page:
        heard = page.http.get(f"/api/heard/{clip.clip_id}.mp4", headers={"Range": "bytes=0-99"})
        muxed = with_sound(clip.path, folder.sound_path(clip.clip_id))
        assert (heard.status_code, heard.content) == (206, muxed[:100])
        assert page.http.get("/api/clips").json()["clips"][0]["sound"]
        assert page.http.get("/api/heard/nothing.mp4").status_code == 404


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with reviewing(tmp_path) as page:
        clip = page.ids[0]
        page.task.file.mkdir()
        reply = post(page.http, {"clip": clip, **MOTION})
        assert (reply.status_code, "review file" in reply.json()["message"]) == (500, True)
        assert str(tmp_path) not in reply.text
        page.task.file.rmdir()
        assert post(page.http, {"clip": clip, **MOTION}).status_code == 200


@pytest.mark.slow
def test_kill_9_of_the_command_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_dataset(root, 40, 1, (64, 96))
    confirmed = _decide_until_killed(root)
    reading = read_decisions(root / "review.jsonl")
    assert len(confirmed) >= 20
    assert {(line.field, line.value) for line in reading.decisions} >= set(confirmed)
    assert len(reading.faults) <= 1, "at most the line that was being written"


def _decide_until_killed(root: Path) -> list[tuple[str, str]]:
    """Decide in a row, and kill the server in the middle; return the decisions that it has confirmed."""
    command = [sys.executable, "-m", "flows.cli", "review", str(root), "--port", "0", "--reviewer", "anna"]
    confirmed: list[tuple[str, str]] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        address = next(found[0] for line in server.stderr if (found := re.search(r"http://\S+", line)))
        with httpx.Client(base_url=address, verify=False) as http:
            clip = http.get("/api/clips").json()["clips"][0]["id"]
            killer: threading.Timer | None = None
            for number in range(5000):
                if number == 20:
                    killer = threading.Timer(0.05, server.send_signal, [signal.SIGKILL])
                    killer.start()
                try:
                    reply = post(http, {"clip": clip, "field": "MD", "value": f"walk {number}"})
                except httpx.TransportError:
                    break
                assert reply.status_code == 200
                confirmed.append(("MD", f"walk {number}"))
        server.wait(10)
    assert server.returncode == -signal.SIGKILL
    return confirmed


REPLY = (
    "<S>girl</S><MD>run</MD><EV>sea</EV><MA>slowly</MA><SC>0</SC><ET>1</ET><ST>-1</ST><SE>A girl runs by the sea.</SE>"
)


def doubted(number: int, scope_px: float | None = 4.0, **caption: Any) -> ReviewableClip:
    name = f"clip-{number}"
    words = {"raw_what": REPLY, "S": "girl", "MD": "run", "EV": "sea", "sentence": "A girl runs by the sea."}
    return ReviewableClip(
        dialogue=(),
        sound=None,
        film_id="film",
        film_name="film.mkv",
        film_sha256="0" * 64,
        clip_id=name,
        path=Path("nowhere.mp4"),
        scene=0,
        index=number,
        start_seconds=2.0 * number,
        end_seconds=2.0 * number + 2,
        level=2,
        scope_px=scope_px,
        quality="",
        overlays="",
        camera=None,
        kept=True,
        keep=True,
        reasons=(),
        flags=(),
        caption=Caption(clip_id=name, source="a-model", **{**words, **caption}),
        published=None,
        standings={},
    )


def test_every_kind_of_doubt() -> None:
    odd = {
        "no usable reply": doubted(1, fault="no usable reply"),
        "social alone: nobody is on screen": doubted(2, flags=("social alone: nobody is on screen",)),
        "the reply was not in its form": doubted(3, raw_what=f"Sure! {REPLY}"),
        "the sentence of the reply was unusable": doubted(4, sentence=None, raw_sentence="???"),
        "rare EV: volcano": doubted(5, EV="volcano"),
        "motion near the edge of levels 2 and 3": doubted(6, scope_px=6.3),
    }
    plain = [doubted(number, MD=f"walk {number}") for number in range(100, 150)]  # unique motions are not rare
    doubts = doubts_of([*odd.values(), *plain, doubted(7, scope_px=None)], (1.5, 6.25, 12.5, 27.5))
    found = {clip_id: [doubt.text for doubt in doubts] for clip_id, doubts in doubts.items() if doubts}
    assert found == {clip.clip_id: [text] for text, clip in odd.items()}
