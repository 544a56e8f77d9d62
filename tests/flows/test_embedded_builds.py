"""Builds with networks: what is published keeps its bytes, and one dataset has one network."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.errors import UserError
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import make_plan
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.status import StageState
from pipeline.plan.workspace import Workspace
from tests.support.builds.real_builds import contents, differences, numbered_film
from tests.support.builds.rebuilt_films import redone, request_for, states
from tests.support.datasets.built_dataset import build_here
from tests.support.onnx_networks import picture_encoder

pytestmark = pytest.mark.slow


def test_a_build_with_a_network_runs_embed_alone_and_leaves_all_other_results(tmp_path: Path) -> None:
    film, out = numbered_film(tmp_path / "film.mp4", 0), tmp_path / "data"
    redone(request_for(film, out=out))
    (folder,) = Dataset(out).folders()
    before = [folder.stage_record(name) for name in STAGE_NAMES]
    network = picture_encoder(tmp_path / "model.onnx")
    request = request_for(film, out=out, embed={"pictures": str(network)})
    assert states(request, out)["embed"] is StageState.missing
    assert redone(request) == {folder.film_id: ["embed"]}
    assert [folder.stage_record(name) for name in STAGE_NAMES] == before
    assert states(request, out)["embed"] is StageState.done
    assert redone(request) == {folder.film_id: []}
    picture_encoder(network, seed=3)
    assert redone(request) == {folder.film_id: ["embed"]}


def test_embedding_changes_no_byte_of_what_is_published(tmp_path: Path) -> None:
    film = numbered_film(tmp_path / "film.mp4", 0)
    build_here(request_for(film, out=tmp_path / "plain"))
    build_here(request_for(film, out=tmp_path / "embedded", embed={"pictures": "own"}))
    plain, embedded = contents(tmp_path / "plain"), contents(tmp_path / "embedded")
    assert any(name.endswith(".tar") for name in plain)
    changed = {Path(name).name for name in differences(plain, embedded)}
    own = {"embed.json", "embedded.parquet", "figures.parquet", "pictures.npy"}
    assert changed == {*own, "dataset.json", "published.json"}


def test_a_film_embedded_by_another_network_is_not_joined(tmp_path: Path) -> None:
    out, network = tmp_path / "data", picture_encoder(tmp_path / "model.onnx")
    redone(request_for(numbered_film(tmp_path / "film.mp4", 0), out=out, embed={"pictures": str(network)}))
    picture_encoder(network, seed=3)
    other = request_for(numbered_film(tmp_path / "other.mp4", 9), out=out, embed={"pictures": str(network)})
    with pytest.raises(UserError, match=r"the embeddings of film\.mp4, which is not in this build: pictures"):
        make_plan(other, Workspace(other.out))
