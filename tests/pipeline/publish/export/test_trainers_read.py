"""Exports read by the trainers' own loaders, in environments of their own: all clips, all frames in order, captions.

Nightly: the environments take 18 GB. What they prove is that the written grammar (`test_grammar.py`) is the trainers'.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from examples.world.barcode import read_barcode
from pipeline.core.config import checked
from pipeline.core.store import Dataset, open_dataset
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.request import BuildRequest
from pipeline.publish.export.captions import CaptionForm
from pipeline.publish.export.plan import ExportRequest, make_plan
from pipeline.publish.export.run import write_export
from pipeline.publish.export.trainers import PRESETS, TRAINERS
from pipeline.video.clip_files import read_clip
from pipeline.video.sound_files import SAMPLE_RATE
from tests.support.datasets.built_dataset import SMALL, build_here, copy_of_built
from tests.support.media.beeping_films import add_sound, beeps, beeps_in
from tests.support.media.films import make_film
from tests.support.trainers.environments import CROISSANT, DIFFSYNTH, FINETRAINERS, SIMPLETUNER, WEBSHART, run_script

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
WAN = PRESETS["wan"]
AT = tuple(0.5 + number for number in range(9))
"""Times of the beeps of a film, in seconds."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return open_dataset(copy_of_built(tmp_path_factory.mktemp("built"))[1])


def exported(dataset: Dataset, out: Path, trainer: str) -> dict[str, list[int]]:
    """Export for Wan; return the numbers of the film frames in each clip, by its file."""
    request = ExportRequest(TRAINERS[trainer], out, preset=WAN, form=CaptionForm.instruction)
    plan = make_plan(dataset, request, STAGE_NAMES)
    written = write_export(plan)
    assert written.clips == len(plan.clips) > 1
    return {clip.file: [read_barcode(picture) for picture in read_clip(out / clip.file)] for clip in plan.clips}


def read(result: Path) -> tuple[list[str], list[list[int]]]:
    """Captions and frame numbers, by barcode, as a trainer loaded them."""
    with np.load(result) as loaded:
        frames = loaded["frames_NTHWC"]
        assert frames.shape[1:] == (WAN.frames, WAN.height, WAN.width, 3)
        numbers = [[read_barcode(picture_HWC[:, :, ::-1]) for picture_HWC in clip_THWC] for clip_THWC in frames]
        return [str(caption) for caption in loaded["captions"]], numbers


def captions_of(dataset: Dataset) -> list[str]:
    request = ExportRequest(TRAINERS["folder"], Path("unused"), form=CaptionForm.instruction)
    return [clip.caption for clip in make_plan(dataset, request, STAGE_NAMES).clips]


@pytest.mark.parametrize(
    ("trainer", "environment", "format"),
    [
        ("diffsynth", DIFFSYNTH, (WAN.frames, WAN.height, WAN.width)),
        ("finetrainers", FINETRAINERS, ()),
        ("simpletuner", SIMPLETUNER, ()),
    ],
)
def test_a_loader_reads_all_clips(
    dataset: Dataset, tmp_path: Path, trainer: str, environment: tuple[str, ...], format: tuple[int, ...]
) -> None:
    out, result = tmp_path / "out", tmp_path / "loaded.npz"
    written = exported(dataset, out, trainer)
    run_script(environment, f"read_with_{trainer}.py", out, *format, result)
    captions, numbers = read(result)
    assert numbers == list(written.values())
    assert captions == captions_of(dataset)
    assert all(later > earlier for clip in numbers for earlier, later in pairwise(clip))


def test_diffsynth_reads_spans_for_ltx2(tmp_path: Path) -> None:
    """All 121 frames in order, and the sound of those frames, to the sample."""
    silent = make_film(tmp_path / "silent.mp4", frames=400, scenes=[0, 250])
    film = add_sound(silent, tmp_path / "film.mp4", [(beeps(9, AT), 0)])
    data, out, result = Dataset(tmp_path / "data"), tmp_path / "out", tmp_path / "loaded.npz"
    build_here(BuildRequest(films=(film,), out=data.root, config=checked(SMALL, "test")))
    ltx2 = PRESETS["ltx2"]
    request = ExportRequest(TRAINERS["diffsynth"], out, preset=ltx2, form=CaptionForm.instruction)
    plan = make_plan(data, request, STAGE_NAMES)
    write_export(plan)
    run_script(DIFFSYNTH, "read_with_diffsynth.py", out, ltx2.frames, ltx2.height, ltx2.width, result)
    with np.load(result) as loaded:
        assert list(loaded["captions"]) == [clip.caption for clip in plan.clips]
        assert list(loaded["rates"]) == [SAMPLE_RATE] * len(plan.clips)
        assert len(loaded["frames_NTHWC"]) == len(plan.clips) >= 2
        for clip_THWC, sound_CT in zip(loaded["frames_NTHWC"], loaded["sounds_NCT"], strict=True):
            numbers = [read_barcode(picture_HWC[:, :, ::-1]) for picture_HWC in clip_THWC]
            assert numbers == list(range(numbers[0], numbers[0] + ltx2.frames))
            assert sound_CT.shape == (2, ltx2.frames * SAMPLE_RATE // ltx2.fps)
            heard = [beep - numbers[0] / 24 for beep in AT]
            assert beeps_in(sound_CT) == pytest.approx([at for at in heard if 0 < at < 5], abs=0.01)


def test_webshart_reads_the_shards_of_a_dataset(dataset: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "members"
    folder.mkdir()
    for split in ("train", "val"):
        if any((dataset.root / "shards" / split).glob("*.tar")):
            index = tmp_path / f"index-{split}"
            run_script(WEBSHART, "read_with_webshart.py", dataset.root / "shards" / split, index, folder)
    request = ExportRequest(TRAINERS["folder"], tmp_path / "out")
    clips = make_plan(dataset, request, STAGE_NAMES).clips
    assert {path.stem for path in folder.glob("*.mp4")} == {clip.seen.clip.clip_id for clip in clips}
    for clip in clips:
        assert (folder / clip.file).read_bytes() == clip.source.read_bytes()
        assert (folder / clip.file).with_suffix(".txt").read_text(encoding="utf-8") == clip.seen.text


def test_croissant(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "hub"
    plan = make_plan(dataset, ExportRequest(TRAINERS["huggingface"], out), STAGE_NAMES)
    write_export(plan)
    for split in {str(clip.seen.split) for clip in plan.clips}:
        rows = json.loads(run_script(CROISSANT, "read_with_croissant.py", out / "croissant.json", split))
        expected = [clip for clip in plan.clips if clip.seen.split == split]
        assert [row["clip_id"] for row in rows] == [clip.seen.clip.clip_id for clip in expected]
        assert [row["text"] for row in rows] == [clip.caption for clip in expected]
