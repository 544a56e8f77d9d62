"""Review decisions: typed values, hostile lines, torn ends, kills, two writers at once, and the one that stands."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.core.errors import DiskError, UserError
from pipeline.reviews.decisions import (
    MOST_LINE_BYTES,
    Decision,
    Standing,
    append_decisions,
    read_decisions,
    standings,
)
from tests.support import records
from tests.support.builds.real_builds import ROOT

LINE: dict[str, Any] = json.loads(records.decision("MD", "run").line)
APPENDER = """
import itertools, sys
from pathlib import Path
from pipeline.reviews.decisions import append_decisions
from tests.support.records import decision
for number in itertools.islice(itertools.count(), int(sys.argv[3])):
    append_decisions(Path(sys.argv[1]), [decision("others", number % 100, reviewer=f"{sys.argv[2]} {number}")])
    print(f"{sys.argv[2]} {number}", flush=True)
"""


def line(**changes: Any) -> str:
    return json.dumps({**LINE, **changes})


def appender(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", APPENDER, str(path), name, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("field", "values", "wrong"),
    [
        ("keep", [True, False], [None, 1, 0, "true", []]),
        ("S", ["fox", "old man", None], ["", "Fox", "a b c", "fox!", "夏", 1, ["fox"], "fox\n"]),
        ("MD", ["run", "run, jump and fall", None], [" run", "run  fast", "x" * 25, "a " * 13 + "b", True]),
        ("EV", ["night sky"], ["the big dark wood", {"a": 1}]),
        ("MA", ["very slowly"], ["more and more"]),
        ("SC", [0, 1, None], [-1, 2, True, 1.0, "1", [1]]),
        ("ET", [0, 1], [False]),
        ("ST", [1, -1, None], [0, -1.0]),
        (
            "characters",
            [[], ["Hana"], ["ポン太", "Søren"], None],
            [["Hana", "Hana"], ["Hana", 1], "Hana", [""], ["a\n"]],
        ),
        ("characters", [[str(n) for n in range(64)]], [[str(n) for n in range(65)], [["Hana"]], ["\u202eHana"]]),
        ("actor", ["Hana", "fox", None], ["", " Hana", "a\nb", "\x1b[31m", "x" * 81, ["Hana"], 1]),
        ("others", [0, 99, None], [-1, 100, True, 1.5, "1", 10**30]),
        ("sentence", ["Hana runs – quickly.", "x" * 240, None], ["", "x" * 241, "two\nlines", "\u2028", 5]),
        ("light", [], [1, None, "x"]),
    ],
)
def test_values_are_typed_by_their_field(tmp_path: Path, field: str, values: list[Any], wrong: list[Any]) -> None:
    path = tmp_path / "review.jsonl"
    path.write_text("".join(line(field=field, value=value) + "\n" for value in [*values, *wrong]), encoding="utf-8")
    reading = read_decisions(path)
    read = [list(d.value) if isinstance(d.value, tuple) else d.value for d in reading.decisions]
    assert read == values
    assert [type(value) for value in read] == [type(value) for value in values]
    assert [fault.line for fault in reading.faults] == list(range(len(values) + 1, len(values) + len(wrong) + 1))


@pytest.mark.parametrize("value", [1.5, {"a": 1}, ["Hana", 1], [["Hana"]]])
def test_a_value_of_no_type_of_any_field_has_one_reason(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "review.jsonl"
    path.write_text(line(field="characters", value=value) + "\n")
    [fault] = read_decisions(path).faults
    assert fault.reason == "value: must be true, false, a whole number, text, a list of names, or null"


HOSTILE: dict[str, bytes | str] = {
    "no JSON": "what?",
    "a conflict of git": "<<<<<<< HEAD",
    "half a line": line()[:80],
    "an array": "[]",
    "null": "null",
    "a number": "7",
    "no field": "{}",
    "an unknown key": line(comment="x"),
    "a key that paints": line(**{"\x1b[31m": 1}),
    "no time": json.dumps({key: value for key, value in LINE.items() if key != "time"}),
    "a time without a zone": line(time="2026-11-22T10:11:12"),
    "a time as a number": line(time=1_700_000_000),
    "a time before the first": line(time="0001-01-01T00:00:00+14:00"),
    "no day of the calendar": line(time="2026-02-30T00:00:00Z"),
    "no reviewer": line(reviewer=""),
    "a reviewer of two lines": line(reviewer="an\nna"),
    "a long reviewer": line(reviewer="x" * 65),
    "nobody settles": line(reviewer="settled: "),
    "a short hash": line(film_sha256="ab"),
    "a hash in capitals": line(film_sha256="A" * 64),
    "a hash and a newline": line(film_sha256="a" * 64 + "\n"),
    "a span that ends at its start": line(start_seconds=2.0, end_seconds=2.0),
    "a span before the film": line(start_seconds=-1.0),
    "NaN": line(start_seconds=float("nan")),
    "NaN as a value": line(value=float("nan")),
    "infinity": line(end_seconds=float("inf")),
    "an infinite exponent": line().replace('"end_seconds": 2.0', '"end_seconds": 1e999'),
    "times as text": line(start_seconds="0"),
    "a huge number": line(field="others", value=0).replace('"value": 0', '"value": ' + "9" * 6000),
    "half a character": line(field="actor", value="x").replace('"x"', '"\\ud800"'),
    "a deep list": line(value=1).replace('"value": 1', '"value": ' + "[" * 9000),
    "deep objects": '{"a":' * 9000,
    "bad UTF-8": b"\xff\xfe\x00",
    "a null byte": b"\x00",
    "a bad byte in a name": line(reviewer="anna").encode().replace(b"anna", b"an\xffna"),
    "a huge line": line(value="x" * (1 << 20)),
    "a huge line that begins as a decision": line() + " " * MOST_LINE_BYTES,
    "a huge line without an end inside": "x" * (MOST_LINE_BYTES + 1),
    "a line of the limit and no JSON": "x" * (MOST_LINE_BYTES - 1),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_line_that_is_no_decision_is_named_and_harms_no_other(tmp_path: Path, hostile: bytes | str) -> None:
    path = tmp_path / "review.jsonl"
    content = hostile if isinstance(hostile, bytes) else hostile.encode()
    path.write_bytes(line(value="walk").encode() + b"\n\n" + content + b"\r\n" + line(value="run").encode())
    reading = read_decisions(path)
    assert [decision.value for decision in reading.decisions] == ["walk", "run"]
    assert reading.lines == (1, 4)
    [fault] = reading.faults
    assert fault.line == 3
    assert fault.reason.isprintable()
    assert 5 < len(fault.reason) < 250


def test_a_line_written_is_the_line_read(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "review.jsonl"
    assert read_decisions(path).decisions == ()
    written = [
        records.decision("MD", "run"),
        records.decision("characters", ["ポン太"], reviewer="settled: Søren"),
        records.decision("EV", None, time="2026-11-22T12:00:00.1239+02:00"),
        records.decision("EV", start_seconds=0.1234567890123),
    ]
    append_decisions(path, written[:2])
    append_decisions(path, [])
    append_decisions(path, written[2:])
    read = read_decisions(path)
    assert list(read.decisions) == written
    assert [decision.withdraws for decision in read.decisions] == [False, False, False, True]
    assert [decision.settles for decision in read.decisions] == [False, True, False, False]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == {**LINE, "time": "2026-11-22T10:00:00.000Z"}
    assert json.loads(lines[2])["value"] is None
    assert json.loads(lines[2])["time"] == "2026-11-22T10:00:00.123Z"
    assert "value" not in json.loads(lines[3])
    assert "ポン太" in lines[1]


def test_a_decision_that_could_not_be_read_again_cannot_be_made() -> None:
    for changes in ({"field": "light"}, {"reviewer": "a\nb"}, {"value": "Run!"}, {"time": "2026-11-22"}):
        with pytest.raises(ValidationError):
            Decision.model_validate({**LINE, **changes})


def test_a_torn_last_line_is_closed_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    whole = records.decision("MD", "run").line
    for cut in range(1, len(whole)):
        path.write_text(whole + whole[:cut], encoding="utf-8")
        append_decisions(path, [records.decision("MD", "walk")])
        reading = read_decisions(path)
        assert reading.decisions[0].value == "run"
        assert reading.decisions[-1].value == "walk"
        # without its newline alone it is a whole decision
        assert [fault.line for fault in reading.faults] == ([2] if cut < len(whole) - 1 else [])
    assert read_decisions(path).lines == (1, 2, 3)


def test_killed_writers_lose_nothing_that_they_showed_as_saved(tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    saved: list[str] = []
    for attempt in range(3):
        process = appender(path, f"writer {attempt}", 1_000_000)
        assert process.stdout
        saved.append(process.stdout.readline().strip())  # it has begun
        time.sleep(0.1 * attempt)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
        process.wait(30)
        saved += rest[: rest.rfind("\n") + 1].split("\n")[:-1]  # a name cut off in the pipe was not shown
    reading = read_decisions(path)
    written = {decision.reviewer for decision in reading.decisions}
    assert len(saved) > 10
    assert set(saved) <= written
    assert len(reading.faults) <= 3


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    writers = [appender(path, name, 300) for name in ("anna", "bob")]
    for writer in writers:
        assert writer.communicate(timeout=120)[0].count("\n") == 300
    reading = read_decisions(path)
    assert not reading.faults
    assert sorted(d.reviewer for d in reading.decisions) == sorted(
        f"{name} {number}" for name in ("anna", "bob") for number in range(300)
    )


@pytest.mark.slow
def test_a_writer_waits_for_the_other_to_finish(tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    path.write_bytes(b"half a li")
    with path.open("ab", buffering=0) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        writer = appender(path, "anna", 1)
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(3)
        other.write(b"ne\n")
    assert writer.wait(60) == 0
    assert path.read_bytes().startswith(b"half a line\n{")


def test_a_full_disk_leaves_no_half_decision(tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    append_decisions(path, [records.decision("MD", "run")])
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
    try:
        with pytest.raises(DiskError, match=r"review\.jsonl"):
            append_decisions(path, [records.decision("MD", "walk")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == before
    append_decisions(path, [records.decision("MD", "walk")])
    assert [decision.value for decision in read_decisions(path).decisions] == ["run", "walk"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UserError, match="not a file"):
            read_decisions(path)
    with pytest.raises(DiskError):
        append_decisions(tmp_path, [records.decision("MD", "run")])


def by(reviewer: str, *values: object, minute: int = 0, field: str = "MD") -> Decision:
    return records.decision(field, *values, minute=minute, reviewer=reviewer)


def standing(*decisions: Decision) -> Standing | None:
    found = standings(decisions)
    assert len(found) <= 1
    return next(iter(found.values()), None)


def test_the_newest_line_of_a_reviewer_stands_wherever_it_is_in_the_file() -> None:
    found = standing(by("anna", "run", minute=2), by("anna", "walk", minute=1))
    assert found is not None
    assert (found.value, found.reviewer, found.conflict, dict(found.voices)) == ("run", "anna", False, {"anna": "run"})


def test_a_withdrawn_decision_is_gone_and_may_be_made_again() -> None:
    made, undone = by("anna", "run", minute=1), by("anna", minute=2)
    assert standing(made, undone) is None
    assert standing(undone) is None
    again = standing(made, undone, by("anna", "run", minute=3))
    assert again is not None
    assert again.value == "run"
    left = standing(by("bob", "walk"), made, undone)
    assert left is not None
    assert (left.value, left.conflict) == ("walk", False)


def test_reviewers_who_differ_are_a_conflict_until_it_is_settled() -> None:
    anna, bob = by("anna", "run", minute=1), by("bob", "walk", minute=2)
    found = standing(bob, anna)
    assert found is not None
    assert (found.value, found.conflict, list(found.voices.items())) == (
        ("walk", True, [("anna", "run"), ("bob", "walk")])
    )
    settled = by("settled: carla", "crawl", minute=3)
    found = standing(settled, bob, anna)
    assert found is not None
    assert (found.value, found.reviewer, found.conflict) == ("crawl", "settled: carla", False)
    assert found.voices == {"anna": "run", "bob": "walk"}
    reopened = standing(anna, bob, settled, by("anna", "jump", minute=4))
    assert reopened is not None
    assert (reopened.value, reopened.conflict) == ("jump", True)
    early = standing(by("settled: carla", "crawl"), anna, bob)
    assert early is not None
    assert (early.value, early.conflict) == ("walk", True)
    unsettled = standing(anna, bob, settled, by("settled: carla", minute=4))
    assert unsettled is not None
    assert (unsettled.value, unsettled.conflict) == ("walk", True)


def test_a_voice_that_joins_the_settled_value_opens_no_conflict() -> None:
    lines = [by("anna", "run", minute=1), by("bob", "walk", minute=2), by("settled: carla", "walk", minute=3)]
    joined = standing(*lines, by("anna", "walk", minute=4))
    assert joined is not None
    assert (joined.value, joined.conflict) == ("walk", False)
    differs = standing(*lines, by("dora", "run", minute=4), by("anna", "walk", minute=5))
    assert differs is not None
    assert differs.conflict


def test_reviewers_who_come_to_agree_are_no_conflict() -> None:
    found = standing(by("anna", "run"), by("bob", "walk"), by("anna", "walk", minute=1))
    assert found is not None
    assert (found.value, found.conflict) == ("walk", False)


@pytest.mark.parametrize(
    ("field", "one", "other", "differ"),
    [
        ("characters", ["Hana", "Søren"], ["Søren", "Hana"], False),
        ("characters", [], None, True),
        ("sentence", "Hana  runs.", "hana runs.", False),
        ("sentence", "Hana runs.", "Hana walks.", True),
        ("keep", True, False, True),
        ("SC", 0, None, True),
    ],
)
def test_equal_decisions_need_not_be_equal_text(field: str, one: object, other: object, differ: bool) -> None:
    found = standing(by("anna", one, field=field), by("bob", other, field=field))
    assert found is not None
    assert found.conflict is differ
