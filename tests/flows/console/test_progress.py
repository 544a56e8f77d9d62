"""Progress display on a plain stream and on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import pytest

from flows.console import progress
from flows.console.progress import Bars, TrainBars, importing
from pipeline.core.progress import watched
from training.trainer import StepReport

DRAWING = """
import time
from flows.console.progress import Bars
from pipeline.core.progress import watched

with Bars().watching(), watched("ponyo\\x1b[2J", "cut") as watch:
    watch(1, 4)
    time.sleep(0.5)  # bars are drawn ten times a second
"""


IMPORTING = """
import os, sys, time
from flows.console.progress import importing

for rank in "01":
    os.environ["RANK"] = rank
    with importing():
        time.sleep(0.3)
    print("--- next", file=sys.stderr)
"""


@pytest.fixture
def chatty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the minimum interval between lines."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)


def test_a_plain_stream_shows_progress_and_end_of_a_stage(chatty: None, capsys: pytest.CaptureFixture[str]) -> None:
    with Bars().watching(), watched("ponyo", "cut") as watch:
        watch(0, 0)  # of unknown size
        watch(1, 4)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "  ponyo  cut: 25%"
    assert lines[1].startswith("  ponyo  cut: done (")
    assert len(lines) == 2


def test_lines_on_a_plain_stream_are_limited(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars().watching(), watched("ponyo", "cut") as watch:
        for done in range(100):
            watch(done, 100)
        watch.changed = False
    assert capsys.readouterr().err == ""


def test_work_under_one_name_may_run_several_times_at_once(chatty: None, capsys: pytest.CaptureFixture[str]) -> None:
    with Bars().watching():
        with watched("ponyo", "cut") as first, ExitStack() as other:
            second = other.enter_context(watched("ponyo", "cut"))
            first(1, 4)
            other.close()
            first(2, 4)
        assert second.changed
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "  ponyo  cut: 25%",
        "  ponyo  cut: done",
        "  ponyo  cut: 50%",
        "  ponyo  cut: done",
    ]


@pytest.mark.parametrize("silent", [False, True])
def test_training_shows_steps_and_keeps_validations(
    chatty: None, capsys: pytest.CaptureFixture[str], silent: bool
) -> None:
    bars = TrainBars(silent=silent)
    bars.phases = {"warm-up": 100, "joint": 800, "game": 2400}
    with bars.shown():
        bars.feature("latents", 3, 12)
        bars.step(StepReport("joint", 2, 8, {"loss": 0.5, "val/loss": 0.25}))
        bars._first["joint"] = (2, time.monotonic() - 100)
        bars.step(StepReport("joint", 3, 8, {"loss": 0.5}))
    expected = [
        "  encoding latents: 25%, 3 of 12 clips",
        "  joint (2 of 3): 25%, step 2 of 8, loss 0.5000",
        "  joint, step 2: loss 0.5000; held out: loss 0.2500",
        "  joint (2 of 3): 38%, step 3 of 8, loss 0.5000, 8 min left, 48 min with later phases",
    ]
    assert capsys.readouterr().err.splitlines() == ([] if silent else expected)


def shown_on_a_terminal(program: str) -> str:
    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    subprocess.run([sys.executable, "-c", program], stderr=writer, env=environment, check=True, timeout=120)
    os.close(writer)
    shown = b""
    with suppress(OSError):  # reading a closed terminal raises an error
        while more := os.read(reader, 4096):
            shown += more
    os.close(reader)
    return shown.decode()


def test_a_terminal_shows_a_bar_without_control_characters_of_film_names() -> None:
    text = shown_on_a_terminal(DRAWING)
    assert "ponyo\N{REPLACEMENT CHARACTER}[2J  cut" in text
    assert "25%" in text
    assert "━" in text
    assert "\x1b[2J" not in text


def test_a_terminal_shows_that_the_networks_are_imported_once_for_several_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second, _ = shown_on_a_terminal(IMPORTING).split("--- next")
    assert "loading torch" in first
    assert second.strip() == ""
    with importing():
        time.sleep(0.2)
    assert capsys.readouterr().err == ""
