"""Spans of several clips: their choice, their captions, and the files cut from a real film with sound."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from examples.world.barcode import read_barcode
from pipeline.core.config import ShardSettings, checked
from pipeline.core.dialogue import SpokenLine
from pipeline.core.errors import UserError
from pipeline.core.records import AudioTrack, Caption, Clip, Scene
from pipeline.core.store import Dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.request import BuildRequest
from pipeline.publish.export.captions import CaptionForm, CaptionStyle
from pipeline.publish.export.clips import ClipForm, ExportClip, choose_spans
from pipeline.publish.export.plan import ExportRequest, make_plan
from pipeline.publish.export.run import write_export
from pipeline.publish.export.trainers import PRESETS, TRAINERS
from pipeline.publish.seen_clips import seen_clips
from pipeline.publish.shards import write_shards
from pipeline.video.clip_files import read_clip
from pipeline.video.sound_files import SAMPLE_RATE, read_sound
from tests.support.datasets.built_dataset import SMALL, build_here
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.media.beeping_films import add_sound, beeps, beeps_in
from tests.support.media.films import make_film

LTX2 = PRESETS["ltx2"]
SPAN_SECONDS = 121 / 24


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """A film of two scenes with eight clips each, of which 3 and 7 are dropped."""
    made = make_dataset(tmp_path / "data", films=1, scenes=2, clips=8, captioner=MODEL)
    write_shards(made, ShardSettings())
    return made


def chosen(dataset: Dataset, *without: int) -> list[list[int]]:
    """Return the indices of the clips of each span, if these clips are not chosen either."""
    [folder] = dataset.folders()
    kept = [seen for seen in seen_clips(dataset) if seen.fate == "kept" and seen.clip.index not in without]
    return [[seen.clip.index for seen in span.clips] for span in choose_spans(folder, kept, LTX2)]


def exported(dataset: Dataset, form: CaptionForm = CaptionForm.instruction) -> tuple[tuple[ExportClip, ...], list[str]]:
    kept = [seen for seen in seen_clips(dataset) if seen.fate == "kept"]
    return ClipForm(TRAINERS["folder"], CaptionStyle(form), LTX2, dialogue=True).clips(dataset, kept)


def edit(dataset: Dataset, changes: dict[int, dict[str, object]]) -> None:
    """Change captions, by the index of the clip."""
    [folder] = dataset.folders()
    index = {clip.clip_id: clip.index for clip in folder.read("clips", Clip)}
    rows = [row.model_copy(update=changes.get(index[row.clip_id], {})) for row in folder.read("captions", Caption)]
    folder.write("captions", rows)


def test_spans_lie_in_one_scene_and_cover_only_chosen_clips(dataset: Dataset) -> None:
    assert chosen(dataset) == [[0, 1, 2], [4, 5, 6], [8, 9, 10], [11, 12, 13]]
    assert chosen(dataset, 1) == [[4, 5, 6], [8, 9, 10], [11, 12, 13]]
    assert chosen(dataset, 8) == [[0, 1, 2], [4, 5, 6], [9, 10, 11], [12, 13, 14]]
    [folder] = dataset.folders()
    ends = {scene.scene: scene.end_seconds for scene in folder.read("scenes", Scene)}
    kept = [seen for seen in seen_clips(dataset) if seen.fate == "kept"]
    spans = list(choose_spans(folder, kept, LTX2))
    assert all(span.end_seconds <= ends[span.clips[0].clip.scene] for span in spans)
    assert all(before.end_seconds <= after.start_seconds for before, after in pairwise(spans))
    assert all(span.end_seconds - span.start_seconds == pytest.approx(SPAN_SECONDS) for span in spans)


def test_a_dropped_clip_that_reaches_back_into_a_span_forbids_it(dataset: Dataset) -> None:
    [folder] = dataset.folders()
    clips = folder.read("clips", Clip)
    moved = [row.model_copy(update={"end_seconds": row.end_seconds + 0.1}) if row.index == 3 else row for row in clips]
    folder.write("clips", moved)
    assert chosen(dataset)[1] == [8, 9, 10]  # the clip 4 begins inside the dropped 3


def test_the_caption_of_a_span_is_joined_without_repeating_itself(dataset: Dataset) -> None:
    same = {"characters": ("Ponyo",), "actor": "Ponyo", "MD": "run", "MA": None, "EV": "beach"}
    edit(dataset, {0: same | {"sentence": "Ponyo runs."}, 1: same | {"sentence": "Ponyo runs."}})
    edit(dataset, {2: same | {"MD": "jump", "sentence": "Ponyo jumps."}})
    found = {form: exported(dataset, form)[0][0].caption for form in (CaptionForm.instruction, CaptionForm.tags)}
    assert found == {
        CaptionForm.instruction: "Character: Ponyo; Motion: run; Background: beach. Motion: jump.",
        CaptionForm.tags: "Ponyo, run, beach, jump",
    }
    clips, notices = exported(dataset, CaptionForm.sentence)
    assert [clip.caption for clip in clips] == ["Ponyo runs. Ponyo jumps."]
    assert "3 spans left out: captions cover less than half of each" in notices


def test_a_span_half_without_a_caption_is_left_out_and_the_coverage_is_said(dataset: Dataset) -> None:
    fault = {"fault": "no usable reply"}
    edit(dataset, {4: fault, 5: fault, 9: fault})
    clips, notices = exported(dataset)
    assert [clip.seen.clip.index for clip in clips] == [0, 8, 11]
    assert notices[:3] == [
        "3 spans of 5.04 seconds: captions cover 87% on average, 60% at least",
        "1 span left out: captions cover less than half of each",
        "2 of 14 clips are in no span: the scene is too short, or the next clips are dropped or not chosen",
    ]
    edit(dataset, dict.fromkeys(range(16), fault))
    with pytest.raises(UserError, match="no chosen clip has a caption as instruction"):
        exported(dataset)


def test_dialogue_is_that_of_the_span(dataset: Dataset) -> None:
    [folder] = dataset.folders()
    lines = [
        SpokenLine(start_seconds=start, end_seconds=start + 1, text=text, speaker="Ponyo", language="ja")
        for start, text in ((1.6, "宗介!"), (4.4, "come"), (6, "no"))
    ]
    track = {"source": ".ja.ass", "codec": "ass", "language": "ja", "title": None, "remark": None, "lines": 3}
    folder.write("subtitles", [folder_track(track)])
    folder.write("dialogue", lines)
    first = exported(dataset)[0][0]
    assert first.caption.endswith('. Ponyo says: "宗介!" Ponyo says: "come"')
    assert first.said
    assert [line.start_seconds for line in first.said] == pytest.approx([1.517, 4.317], abs=1e-3)


def folder_track(facts: dict[str, object]) -> object:
    from pipeline.core.dialogue import SubtitleTrack

    return SubtitleTrack.model_validate(facts | {"chosen": True})


def test_too_short_scenes_and_the_hub_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    short = make_dataset(tmp_path / "short", captioner=MODEL)
    write_shards(short, ShardSettings())
    request = ExportRequest(TRAINERS["ltx-trainer"], tmp_path / "out", preset=LTX2, form=CaptionForm.instruction)
    with pytest.raises(UserError, match="no scene has 121 frames at 24 a second of chosen clips"):
        make_plan(short, request, STAGE_NAMES)
    with pytest.raises(UserError, match=r"ltx2: the hub's table describes single clips; use --for folder"):
        make_plan(dataset, ExportRequest(TRAINERS["huggingface"], tmp_path / "hub", preset=LTX2), STAGE_NAMES)
    with pytest.raises(UserError, match="no longer at"):
        make_plan(dataset, request, STAGE_NAMES)


def test_trainers_that_need_sound_get_the_films_that_have_it(tmp_path: Path) -> None:
    made = make_dataset(tmp_path / "data", scenes=1, clips=4, captioner=MODEL)
    write_shards(made, ShardSettings())
    for number, folder in enumerate(made.folders()):
        film = tmp_path / f"{number}.mkv"
        film.write_bytes(bytes(100))
        tracks = (AudioTrack(codec="aac", language=None, sample_rate=48_000, channels=2),) if number else ()
        folder.save_film(folder.film.model_copy(update={"source": str(film), "bytes": 100, "audio_tracks": tracks}))
    counts = {}
    for trainer in ("folder", "diffusion-pipe", "ltx-trainer", "diffsynth"):
        preset = PRESETS["h3" if trainer == "diffusion-pipe" else "ltx2"]
        request = ExportRequest(TRAINERS[trainer], tmp_path / trainer, preset=preset, form=CaptionForm.instruction)
        plan = make_plan(made, request, STAGE_NAMES)
        counts[trainer] = len(plan.clips), len(plan.heard)
    assert counts == {"folder": (2, 1), "diffusion-pipe": (2, 1), "ltx-trainer": (1, 1), "diffsynth": (2, 1)}


@pytest.mark.slow
def test_spans_are_cut_from_the_film_with_its_sound(tmp_path: Path) -> None:
    silent = make_film(tmp_path / "silent.mp4", frames=400, scenes=[0, 250])
    film = add_sound(silent, tmp_path / "film.mp4", [(beeps(9, [0.5 + number for number in range(9)]), 0)])
    data, out = Dataset(tmp_path / "data"), tmp_path / "out"
    build_here(BuildRequest(films=(film,), out=data.root, config=checked(SMALL, "test")))
    request = ExportRequest(TRAINERS["ltx-trainer"], out, preset=LTX2, form=CaptionForm.instruction)
    plan = make_plan(data, request, STAGE_NAMES)
    written = write_export(plan)
    assert written.clips == len(plan.clips) >= 2
    ends = {row.scene: row.end_frame for row in data.folders()[0].read("scenes", Scene)}
    for clip in plan.clips:
        shown = [read_barcode(picture) for picture in read_clip(out / clip.file)]
        assert shown == list(range(shown[0], shown[0] + 121))
        assert shown[-1] < ends[clip.seen.clip.scene]
        samples_CT = read_sound(out / clip.file)
        assert samples_CT.shape == (2, 121 * SAMPLE_RATE // 24)
        expected = [beep - shown[0] / 24 for beep in (0.5 + number for number in range(9))]
        assert beeps_in(samples_CT) == pytest.approx([at for at in expected if 0 < at < 5], abs=0.01)
    rows = [json.loads(line) for line in (out / "metadata.jsonl").read_text().splitlines()]
    assert rows == [{"caption": clip.caption, "video": clip.file} for clip in plan.clips]
    assert write_export(make_plan(data, request, STAGE_NAMES)).changed == 0
