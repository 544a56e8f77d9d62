"""References from other scenes and stills of characters, as each trainer names them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml

from flows.commands.dataset import open_workspace
from pipeline.core.config import EmbedSettings, ShardSettings
from pipeline.core.errors import UserError
from pipeline.core.records import Caption, Clip
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.publish.export.plan import ExportPlan, ExportRequest, make_plan
from pipeline.publish.export.references import find_portraits
from pipeline.publish.export.run import write_export
from pipeline.publish.export.trainers import TRAINERS
from pipeline.publish.shards import write_shards
from pipeline.remote.mirror import Mirror
from pipeline.reviews.casting.figures import cut_out, read_figures
from pipeline.reviews.casting.rows import Casting
from tests.support import onnx_networks as onnx
from tests.support.datasets.embedded import embed
from tests.support.datasets.made_dataset import MODEL, make_dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Dataset of LTX-2's clips with sentences, whose pictures are embedded."""
    dataset = make_dataset(tmp_path / "data", captioner=MODEL, films=1)
    onnx.processor(tmp_path)
    embed(dataset, EmbedSettings(pictures=str(onnx.picture_encoder(tmp_path / "pictures.onnx"))))
    for folder in dataset.folders():
        clips = [row.model_copy(update={"frames": 121, "fps": Fraction(24)}) for row in folder.read("clips", Clip)]
        folder.write("clips", clips)
        captions = folder.read("captions", Caption)
        folder.write("captions", [row.model_copy(update={"sentence": f'Ön "{row.clip_id}".'}) for row in captions])
    write_shards(dataset, ShardSettings())
    return dataset


def name_all(dataset: Dataset, name: str) -> None:
    casting = Casting(dataset, read_figures(dataset), "anna")
    casting.act("name", range(len(casting.figures.items)), [name])


def planned(dataset: Dataset, out: Path, trainer: str = "folder", **wishes: Any) -> ExportPlan:
    return make_plan(dataset, ExportRequest(TRAINERS[trainer], out, **wishes), STAGE_NAMES)


def test_each_clip_has_its_character_from_another_scene(dataset: Dataset, tmp_path: Path) -> None:
    name_all(dataset, "Hana")
    out = tmp_path / "out"
    plan = planned(dataset, out, references=True)
    write_export(plan)
    rows = [json.loads(line) for line in (out / "references.jsonl").read_text().splitlines()]
    assert [row["video_path"] for row in rows] == [clip.file for clip in plan.clips] != []
    for row, clip in zip(rows, plan.clips, strict=True):
        assert clip.reference
        assert clip.reference.figure.clip.scene != clip.seen.clip.scene
        (reference,) = row["references"]
        height, width = cv2.imread(str(out / reference["path"])).shape[:2]
        assert reference["type"] == "image"
        assert width / height == pytest.approx(plan.format.width / plan.format.height, abs=0.02)
    assert write_export(planned(dataset, out, references=True)).changed == 0
    assert write_export(planned(dataset, out)).removed == len(rows) + 1


def test_a_picture_is_widened_before_its_only_encoding(dataset: Dataset, tmp_path: Path) -> None:
    name_all(dataset, "Hana")
    seen = [clip.seen for clip in planned(dataset, tmp_path / "out").clips]
    portrait = find_portraits(dataset, seen, (96, 96)).by_name["Hana"][0]
    ((_, picture_HWC),) = cut_out(dataset, [portrait.figure])
    high, wide = picture_HWC.shape[:2]
    square_HWC = np.full((wide, wide, 3), 224, np.uint8)
    top = (wide - high) // 2
    square_HWC[top : top + high] = picture_HWC
    assert high < wide
    assert portrait.widened == cv2.imencode(".jpg", square_HWC, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()


def test_trainers_get_their_own_names(dataset: Dataset, tmp_path: Path) -> None:
    name_all(dataset, "Hana")
    ltx = tmp_path / "ltx"
    write_export(planned(dataset, ltx, "ltx-trainer", references=True))
    rows = [json.loads(line) for line in (ltx / "metadata.jsonl").read_text().splitlines()]
    assert all((ltx / row["reference_video"]).is_file() for row in rows)
    video = yaml.safe_load((ltx / "config.yaml").read_text())["training_strategy"]["video"]
    assert video["conditions"][0] == {
        **{"type": "reference", "latents_dir": "reference_latents", "probability": 1.0},
        **{"layout": "overlap", "source_phase": True, "source_id": 1},
    }
    assert '"96x64x121;96x64x1"' in (ltx / "start.sh").read_text()
    plain = tmp_path / "plain"
    write_export(planned(dataset, plain, "ltx-trainer"))
    assert "reference" not in (plain / "config.yaml").read_text() + (plain / "metadata.jsonl").read_text()
    for folder in dataset.folders():
        clips = [row.model_copy(update={"frames": 33, "fps": Fraction(16)}) for row in folder.read("clips", Clip)]
        folder.write("clips", clips)
    simple = tmp_path / "simple"
    write_export(planned(dataset, simple, "simpletuner", references=True))
    clips, references, _ = json.loads((simple / "multidatabackend.json").read_text())
    assert (clips["conditioning_data"], references["conditioning_type"]) == (references["id"], "reference_loose")
    stems = {path.stem for path in Path(clips["instance_data_dir"]).glob("*.mp4")}
    assert stems == {path.stem for path in Path(references["instance_data_dir"]).glob("*.jpg")} != set()
    with pytest.raises(UserError, match="references"):
        planned(dataset, tmp_path / "musubi", "musubi-tuner", references=True)


def test_stills_are_the_sharpest_of_each_look(dataset: Dataset, tmp_path: Path) -> None:
    name_all(dataset, "Hana")
    plan = planned(dataset, tmp_path / "out", stills=2, trigger="anime", names={"Hana": "h4na"})
    write_export(plan)
    stills = tmp_path / "out" / "stills" / "Hana"
    looks = sorted(int(path.name) for path in stills.iterdir())
    assert looks[:2] == [1, 2]
    assert plan.portraits
    for look in looks:
        own = [one for one in plan.portraits.by_name["Hana"] if one.look == look]
        assert [one.sharpness for one in own] == sorted((one.sharpness for one in own), reverse=True)
        assert (stills / str(look) / "001.jpg").read_bytes() == own[0].content
        assert len(list((stills / str(look)).glob("*.jpg"))) <= 2
    assert (stills / "1" / "001.txt").read_text() == "anime h4na\n"


def test_names_and_vectors_travel_with_a_dataset_at_an_address(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_all(dataset, "Hana")
    here = planned(dataset, tmp_path / "here", references=True, stills=2)
    address = f"memory://{tmp_path.name}/data"
    Mirror(address, dataset.root).push()
    monkeypatch.setenv("ANIMEGAMER_WORK", str(tmp_path / "work"))
    fetched = open_workspace(address).dataset
    there = planned(fetched, tmp_path / "there", references=True, stills=2)
    assert there.portraits == here.portraits
    assert [clip.reference for clip in there.clips] == [clip.reference for clip in here.clips] != []
    name_all(fetched, "Toki")
    Mirror(address).push()
    Mirror(address, dataset.root).pull()
    assert set(planned(dataset, tmp_path / "again", stills=1).portraits.by_name) == {"Toki"}  # type: ignore[union-attr]


def test_what_has_no_reference_is_left_out_or_refused(dataset: Dataset, tmp_path: Path) -> None:
    casting = Casting(dataset, read_figures(dataset), "anna")
    casting.act("discard", range(len(casting.figures.items)))
    with pytest.raises(UserError, match="animegamer cast"):
        planned(dataset, tmp_path / "out", references=True)
    name_all(dataset, "Hana")
    first = [place for place, figure in enumerate(casting.figures.items) if figure.clip.scene == 0]
    casting.act("name", first, ["Toki"])
    everything, plan = planned(dataset, tmp_path / "out"), planned(dataset, tmp_path / "out", references=True)
    paired = [clip.file for clip in everything.clips if clip.seen.clip.scene != 0]
    assert [clip.file for clip in plan.clips] == paired != [clip.file for clip in everything.clips]
    assert any("left out" in notice for notice in plan.notices)
    (folder,) = dataset.folders()
    (folder.path / "embed.json").unlink()
    with pytest.raises(UserError, match=r"\[embed\]"):
        planned(dataset, tmp_path / "out", references=True)
