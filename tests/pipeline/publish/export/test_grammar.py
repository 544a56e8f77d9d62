"""Files and commands of every trainer with every preset, checked against the grammar of the trainers' sources."""

from __future__ import annotations

import json
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.core.config import ShardSettings
from pipeline.core.errors import NoRoomError, UserError
from pipeline.core.measurements import ClipSound
from pipeline.core.records import Caption, Clip
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.publish.export.plan import ExportRequest, make_plan
from pipeline.publish.export.run import write_export
from pipeline.publish.export.trainers import PRESETS, TRAINERS, Preset, Trainer
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.datasets.sounds import keep_sound
from tests.support.trainers.grammar import FILES, faults
from tests.support.trainers.start_commands import options_of, started

PAIRS = [(TRAINERS[name], preset) for name in FILES for preset in PRESETS.values()]
LTX2 = PRESETS["ltx2"]
TAKEN = [(trainer, preset) for trainer, preset in PAIRS if preset.name in trainer.presets]


def ids(value: Trainer | Preset) -> str:
    return value.name


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    made = make_dataset(tmp_path / "data", captioner=MODEL)
    write_shards(made, ShardSettings())
    return made


def fitted(dataset: Dataset, preset: Preset) -> Dataset:
    """Return the dataset with clips that count as the preset's and have sentences: nothing is to be cut."""
    size = {"frames": preset.frames, "fps": Fraction(preset.fps), "width": preset.width, "height": preset.height}
    for folder in dataset.folders():
        folder.write("clips", [row.model_copy(update=size) for row in folder.read("clips", Clip)])
        captions = folder.read("captions", Caption)
        folder.write("captions", [row.model_copy(update={"sentence": f'Ön "{row.clip_id}".'}) for row in captions])
    return dataset


def parsed(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".toml":
            return tomllib.loads(text)
        case ".yaml":
            return yaml.safe_load(text)
        case ".json":
            return json.loads(text)
        case _:
            return [json.loads(line) for line in text.splitlines()]


def other_files(out: Path) -> set[str]:
    """Files of an export besides clips, captions, the command and those of this machine."""
    paths = (path for path in out.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(out)) for path in paths if path.suffix not in {".mp4", ".txt", ".sh"}}


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


@pytest.mark.parametrize(("trainer", "preset"), TAKEN, ids=ids)
def test_files_and_command(dataset: Dataset, tmp_path: Path, trainer: Trainer, preset: Preset) -> None:
    out = tmp_path / "an 'odd' \"name\" ü $HOME"
    if preset.spans:
        keep_sound(dataset)
    written = write_export(make_plan(fitted(dataset, preset), ExportRequest(trainer, out, preset=preset), STAGE_NAMES))
    assert other_files(out) == set(FILES[trainer.name])
    files = {name: parsed(out / name) for name in FILES[trainer.name]}
    for name, grammar in FILES[trainer.name].items():
        assert not faults(grammar, files[name])
    commands = [options_of(command) for command in started(out / "start.sh", tmp_path / "scratch")]
    said = [*leaves(files), *(leaf for options in commands for leaf in leaves(vars(options)))]
    paths = [leaf for leaf in said if isinstance(leaf, str) and leaf.startswith(str(tmp_path))]
    assert all(Path(path).is_relative_to(out) for path in paths)
    assert any(Path(path) in {out, out / "videos", out / "metadata.jsonl"} for path in paths)
    assert str(preset.frames) in map(str, said)
    assert len(list((out / "videos").glob("*.mp4"))) == written.clips
    assert len(list((out / "videos").glob("*.txt"))) == (written.clips if trainer.beside else 0)


@pytest.mark.parametrize(("trainer", "preset"), [pair for pair in PAIRS if pair not in TAKEN], ids=ids)
def test_models_that_a_trainer_does_not_train_at_these_frames_are_refused(
    dataset: Dataset, tmp_path: Path, trainer: Trainer, preset: Preset
) -> None:
    with pytest.raises(UserError, match=rf"{preset.name}: .*give --preset {trainer.presets[0]}"):
        make_plan(fitted(dataset, preset), ExportRequest(trainer, tmp_path / "out", preset=preset), STAGE_NAMES)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("preset", [PRESETS[name] for name in TRAINERS["videox-fun"].presets], ids=ids)
def test_weights_for_inpainting_are_trained_as_such(dataset: Dataset, tmp_path: Path, preset: Preset) -> None:
    """VideoX-Fun gives weights named InP their further input channels only in the mode `inpaint`."""
    trainer, out = TRAINERS["videox-fun"], tmp_path / "out"
    write_export(make_plan(fitted(dataset, preset), ExportRequest(trainer, out, preset=preset), STAGE_NAMES))
    [options] = [options_of(command) for command in started(out / "start.sh", tmp_path / "scratch")]
    inpainting = options.pretrained_model_name_or_path.endswith("-InP")
    assert options.train_mode == ("inpaint" if inpainting else "normal")


def test_clips_written_with_their_sound_need_room(dataset: Dataset, tmp_path: Path) -> None:
    keep_sound(dataset)
    request = ExportRequest(TRAINERS["ltx-trainer"], tmp_path / "out", preset=LTX2)
    plan = make_plan(fitted(dataset, LTX2), request, STAGE_NAMES)
    write_export(plan)
    for folder in dataset.folders():
        sounds = [row.model_copy(update={"bytes": 10**15}) for row in folder.read("sound", ClipSound)]
        folder.write("sound", sounds)
    make_plan(dataset, request, STAGE_NAMES)  # all are there: nothing is written
    (request.out / plan.heard[0].file).unlink()
    with pytest.raises(NoRoomError, match=r"out needs \d+\.\d GB, and .* are free; make room$"):
        make_plan(dataset, request, STAGE_NAMES)


@pytest.mark.parametrize("trainer", [TRAINERS["diffsynth"], TRAINERS["ltx-trainer"]], ids=ids)
@pytest.mark.parametrize("with_sound", [1, 0])
def test_sound_is_asked_for_if_it_is_there(dataset: Dataset, tmp_path: Path, trainer: Trainer, with_sound: int) -> None:
    """Without any sound, ltx-trainer would find no clip, and with some, a row without `input_audio` ends DiffSynth."""
    keep_sound(dataset)
    fitted(dataset, LTX2)
    for silent in dataset.folders()[with_sound:]:
        record = silent.stage_record("sound")
        assert record
        silent.write("sound", list[ClipSound]())
        silent.save_stage_record(record.model_copy(update={"files": silent.marks(["sound.parquet"])}))
    out = tmp_path / "out"
    plan = make_plan(dataset, ExportRequest(trainer, out, preset=LTX2), STAGE_NAMES)
    write_export(plan)
    files = {name: parsed(out / name) for name in FILES[trainer.name]}
    films = {clip.seen.clip.film_id for clip in plan.clips}
    assert len(films) == (1 if with_sound and trainer.hears_all else 2)
    assert any("left out: without a sound track" in notice for notice in plan.notices) is (len(films) == 1)
    assert any("leaves out the last frames" in notice for notice in plan.notices) is trainer.holds_last
    said = json.dumps(files) + (out / "start.sh").read_text()
    assert ("audio_latents" in said or said.count("input_audio") >= len(plan.clips)) is bool(with_sound)
    assert "skip-audio" not in said or not with_sound
    assert not [fault for name, grammar in FILES[trainer.name].items() for fault in faults(grammar, files[name])]
    for command in started(out / "start.sh", tmp_path / "scratch"):
        options_of(command)
