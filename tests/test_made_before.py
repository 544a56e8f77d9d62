"""Data sets, runs, checkpoints and games of earlier versions: read, skipped and continued, from `made_before.json`.

`support/datasets/made_before.py` documents the content of the file and the command that rewrites it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from flows.game.folder import GameFolder
from flows.game.play_file import play_turn
from flows.game.records import GameSettings
from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.engine_options import EngineOptions
from pipeline.captions.reply_cache import load_replies
from pipeline.captions.server_captioner import ServerCaptioner
from pipeline.core.config import Config, checked
from pipeline.core.stage import perform, why_stale
from pipeline.core.store import FilmFolder
from pipeline.plan.build_plan import make_plan
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.publish import is_published
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from tests.support.datasets.code_facts import FACTS, SERVER, clip_record, libraries
from tests.support.datasets.made_before import (
    CAST,
    build,
    build_bytes,
    build_facts,
    caches,
    film_file,
    made_up,
    packed,
    train_all,
    unpack,
)
from tests.support.networks.painted_engine import PaintedEngine
from training.phase_settings import PHASES

STALE = {"looks": 'changed: stage ("looks 2" to "looks 5")'}
"""Stages whose results are deliberately made again, from the clips: two scenes in a clip are measured otherwise."""
BEFORE: dict[str, Any] = json.loads(Path(__file__).with_name("made_before.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data set built by the current code; read-only."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Data set made before, with files of the recorded sizes and contents."""
    data = unpack(BEFORE["folders"]["data"], tmp_path / "data")
    for record in data.glob("films/*/*.json"):
        for name in json.loads(record.read_bytes()).get("files", ()):
            file = record.parent / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(name, encoding="utf-8")
    for entry in json.loads((data / "published.json").read_bytes()).values():
        for name, size in entry["files"].items():
            (data / name).write_bytes(b"x" * size)
    return data


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Folder of the training run made before: its start, its data and the results of its phases."""
    for name in ("source", "checkpoint", "gc", "gfc", "run"):
        unpack(BEFORE["folders"][name], tmp_path / name)
    for name in ("checkpoint", "gc", "gfc"):
        made_up(tmp_path / name)
    return tmp_path


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_the_code_are_unchanged(tmp_path: Path, name: str) -> None:
    assert as_json(FACTS[name](tmp_path)) == BEFORE["facts"][name]


def test_a_configuration_written_before_is_the_default(tmp_path: Path) -> None:
    assert checked(BEFORE["facts"]["config"], "before") == Config()


def test_a_build_leaves_the_same_files_and_records(built: Path) -> None:
    assert as_json(build_facts(built)) == BEFORE["facts"]["build"]


def test_a_build_leaves_the_same_bytes(built: Path) -> None:
    if libraries() != BEFORE["libraries"]:
        pytest.skip(
            "on this processor or in these versions the libraries give other bytes than where the file was written"
        )
    assert as_json(build_bytes(built)) == BEFORE["bytes"]


def test_a_data_set_made_before_is_skipped_but_for_stale_stages(tmp_path: Path, data: Path) -> None:
    published = ("film.json", "dataset.json")  # which new fields are added to
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name not in published}
    plan = make_plan(BuildRequest(films=(film_file(tmp_path),), out=data), Workspace(str(data)))
    folder = plan.dataset.folder(*plan.films)
    assert {stage.name: why_stale(stage, folder) for stage in plan.stages} == dict.fromkeys(STAGE_NAMES) | STALE
    assert not any(perform(stage, folder) for stage in plan.stages if stage.name not in STALE)
    assert plan.unfinished.keys() == {folder.film_id}
    assert not is_published(plan.dataset, plan.config)  # the shards are of schema 1, see `flows/test_schema_1.py`
    assert {path: path.read_bytes() for path in before} == before


def test_replies_kept_before_are_read_and_answer_other_questions(tmp_path: Path) -> None:
    folder, clip = FilmFolder(unpack(BEFORE["folders"]["film"], tmp_path)), clip_record()
    kept = load_replies(folder, clip.clip_id)
    assert {exchange.request for exchange in kept.exchanges.values()} == {"who", "what"}
    # the pictures of a clip are smaller now and stand before the text
    assert ServerCaptioner(SERVER, CAST).pending(folder, [clip], {clip.clip_id: 3}, {}) == ([clip.clip_id], False)
    assert packed(tmp_path) == BEFORE["folders"]["film"]


def test_a_checkpoint_made_before_is_read(run: Path) -> None:
    checkpoint = Checkpoint.open(run / "checkpoint")
    assert checkpoint.config == tiny_config()
    assert checkpoint.identity() == BEFORE["identity"]


def test_a_run_finished_before_is_skipped(run: Path) -> None:
    assert train_all(run, run / "source") == [f"{phase}: done already" for phase in (*PHASES, "gc", "gfc")]
    noted = {name: text for name, text in packed(run / "run").items() if "/result/" not in name}
    before, start = dict(BEFORE["folders"]["run"]), Checkpoint.open(run / "checkpoint").as_start()
    for phase in PHASES:  # their notes now have the encoder, which those made before lack
        note = json.loads(before.pop(f"{phase}/made_from.json"))
        assert json.loads(noted.pop(f"{phase}/made_from.json")) == {**note, "encoder": start["encoder"]}
    assert noted == before


def test_features_made_before_are_used(run: Path) -> None:
    expected = set()
    for cache in caches(run, run / "source"):
        for feature in cache.features.values():
            for shard, turns in cache.catalog.by_shard.items():
                path = cache.folder / feature.name / shard.replace(".tar", ".safetensors")
                expected.add(name := path.relative_to(run).as_posix())
                path.parent.mkdir(parents=True, exist_ok=True)
                rows = {turn.clip_id: torch.zeros(feature.shape, dtype=feature.dtype) for turn in turns}
                save_file(rows, path, BEFORE["headers"][name])
        assert {name: cache.faults(name) for name in cache.features} == {name: {} for name in cache.features}
        for name, feature in cache.features.items():
            assert cache.get(name, cache.catalog.turns[0].clip_id).shape == feature.shape
    assert expected == BEFORE["headers"].keys()


def test_a_game_begun_before_is_continued(tmp_path: Path, run: Path) -> None:
    path = unpack(BEFORE["folders"]["game"], tmp_path / "game")
    game = GameFolder.open(path)
    options = EngineOptions(steps=50, guidance=6.0)
    assert game.settings == GameSettings.of(Checkpoint.open(run / "checkpoint"), options, seed=7)
    assert [turn.id for turn in game.turns] == ["0001", "0002", "0002-1"]
    assert packed(path) == BEFORE["folders"]["game"]
    for turn in game.turns:
        save_file({"shot_tokens_LD": torch.zeros(6, 8)}, path / f"{turn.id}.safetensors")
    further = play_turn(game, PaintedEngine(), "Ponyo comes back", "0002-1")
    assert (further.id, further.parent, further.number) == ("0003", "0002-1", 3)
    before = BEFORE["folders"]["game"]["turns.jsonl"]
    assert (path / "turns.jsonl").read_text(encoding="utf-8").startswith(before)
    assert GameFolder.open(path).turns == [*game.turns]
