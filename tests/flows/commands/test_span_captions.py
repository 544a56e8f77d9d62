"""Command `captions --spans`: spans asked about as a whole, their cost, kills, and exports that prefer the answers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.core.records import Clip, Reviewed, SpanCaption
from pipeline.core.store import Dataset, FilmFolder
from pipeline.publish.export.captions import CaptionForm, CaptionStyle
from pipeline.publish.export.clips import ClipForm
from pipeline.publish.export.trainers import PRESETS, TRAINERS
from pipeline.publish.seen_clips import seen_clips
from tests.flows.commands.test_captions import invoked
from tests.support.builds.real_builds import write_config
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer

LEFT = r"spans left   (\d) of 4"


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """A film with four spans for LTX-2."""
    return make_dataset(tmp_path / "data", films=1, scenes=2, clips=8, captioner=MODEL)


def exported(dataset: Dataset) -> list[str]:
    kept = [seen for seen in seen_clips(dataset) if seen.fate == "kept"]
    form = ClipForm(TRAINERS["folder"], CaptionStyle(CaptionForm.instruction), PRESETS["ltx2"], dialogue=False)
    return [clip.caption for clip in form.clips(dataset, kept)[0]]


def asked(server: CaptionServer) -> list[str]:
    return [request.text for request in server.requests if request.kind == "what"]


def test_spans_are_tried_then_all_asked_once_and_exports_prefer_the_answers(dataset: Dataset, tmp_path: Path) -> None:
    joined = exported(dataset)
    with CaptionServer(good_answer, read=lambda _: 0) as server:
        config = write_config(tmp_path / "captions.toml", captions={"endpoint": server.address, "model": "m"})
        command = ("captions", dataset.root, "--spans", "ltx2", "--config", config)
        assert "the cost of 4 spans is not known yet" in invoked(*command, "--all", code=1)
        assert not server.requests
        said = invoked(*command, "--try", 1, "--price-per-million-tokens", 0.5)
        assert re.findall(LEFT, said) == ["4", "3"]
        assert re.search(r"3 of 4; 0\.00\d+ million tokens, 0\.00 at 0\.5 a million", said)
        [text] = asked(server)
        assert text.startswith("The clip lasts 5.0 seconds, not two,")
        server.requests.clear()
        assert re.findall(LEFT, invoked(*command, "--all")) == ["3", "0"]
        assert len(asked(server)) == 3
        server.requests.clear()
        assert "asked        0 spans now; 100% of 4 usable" in invoked(*command, "--all")
        assert not server.requests
    assert (after := exported(dataset)) != joined
    assert len(after) == 4
    [folder] = dataset.folders()
    assert [row.preset for row in folder.read("spans", SpanCaption)] == ["ltx2"] * 4
    reviewed(folder, 1)
    assert exported(dataset)[0] != after[0]
    assert exported(dataset)[1:] == after[1:]
    changed = [row.model_copy(update={"sha256": "0" * 64}) if row.index == 4 else row for row in clips_of(folder)]
    folder.write("clips", changed)
    assert exported(dataset)[1] == joined[1]


def test_a_span_with_a_reviewed_clip_is_not_asked_about(dataset: Dataset, tmp_path: Path) -> None:
    [folder] = dataset.folders()
    reviewed(folder, 5)
    with CaptionServer(good_answer, read=lambda _: 0) as server:
        config = write_config(tmp_path / "captions.toml", captions={"endpoint": server.address, "model": "m"})
        assert "0 of 3" in invoked("captions", dataset.root, "--spans", "ltx2", "--config", config)
        assert len(asked(server)) == 3


def test_bad_input_is_named(dataset: Dataset, tmp_path: Path) -> None:
    assert "--all needs --spans" in invoked("captions", dataset.root, "--all", code=1)
    short = make_dataset(tmp_path / "short", captioner=MODEL)
    assert "no scene has 136 frames at 24 a second" in invoked("captions", short.root, "--spans", "h3", code=1)


@pytest.mark.slow
def test_a_killed_command_has_kept_its_replies(dataset: Dataset, tmp_path: Path) -> None:
    [folder] = dataset.folders()
    with CaptionServer(slowly, read=lambda _: 0) as server:
        captions = {"endpoint": server.address, "model": "m", "concurrency": 1}
        config = write_config(tmp_path / "captions.toml", captions=captions)
        command = ("captions", str(dataset.root), "--spans", "ltx2", "--config", str(config))
        process = subprocess.Popen([sys.executable, "-m", "flows.cli", *command], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while len(replies(folder)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        assert (stored := len(replies(folder))) >= 2
        server.requests.clear()
        invoked(*command)
        assert len(asked(server)) == 4 - stored
    assert len(folder.read("spans", SpanCaption)) == 4


def slowly(request: Request) -> Answer:
    time.sleep(0.3)
    return good_answer(request)


def replies(folder: FilmFolder) -> list[Path]:
    return list((folder.path / "replies").glob("[!.]*-ltx2.json"))


def clips_of(folder: FilmFolder) -> list[Clip]:
    return folder.read("clips", Clip)


def reviewed(folder: FilmFolder, index: int) -> None:
    """Note a reviewer's correction of one clip."""
    [clip_id] = [clip.clip_id for clip in clips_of(folder) if clip.index == index]
    folder.write("reviewed", [Reviewed(clip_id=clip_id, fields=("MD",), keep=None, MD="wave")])
