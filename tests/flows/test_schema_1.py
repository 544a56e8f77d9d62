"""Data sets of schema 1: read, verified and trained on as they are, and brought to schema 2 by the next build."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from pipeline.core.config import checked
from pipeline.core.progress import silent
from pipeline.core.stage import why_stale
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.publish import is_published
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.publish.verify import verify
from tests.support.datasets.built_dataset import SMALL, copy_of_built
from tests.support.datasets.published_clips import samples_of
from tests.support.datasets.schema_1 import bring_to_schema_1, schema_1
from tests.test_made_before import BEFORE
from training.data.shards import open_shards
from training.data.turns import Catalog


@pytest.fixture
def old(tmp_path: Path) -> BuildRequest:
    """Request for the film of a finished data set of schema 1."""
    film, data = copy_of_built(tmp_path)
    bring_to_schema_1(data)
    return BuildRequest(films=(film,), out=data, config=checked(SMALL, "test"))


def raw_samples(data: Path) -> list[dict[str, object]]:
    found = []
    for path in sorted((data / "shards").rglob("*.tar")):
        with tarfile.open(path) as tar:
            names = [name for name in tar.getnames() if name.endswith(".json")]
            found += [json.loads(tar.extractfile(name).read()) for name in names]  # type: ignore[union-attr]
    return found


def test_the_fields_taken_away_are_those_that_schema_1_did_not_have(tmp_path: Path) -> None:
    """The JSON of a sample that a version with schema 1 wrote is kept in `made_before.json`, with the film's folder."""
    _, data = copy_of_built(tmp_path)
    [new, *_] = raw_samples(data)
    before = json.loads(BEFORE["folders"]["sample of schema 1"]["json"])
    assert list(schema_1(new)) == list(before)
    assert list(schema_1(new)["caption"]) == list(before["caption"])


def test_it_is_read_verified_and_trained_on_as_it_is(old: BuildRequest, tmp_path: Path) -> None:
    data = Path(old.out)
    assert {sample["schema"] for sample in raw_samples(data)} == {1}
    assert verify(Dataset(data)) == []
    sample = samples_of(Dataset(data))[0]
    assert (sample.overlap_seconds, sample.dialogue, sample.sound) == (0.0, None, None)
    assert (sample.caption.actor, sample.caption.others, sample.caption.flags) == (None, None, ())
    cached = tmp_path / "catalog.json"
    catalog = Catalog.read(open_shards(data, "train"), cached)
    content = json.loads(cached.read_bytes())
    for turn in content["turns"]:
        turn["sample"] = schema_1(turn["sample"])
    cached.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
    shutil.move(data / "shards" / "train", tmp_path / "elsewhere")  # only the cached catalog is left
    assert Catalog.read(catalog.shards, cached).turns == catalog.turns


def test_the_next_build_brings_it_to_schema_2_and_makes_nothing_else_again(old: BuildRequest) -> None:
    data = Path(old.out)
    files = [path for path in data.glob("films/*/**/*") if path.is_file() and "/." not in str(path.relative_to(data))]
    kept = {path: path.read_bytes() for path in files if path.name != "film.json"}
    plan = make_plan(old, Workspace(old.out))
    folder = plan.dataset.folder(*plan.films)
    assert {stage.name: why_stale(stage, folder) for stage in plan.stages} == dict.fromkeys(STAGE_NAMES)
    assert not plan.unfinished
    assert not is_published(plan.dataset, plan.config)
    for stage in plan.publishing:
        stage.run(plan.dataset, silent)
    assert {path: path.read_bytes() for path in kept} == kept
    assert {sample["schema"] for sample in raw_samples(data)} == {2}
    record = json.loads((data / "dataset.json").read_bytes())
    assert (record["schema_version"], record["clips"]) == (2, {"frames": 16, "fps": "8", "width": 180, "height": 120})
    assert json.loads((data / "shards" / "index.json").read_bytes())["schema"] == 2
    assert verify(plan.dataset) == []
    assert is_published(plan.dataset, plan.config)
