"""Review decisions: typed values, hostile lines, torn ends, kills, two writers at once, and the one that stands."""

from __future__ import annotations

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

from pipeline.core.errors import DiskError, UserError
from pipeline.reviews.decisions import (
    MOST_LINE_BYTES,
    Decision,
    Value,
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


HOSTILE: dict[str, bytes | str] = {
    "no JSON": "what?",
    "half a line": line()[:80],
    "an unknown key": line(comment="x"),
    "a key that paints": line(**{"\x1b[31m": 1}),
    "no time": json.dumps({key: value for key, value in LINE.items() if key != "time"}),
    "a time before the first": line(time="0001-01-01T00:00:00+14:00"),
    "a reviewer of two lines": line(reviewer="an\nna"),
    "nobody settles": line(reviewer="settled: "),
    "a span that ends at its start": line(start_seconds=2.0, end_seconds=2.0),
    "NaN as a value": line(value=float("nan")),
    "an infinite exponent": line().replace('"end_seconds": 2.0', '"end_seconds": 1e999'),
    "a huge number": line(field="others", value=0).replace('"value": 0', '"value": ' + "9" * 6000),
    "half a character": line(field="actor", value="x").replace('"x"', '"\\ud800"'),
    "a deep list": line(value=1).replace('"value": 1', '"value": ' + "[" * 9000),
    "bad UTF-8": b"\xff\xfe\x00",
    "a huge line that begins as a decision": line() + " " * MOST_LINE_BYTES,
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
    for attempt in range(2):
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
    assert len(saved) > 2
    assert set(saved) <= written
    assert len(reading.faults) <= 2


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "review.jsonl"
    writers = [appender(path, name, 100) for name in ("anna", "bob")]
    for writer in writers:
        assert writer.communicate(timeout=120)[0].count("\n") == 100
    reading = read_decisions(path)
    assert not reading.faults
    assert sorted(d.reviewer for d in reading.decisions) == sorted(
        f"{name} {number}" for name in ("anna", "bob") for number in range(100)
    )


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


def standing(*decisions: Decision) -> tuple[Value, bool] | None:
    """Value of the standing decision, and whether reviewers differ."""
    found = [(one.value, one.conflict) for one in standings(decisions).values()]
    assert len(found) <= 1
    return next(iter(found), None)


def test_the_newest_line_of_a_reviewer_stands_until_it_is_withdrawn() -> None:
    made, undone = by("anna", "run", minute=1), by("anna", minute=2)
    assert standing(made, by("anna", "walk")) == ("run", False), "wherever the lines are in the file"
    assert standing(made, undone) is None
    assert standing(made, undone, by("anna", "run", minute=3)) == ("run", False)
    assert standing(by("bob", "walk"), made, undone) == ("walk", False)


def test_reviewers_who_differ_are_a_conflict_until_it_is_settled() -> None:
    anna, bob = by("anna", "run", minute=1), by("bob", "walk", minute=2)
    settled = by("settled: carla", "crawl", minute=3)
    assert standing(bob, anna) == ("walk", True)
    assert standing(settled, bob, anna) == ("crawl", False)
    [found] = standings([settled, bob, anna]).values()
    assert (found.reviewer, dict(found.voices)) == ("settled: carla", {"anna": "run", "bob": "walk"})
    assert standing(anna, bob, settled, by("anna", "jump", minute=4)) == ("jump", True)
    assert standing(by("settled: carla", "crawl"), anna, bob) == ("walk", True), "settled before they differed"
    assert standing(anna, bob, settled, by("settled: carla", minute=4)) == ("walk", True)
    joined = by("anna", "crawl", minute=4)
    assert standing(anna, bob, settled, joined) == ("crawl", False)
    assert standing(anna, bob, settled, by("dora", "run", minute=4), joined) == ("crawl", True)


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
    assert found
    assert found[1] is differ
