"""Films cut in this process, and checks of the result: scenes, damage, clip files, barcodes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from examples.world.barcode import read_barcode
from pipeline.core.config import ClipSettings, SceneSettings
from pipeline.core.progress import silent
from pipeline.core.records import Clip, Crop, Film
from pipeline.core.store import FilmFolder, StageRecord
from pipeline.stages.cutting.film_cutter import CutJob, CutResult, cut_film
from pipeline.video.clip_files import read_clip
from tests.support import records
from tests.support.media.films import planned

TOLERANCE = Fraction(43, 10_000)


def folder_of(tmp_path: Path, path: Path) -> FilmFolder:
    """Film folder as probe and crop leave it, nothing cropped."""
    folder = planned(tmp_path, path)
    film = folder.film
    turned = film.rotation_degrees in (90, 270)
    width, height = (film.height, film.width) if turned else (film.width, film.height)
    crop = records.crop(film.film_id, width=width, height=height)
    folder.write("crop", [crop])
    folder.save_stage_record(StageRecord(stage="crop", fingerprint="by hand", ingredients={}, files={}))
    return folder


def job_of(folder: FilmFolder, clips: ClipSettings | None = None, end_seconds: float | None = None) -> CutJob:
    crops = tuple(folder.read("crop", Crop))
    return CutJob(folder.film, crops, folder.path, end_seconds, SceneSettings(), clips or ClipSettings(), threads=0)


def cut(tmp_path: Path, path: Path, clips: ClipSettings | None = None) -> tuple[FilmFolder, CutResult]:
    """Cut a film in this process, check the properties common to all films and return the result."""
    folder = folder_of(tmp_path, path)
    result = cut_film(job_of(folder, clips), silent)
    check_tiling(result, folder.film)
    check_files(folder, result)
    return folder, result


def check_tiling(result: CutResult, film: Film) -> None:
    """Check that scenes and damage tile the film from 0 to its end and that clips lie inside scenes."""
    tiles = sorted((tile.start_seconds, tile.end_seconds) for tile in [*result.scenes, *result.damage])
    assert tiles[0][0] == 0
    assert [start for start, _ in tiles[1:]] == [end for _, end in tiles[:-1]]
    assert tiles[-1][1] == pytest.approx(film.duration_seconds, abs=float(1 / film.fps))
    assert [scene.scene for scene in result.scenes] == list(range(len(result.scenes)))
    assert [clip.index for clip in result.clips] == list(range(len(result.clips)))
    for clip in result.clips:
        scene = result.scenes[clip.scene]
        assert scene.start_seconds <= clip.start_seconds
        assert clip.end_seconds <= scene.end_seconds + 0.005
        assert scene.start_frame <= clip.source_frames[0]
        assert clip.source_frames[-1] < scene.end_frame


def check_files(folder: FilmFolder, result: CutResult) -> None:
    for clip in result.clips:
        content = folder.clip_path(clip.clip_id).read_bytes()
        assert (clip.bytes, clip.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def barcodes(folder: FilmFolder, clip: Clip) -> list[int]:
    frames_THWC = read_clip(folder.clip_path(clip.clip_id))
    assert frames_THWC.shape == (clip.frames, clip.height, clip.width, 3)
    return [read_barcode(picture) for picture in frames_THWC]


def expected(times: Sequence[Fraction], scenes: Sequence[int], frames: int) -> list[list[int]]:
    """Numbers shown by the clips of a film, for a margin of 2 frames; the last time is the film's end."""
    clips = []
    for first, beyond in zip(scenes, [*scenes[1:], len(times) - 1], strict=True):
        clean = times[first + 2 : beyond - 2]
        clips += [[first + 2 + at for at in clip] for clip in on_grid(clean, times[beyond - 2], frames)]
    return clips


def on_grid(times: Sequence[Fraction], end: Fraction, frames: int) -> list[list[int]]:
    """Clips of clean frames at `times`, the first unclean moment being `end`: the rule restated for 8 fps and 2 s."""
    clips: list[list[int]] = []
    for start in (times[0] + 2 * number for number in range(1000)):
        moments = [start + Fraction(at, 8) for at in range(frames)]
        if end + TOLERANCE < start + 2 or end <= moments[-1] + TOLERANCE:
            return clips
        clips.append([max(at for at, time in enumerate(times) if time <= moment + TOLERANCE) for moment in moments])
    raise AssertionError("a scene without an end")
