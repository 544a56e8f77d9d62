"""Exports of a made dataset: files of each trainer, links, updates, choice of clips, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas
import pytest
from huggingface_hub import DatasetCard

from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.core.measurements import Looks, Motion
from pipeline.core.records import Caption, Clip, Reviewed, Verdict
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.publish.export.captions import CaptionForm
from pipeline.publish.export.plan import ExportRequest, make_plan
from pipeline.publish.export.run import Written, write_export
from pipeline.publish.export.trainers import PRESETS, TRAINERS
from pipeline.publish.seen_clips import ClipChoice, seen_clips
from pipeline.publish.shards import write_shards
from pipeline.reviews.applied import load_reviews, save_published
from pipeline.reviews.decisions import append_decisions
from pipeline.stages.subtitles.files import parse
from tests.support import records
from tests.support.datasets.dialogue import line, write_dialogue
from tests.support.datasets.made_dataset import MODEL, make_dataset


def published(root: Path, **options: Any) -> Dataset:
    dataset = make_dataset(root, **options)
    write_shards(dataset, ShardSettings())
    return dataset


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return published(tmp_path / "data", captioner=MODEL)


@pytest.fixture
def fitting(dataset: Dataset) -> Dataset:
    """Dataset whose clips count as 33 frames at 16 a second with sentences: ready for Wan without cutting."""
    for folder in dataset.folders():
        clips = [row.model_copy(update={"frames": 33, "fps": Fraction(16)}) for row in folder.read("clips", Clip)]
        folder.write("clips", clips)
        captions = folder.read("captions", Caption)
        folder.write("captions", [row.model_copy(update={"sentence": f'Ön "{row.clip_id}".'}) for row in captions])
    return dataset


def kept(dataset: Dataset) -> dict[str, Path]:
    """Kept clips by id, by the tables alone."""
    return {
        verdict.clip_id: folder.clip_path(verdict.clip_id)
        for folder in dataset.folders()
        for verdict in folder.read("verdicts", Verdict)
        if verdict.keep
    }


def export(dataset: Dataset, out: Path, trainer: str = "folder", **wishes: Any) -> Written:
    return write_export(make_plan(dataset, ExportRequest(TRAINERS[trainer], out, **wishes), STAGE_NAMES))


def contents(out: Path) -> dict[str, bytes]:
    """Files of an export but those of this machine."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def test_a_folder_has_every_kept_clip_and_its_caption(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(dataset, out)
    clips = kept(dataset)
    assert set(contents(out)) == {f"{clip_id}.{kind}" for clip_id in clips for kind in ("mp4", "txt")}
    for clip_id, path in clips.items():
        assert (out / f"{clip_id}.mp4").samefile(path)
    captions = {row.clip_id: row for folder in dataset.folders() for row in folder.read("captions", Caption)}
    for clip_id in clips:
        text = (out / f"{clip_id}.txt").read_text(encoding="utf-8")
        assert text.count("\n") == 1
        assert str(captions[clip_id].EV) in text


def test_an_export_repeated_writes_nothing_and_one_with_changes_writes_those(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = export(dataset, out)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir() if not path.name.startswith(".")}
    assert export(dataset, out) == Written(first.clips, 0, 0, {}, {})
    folder = dataset.folders()[0]
    clip_id = next(row.clip_id for row in folder.read("verdicts", Verdict) if row.keep)
    rows = folder.read("captions", Caption)
    folder.write("captions", [row.model_copy(update={"EV": "moon"} if row.clip_id == clip_id else {}) for row in rows])
    assert export(dataset, out).changed == 1
    changed = [path.name for path, time in before.items() if path.stat().st_mtime_ns != time]
    assert changed == [f"{clip_id}.txt"]


def test_reviews_that_are_not_published_are_named(dataset: Dataset, tmp_path: Path) -> None:
    folder, request = dataset.folders()[0], ExportRequest(TRAINERS["folder"], tmp_path / "out")
    clip = folder.read("clips", Clip)[0]
    append_decisions(dataset.root / "review.jsonl", [records.decision_about(clip, folder.film.sha256, "EV", "harbour")])
    said = "reviews of 1 clip are not published yet; run `animegamer build` to use them"
    assert make_plan(dataset, request, STAGE_NAMES).notices == (said,)
    with pytest.raises(UserError, match=re.escape(f"; {said}")):
        make_plan(dataset, replace(request, form=CaptionForm.sentence), STAGE_NAMES)
    save_published(
        folder, "reviewed", load_reviews(dataset, dataset.root / "review.jsonl").rows(folder, dataset.record.cast)
    )
    assert make_plan(dataset, request, STAGE_NAMES).notices == ()


def test_clips_that_are_no_longer_chosen_are_removed_and_other_files_stay(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(dataset, out)
    (out / "cache.safetensors").write_bytes(b"of the trainer")
    written = export(dataset, out, choice=ClipChoice(levels=range(4, 6)))
    assert 0 < written.clips < len(kept(dataset))
    assert written.removed == 2 * (len(kept(dataset)) - written.clips)
    assert len(contents(out)) == 2 * written.clips + 1


def test_what_a_user_changed_in_a_configuration_is_not_lost(fitting: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(fitting, out, "diffusion-pipe")
    config, start = out / "config.toml", out / "start.sh"
    ours, mine = config.read_text(), config.read_text().replace("lr = 2e-5", "lr = 1e-4")
    config.write_text(mine)
    again = export(fitting, out, "diffusion-pipe", trigger="w0rd")
    assert again.edits == {"config.toml": "config.toml"}
    assert config.read_text() == mine
    shutil.move(out, tmp_path / "moved")
    moved = export(fitting, tmp_path / "moved", "diffusion-pipe", trigger="w0rd")
    assert moved.edits == {"config.toml": "config.toml.old"}
    assert (tmp_path / "moved" / "config.toml.old").read_text() == mine
    assert (tmp_path / "moved" / "config.toml").read_text() == ours.replace(str(out), str(tmp_path / "moved"))
    assert not export(fitting, tmp_path / "moved", "diffusion-pipe", trigger="w0rd").edits
    assert str(tmp_path / "moved") in (tmp_path / "moved" / start.name).read_text()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a second disk")
def test_on_another_disk_clips_are_copied_once(dataset: Dataset) -> None:
    out = Path("/dev/shm") / f"animegamer-export-{os.getpid()}"
    try:
        export(dataset, out)
        assert {name: content for name, content in contents(out).items() if name.endswith(".mp4")} == {
            f"{clip_id}.mp4": path.read_bytes() for clip_id, path in kept(dataset).items()
        }
        assert export(dataset, out).changed == 0
    finally:
        shutil.rmtree(out, ignore_errors=True)


@pytest.mark.parametrize(("trainer", "caption"), [("diffsynth", "prompt"), ("videox-fun", "text")])
def test_a_table_as_csv_keeps_captions_with_quotes_and_commas(
    fitting: Dataset, tmp_path: Path, trainer: str, caption: str
) -> None:
    sentences = ['Ön "a", b; c', "=1+1", "it's, \\n", "@x"]
    for folder in fitting.folders():
        rows = folder.read("captions", Caption)
        said = [row.model_copy(update={"sentence": sentences[n % 4]}) for n, row in enumerate(rows)]
        folder.write("captions", said)
    out = tmp_path / "out"
    export(fitting, out, trainer, table="csv")
    with (out / "metadata.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    plan = make_plan(fitting, ExportRequest(TRAINERS[trainer], out, table="csv"), STAGE_NAMES)
    assert [row[caption] for row in rows] == [clip.caption for clip in plan.clips]
    assert [row[caption] for row in rows] == list(pandas.read_csv(out / "metadata.csv")[caption])
    assert "metadata.csv" in (out / "start.sh").read_text(encoding="utf-8")


def test_tables_that_a_trainer_does_not_read_and_captions_lost_in_them_are_refused(
    fitting: Dataset, tmp_path: Path
) -> None:
    for trainer, kind, reason in (("videox-fun", "jsonl", "json or csv"), ("ai-toolkit", "csv", "reads no table")):
        with pytest.raises(UserError, match=reason):
            export(fitting, tmp_path / "out", trainer, table=kind)
    for folder in fitting.folders():
        rows = folder.read("captions", Caption)
        folder.write("captions", [row.model_copy(update={"sentence": "None"}) for row in rows])
    with pytest.raises(UserError, match=r"'None'.*--table jsonl"):
        export(fitting, tmp_path / "out", "diffsynth", table="csv")


# --- the hub


def test_the_card_is_valid_for_the_hub(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "hub"
    export(dataset, out, "huggingface")
    card = DatasetCard.load(out / "README.md")
    assert card.data.license == "cc-by-4.0"
    assert card.data.pretty_name == "Two small films"
    [config] = card.data.configs
    assert {entry["split"] for entry in config["data_files"]} == {"train", "val"}
    assert "| `clip_id` | " in card.text  # in code, Markdown shows a backslash as it is


def test_the_card_counts_reviewed_captions(dataset: Dataset, tmp_path: Path) -> None:
    clip_id = next(iter(kept(dataset)))
    [folder] = [folder for folder in dataset.folders() if clip_id.startswith(folder.film_id)]
    folder.write("reviewed", [Reviewed(clip_id=clip_id, fields=("EV",), keep=None, EV="harbour")])
    export(dataset, tmp_path / "hub", "huggingface")
    assert "; 1 confirmed or corrected by a person |" in (tmp_path / "hub/README.md").read_text(encoding="utf-8")


def test_croissant_describes_tables_and_videos(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "hub"
    export(dataset, out, "huggingface")
    described = json.loads((out / "croissant.json").read_text(encoding="utf-8"))
    assert "url" not in described
    videos = {path.relative_to(out) for path in out.rglob("*.mp4")}
    sets = [entry for entry in described["distribution"] if entry["@type"] == "cr:FileSet"]
    assert {path for entry in sets for path in videos if path.match(entry["includes"])} == videos
    assert {entry["encodingFormat"] for entry in sets} == {"video/mp4"}


def test_datasets_reads_all_clips_with_their_captions(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    from datasets import Video, load_dataset

    out = tmp_path / "hub"
    export(dataset, out, "huggingface")
    loaded = load_dataset(str(out), cache_dir=str(tmp_path / "cache")).cast_column("video", Video(decode=False))
    rows = [row for split in loaded.values() for row in split]
    paths = kept(dataset)
    assert {row["clip_id"] for row in rows} == set(paths)
    for row in rows:
        assert Path(row["video"]["path"]).read_bytes() == paths[row["clip_id"]].read_bytes()
        assert row["text"].endswith(".")
        assert row["film"] in {film.name for film in dataset.record.films}


def test_datasets_reads_columns_that_one_split_lacks(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    from datasets import load_dataset

    val = {seen.clip.clip_id for seen in seen_clips(dataset) if seen.split == "val"}
    for folder in dataset.folders():
        looks = [({"banding": 2.0 if row.clip_id in val else None}, row) for row in folder.read("looks", Looks)]
        undecided = {"camera_kind": None, "camera_direction": None}
        motions = [(undecided if row.clip_id in val else {}, row) for row in folder.read("motion", Motion)]
        folder.write("looks", [row.model_copy(update=change) for change, row in looks])
        folder.write("motion", [row.model_copy(update=change) for change, row in motions])
    export(dataset, tmp_path / "hub", "huggingface")
    loaded = load_dataset(str(tmp_path / "hub"), cache_dir=str(tmp_path / "cache"))
    assert {name for split in loaded.values() for name in split.column_names} >= {"camera", "flags", "sharpness"}
    assert "banding" not in loaded["val"].column_names
    assert "banding" not in (tmp_path / "hub" / "croissant.json").read_text(encoding="utf-8")


def test_dialogue_is_quoted_in_captions_and_stands_beside_clips(dataset: Dataset, tmp_path: Path) -> None:
    folder = dataset.folders()[0]
    clip_id = next(clip_id for clip_id in kept(dataset) if clip_id.startswith(folder.film_id))
    start = next(row.start_seconds for row in folder.read("clips", Clip) if row.clip_id == clip_id)
    write_dialogue(
        folder,
        line(start + 0.25, start + 1, 'a "fox" & 宗介!', speaker="Hana"),
        line(start + 1.5, start + 9, "mostly after it"),
    )
    out = tmp_path / "out"
    export(dataset, out)
    assert not list(out.glob("*.vtt"))
    export(dataset, out, dialogue=True, names={"Hana": "h4na"})
    caption = (out / f"{clip_id}.txt").read_text(encoding="utf-8")
    assert caption.endswith(""". h4na says: "a 'fox' & 宗介!"\n""")
    [cue, rest] = parse((out / f"{clip_id}.vtt").read_text(encoding="utf-8"))[0]
    assert (cue.start, cue.end, cue.name, cue.text) == (250, 1000, "Hana", 'a "fox" & 宗介!')
    assert (rest.start, rest.text) == (1500, "mostly after it")
    export(dataset, out)
    assert not list(out.glob("*.vtt"))
    with pytest.raises(UserError, match="--dialogue: tags hold no speech"):
        export(dataset, tmp_path / "tags", dialogue=True, form=CaptionForm.tags)


# --- refusals, before anything is written


def test_clips_that_do_not_fit_name_the_presets(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"16 frames at 8 a second.*4n \+ 1.*--preset wan \(33 at 16\) or hunyuan"):
        export(dataset, tmp_path / "out", "musubi-tuner", form=CaptionForm.instruction)
    with pytest.raises(UserError, match="no chosen clip has a caption as sentence"):
        export(dataset, tmp_path / "out", form=CaptionForm.sentence)
    for folder in dataset.folders():
        size = {"frames": 33, "fps": Fraction(16), "width": 850}
        folder.write("clips", [row.model_copy(update=size) for row in folder.read("clips", Clip)])
    with pytest.raises(UserError, match=r"850x64, .* multiples of 16; give --preset wan"):
        export(dataset, tmp_path / "out", "finetrainers", form=CaptionForm.instruction)
    assert not (tmp_path / "out").exists()


def test_rules_alone_are_no_captions_for_a_trainer(tmp_path: Path) -> None:
    dataset = published(tmp_path / "data")
    with pytest.raises(UserError, match=r"made by rules.*--captions instruction"):
        export(dataset, tmp_path / "out", "musubi-tuner", preset=PRESETS["wan"])
    plan = make_plan(dataset, ExportRequest(TRAINERS["folder"], tmp_path / "out"), STAGE_NAMES)
    assert f"{len(plan.clips)} of {len(plan.clips)} captions come from rules alone" in " ".join(plan.notices)


def test_films_whose_build_has_stopped_are_left_out_and_named(dataset: Dataset, tmp_path: Path) -> None:
    first, second = dataset.folders()
    first.forget_stage("captions")
    request = ExportRequest(TRAINERS["folder"], tmp_path / "out")
    plan = make_plan(dataset, request, STAGE_NAMES)
    assert [folder.film_id for folder in plan.folders] == [second.film_id]
    assert len(plan.clips) == sum(clip_id.startswith(second.film_id) for clip_id in kept(dataset))
    assert [notice for notice in plan.notices if first.film.name in notice]
    rows = second.read("screened", Verdict)
    second.write("screened", [row.model_copy(update={"level": 5}) for row in rows])  # not published since
    with pytest.raises(UserError, match=re.escape(f"{first.film.name}, {second.film.name}; run `animegamer build`")):
        make_plan(dataset, request, STAGE_NAMES)


def test_a_dataset_that_is_not_published_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not published yet"):
        export(make_dataset(tmp_path / "data"), tmp_path / "out")


def test_a_missing_or_changed_clip_file_is_named(dataset: Dataset, tmp_path: Path) -> None:
    path = next(iter(kept(dataset).values()))
    path.write_bytes(b"short")
    with pytest.raises(UserError, match=path.name):
        export(dataset, tmp_path / "out")
    path.unlink()
    with pytest.raises(UserError, match=path.name):
        export(dataset, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_of_others_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(dataset, out)
    other = published(tmp_path / "other", captioner=MODEL)
    for refused, trainer, reason in (
        (dataset.root, "folder", "is a dataset"),
        (dataset.root / "clips", "folder", "inside the dataset"),
        (tmp_path, "folder", "neither empty nor an export"),
        (out, "huggingface", "export for folder"),
        (out / "training" / "new", "folder", "inside the export"),
        (other.root / "new", "folder", "inside the dataset"),
    ):
        with pytest.raises(UserError, match=reason):
            export(dataset, refused, trainer)
    with pytest.raises(UserError, match="another dataset"):
        export(other, out)
    shutil.move(dataset.root, tmp_path / "moved")
    assert export(Dataset(tmp_path / "moved"), out).changed == 0


def test_a_path_that_configurations_cannot_hold_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    for name in ("two\nlines", "[name]", "all*", "what?", "a::b", "${HOME}"):
        with pytest.raises(UserError, match="--out"):
            export(dataset, tmp_path / name)
    assert export(dataset, tmp_path / "a, b & 'c'").clips
