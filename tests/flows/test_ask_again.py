"""Builds that would ask the caption server again: stopped before any work, until the user decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.core.records import Caption
from pipeline.core.store import Dataset
from tests.support.builds.real_builds import numbered_film, write_config
from tests.support.builds.rebuilt_films import animegamer
from tests.support.servers.caption_server import CaptionServer, good_answer

pytestmark = pytest.mark.slow


def test_a_build_that_would_pay_twice_stops_before_any_work(tmp_path: Path) -> None:
    film, new_film, out = numbered_film(tmp_path / "a.mp4", 0), numbered_film(tmp_path / "b.mp4", 4), tmp_path / "data"
    with CaptionServer(good_answer) as server:

        def build(*arguments: object, **changes: Any) -> tuple[int, str, int]:
            """Build; return the exit code, the messages and the number of questions."""
            captions = {"captioner": "server", "endpoint": server.address, "model": "test-model", **changes}
            config = write_config(tmp_path / "config.toml", captions=captions)
            server.requests.clear()
            done = animegamer("build", *arguments, "--out", out, "--config", config)
            return done.returncode, done.stderr, len(server.requests)

        assert build(film)[::2] == (0, 4)
        record = (out / "dataset.json").read_bytes()
        code, said, asked = build(film, new_film, temperature=1)
        assert (code, asked) == (1, 0)
        assert "4 clips with a good caption would be asked about again (temperature (0.0 to 1.0): 4 clips)" in said
        assert (out / "dataset.json").read_bytes() == record
        assert len(Dataset(out).folders()) == 1 or not Dataset(out).folders()[1].stage_record("crop")
        assert build(film, new_film, temperature=1, keep_old=True)[::2] == (0, 4)
        kept = [row.is_kept for folder in Dataset(out).folders() for row in folder.read("captions", Caption)]
        assert kept == [True] * 4 + [False] * 4
        assert "4 of the kept clips have a caption from an earlier form" in (out / "README.md").read_text()
        assert "4 of the kept clips have a caption from an earlier form" in (out / "report.html").read_text()
        assert build(film, new_film, "--ask-again", temperature=1)[::2] == (0, 4)
        assert build(film, new_film, temperature=1)[::2] == (0, 0)
        assert animegamer("verify", out).returncode == 0
