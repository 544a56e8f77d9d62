"""Plans of builds: folders of other things refused, settings of before not taken over, and the casts of films."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.config import CaptionSettings, CardSettings, Config, MotionSettings
from pipeline.core.embed_settings import EmbedSettings
from pipeline.core.errors import UserError
from pipeline.core.store import Dataset, LevelCalibration
from pipeline.plan.build_plan import Plan, draft_plan, make_plan
from pipeline.plan.request import BuildRequest, Until
from pipeline.plan.workspace import Workspace
from pipeline.reviews.decisions import append_decisions
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from tests.support import onnx_networks as onnx
from tests.support import records
from tests.support.media.films import make_film
from tests.support.media.painted_clips import make_cast
from tests.support.servers.object_store import ObjectStore


@pytest.mark.parametrize("name", ["README.md", "report.html", "shards"])
def test_a_folder_whose_files_a_build_would_replace_is_refused(tmp_path: Path, name: str) -> None:
    out = tmp_path / "project"
    (out / name).mkdir(parents=True) if name == "shards" else (out.mkdir(), (out / name).write_text("mine"))
    (out / "build.toml").touch()
    with pytest.raises(UserError, match=f"no dataset, and a build would replace {name} there"):
        make_plan(BuildRequest(films=(), out=str(out)), Workspace(str(out)))
    assert sorted(path.name for path in out.iterdir()) == sorted(["build.toml", name])


def test_weights_are_stored_so_that_another_folder_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights = tmp_path / "weights.ckpt"
    weights.touch()
    for checkpoint, stored in ((weights.name, str(weights)), ("things", "things")):  # a file; a name known to ptlflow
        config = Config(motion=MotionSettings(checkpoint=checkpoint))
        assert planned(tmp_path, "a.mkv", config=config).record.config["motion"]["checkpoint"] == stored


def test_settings_that_a_build_forgets_are_named(tmp_path: Path) -> None:
    out = str(tmp_path / "data")
    film = make_film(tmp_path / "film.mkv", frames=8, size=(64, 48), barcode=False)

    def notices(config: Config) -> tuple[str, ...]:
        return make_plan(BuildRequest(films=(str(film),), out=out, config=config), Workspace(out)).notices

    licensed = Config(card=CardSettings(licence="CC BY 3.0"))
    assert notices(licensed) == notices(licensed) == ()
    [notice] = notices(Config())
    assert notice.startswith(
        "settings differ from the previous build: card.licence; to keep them, pass its options and --config again"
    )


def test_a_cast_that_captions_by_rules_do_not_use_is_named(tmp_path: Path) -> None:
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")

    def notices(name: str, **changes: object) -> tuple[str, ...]:
        out = str(tmp_path / name)
        request = BuildRequest(films=(), out=out, cast=str(tmp_path / "cast"))
        return make_plan(request.model_copy(update=changes), Workspace(out)).notices

    [notice] = notices("rules")
    assert notice.startswith("the cast serves only reviews: captions by rules name no characters")
    assert "--captioner server" in notice
    assert notices("server", config=Config(captions=CaptionSettings(captioner="server"))) == ()
    assert notices("measured", until=Until.motion) == (), "the captions of a later build may be others"


def test_networks_are_pinned_for_workers_before_they_start(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "work"))
    onnx.detector(onnx.cached(tmp_path / "hub", "person"), [])
    film = make_film(tmp_path / "film.mkv", frames=8, size=(64, 48), barcode=False)
    config = Config(embed=EmbedSettings(figures="owner/name/person"))
    request = BuildRequest(films=(str(film),), out=store.address("data"), config=config)
    make_plan(request, Workspace(request.out))
    pins = json.loads(store.contents("data/")["networks.json"])
    assert list(pins) == ["owner/name/person model.onnx"]


def test_a_plan_fetches_no_network(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mkv", frames=8, size=(64, 48), barcode=False)
    config = Config(embed=EmbedSettings(pictures="nobody/nothing-1234"))
    request = BuildRequest(films=(str(film),), out=str(tmp_path / "data"), config=config)
    plan = draft_plan(request, Workspace(request.out, tmp_path / "scratch"), fetch=False)
    assert "embed" not in [stage.name for stage in plan.stages]
    assert any("embeddings are not in this plan: nobody/nothing-1234" in notice for notice in plan.notices)


def planned(root: Path, *films: str, cast: str | None = None, config: Config | None = None) -> Plan:
    """Plan a build of tiny films, made here if they are missing, with the cast of these names."""
    for frames, name in enumerate(films, start=8):
        if not (root / name).exists():
            make_film(root / name, frames=frames, size=(64, 48), barcode=False)
    folder = root / f"cast of {cast}" if cast else None
    if folder and cast:
        make_cast(folder, cast)
    out, paths = str(root / "data"), tuple(root / name for name in films)
    return make_plan(BuildRequest(films=paths, out=out, cast=folder, config=config or Config()), Workspace(out))


def test_reviews_that_a_changed_cast_leaves_unapplied_are_named(tmp_path: Path) -> None:
    [film] = planned(tmp_path, "a.mkv", cast="Ponyo").record.films
    reviews = tmp_path / "data" / "review.jsonl"
    foreign = records.decision("characters", ["Anna"])
    about = [records.decision(*decided, film_sha256=film.sha256) for decided in (("MD", "run"), ("actor", "Ponyo"))]
    append_decisions(reviews, [foreign, *about])

    def notices(cast: str) -> list[str]:
        return [notice for notice in planned(tmp_path, "a.mkv", cast=cast).notices if "review.jsonl" in notice]

    assert notices("Ponyo") == []
    for _ in range(2):  # a build may have been killed before it published
        [notice] = notices("Brunhilde")
        assert notice.startswith(f"{reviews}: not applied, since they name a character outside the cast: line 3; ")


def test_a_build_without_a_usable_film_changes_nothing(tmp_path: Path) -> None:
    licensed = Config(card=CardSettings(licence="CC BY 3.0"))
    planned(tmp_path, "a.mkv", cast="Ponyo", config=licensed)
    before = (tmp_path / "data" / "dataset.json").read_bytes()
    missing = BuildRequest(films=(str(tmp_path / "b.mkv"),), out=str(tmp_path / "data"))
    plan = make_plan(missing, Workspace(missing.out))
    assert (len(plan.refused), plan.publishing) == (1, ())
    assert (tmp_path / "data" / "dataset.json").read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "used"),
    [
        ({}, True),
        ({"model": "memflow"}, True),  # its weights are not here
        ({"scale": 0.25}, False),
        ({"background_px": 2.0}, False),
    ],
)
def test_a_calibration_serves_the_measurement_that_it_was_made_for(
    tmp_path: Path, changed: dict[str, Any], used: bool
) -> None:
    dataset, edges = Dataset(tmp_path / "data"), (1.0, 2.0, 3.0, 4.0)
    measured = planned(tmp_path, "a.mkv").record
    kept = LevelCalibration(method="quantiles", flow_model="dis@0.5", background_px=0.2, edges=edges)
    calibrated = {"calibration": kept, "edges": edges, "edges_from": kept.source}
    dataset.save(measured.model_copy(update=calibrated))
    request = BuildRequest(
        films=(str(tmp_path / "a.mkv"),),
        out=str(dataset.root),
        config=Config(motion=MotionSettings.model_validate(changed)),
        until=Until.cut,
    )
    plan = make_plan(request, Workspace(request.out))
    assert dataset.record.edges == (edges if used else PUBLISHED_EDGES)
    assert any("run `animegamer calibrate` after the build" in notice for notice in plan.notices) is not used
    make_plan(request.model_copy(update={"config": Config()}), Workspace(request.out))
    assert dataset.record.edges == edges, "a build with other settings leaves the calibration for those it is for"
