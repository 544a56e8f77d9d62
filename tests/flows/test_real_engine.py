"""Captions by an engine that really generates: a tiny random InternVL behind `transformers serve`, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.captions.reply_cache import load_replies
from pipeline.core.records import Caption
from pipeline.core.store import Dataset
from tests.support.builds.real_builds import numbered_film, write_config
from tests.support.builds.rebuilt_films import animegamer
from tests.support.media.painted_clips import make_cast
from tests.support.servers.tiny_internvl import TinyInternVL

LMDEPLOY = Path(__file__).parents[2] / ".venv-lmdeploy"
TILE = 256


@pytest.mark.nightly
@pytest.mark.skipif(not LMDEPLOY.exists(), reason="no environment with lmdeploy: make lmdeploy-env")
def test_a_build_survives_a_model_that_answers_noise(tmp_path: Path) -> None:
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")
    film, out = numbered_film(tmp_path / "film.mp4", 0), tmp_path / "data"
    with TinyInternVL(tmp_path, LMDEPLOY) as server:
        sampling = {"max_tokens": 32, "temperature": 1.0, "repairs": 1, "failed_limit": 1.0, "concurrency": 2}
        captions = {"captioner": "server", "endpoint": server.address, "model": server.model, **sampling}
        config = write_config(tmp_path / "config.toml", captions=captions, selection={"uncaptioned": "keep"})
        built = animegamer("build", film, "--out", out, "--cast", tmp_path / "cast", "--config", config)
        assert built.returncode == 0, built.stderr + server.log.read_text()[-2000:]
    assert animegamer("verify", out).returncode == 0
    (folder,) = Dataset(out).folders()
    rows = folder.read("captions", Caption)
    assert len(rows) == 4
    faults = [(row.fault, row.raw_what, row.S) for row in rows]
    assert all(row.fault and row.raw_what and row.S is None for row in rows), faults
    assert len({row.raw_what for row in rows}) > 1, "it draws its replies"
    for row in rows:
        for exchange in load_replies(folder, row.clip_id).exchanges.values():
            assert exchange.reply_tokens == 2 * 32
            assert 2 * 8 * TILE < exchange.prompt_tokens < 2 * (8 * TILE + 4000), "eight tiles and a text, twice"
