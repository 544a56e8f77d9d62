"""Checks of films: built to the end; before clips are cut, at hand, fast enough, and which clips stay in a scene."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.core.errors import UserError
from pipeline.core.records import Clip, Film, Scene, Verdict
from pipeline.core.stage import is_whole
from pipeline.core.store import ClipFormat, FilmFolder
from pipeline.publish.export.presets import Preset, nominal_rate, pace
from pipeline.remote.objects import is_address
from pipeline.stages.clip_grid import TOLERANCE_SECONDS


def is_finished(folder: FilmFolder, stages: Sequence[str]) -> bool:
    """Return True if the captions and verdicts of a film are of its clips: no build has stopped on it.

    The ids alone do not tell: a clip of another length has the id of an earlier one that began at the same time.

    Args:
        folder: of the film.
        stages: names of all stages of a film.

    Raises:
        StoreError: a table cannot be read.
    """
    if not is_whole(folder, stages):
        return False
    screened, final = (
        {row.clip_id: row.level for row in folder.read_if_made(table, Verdict)} for table in ("screened", "verdicts")
    )
    return screened == final  # publishing takes clips and levels from the screening


def check_rate(film: Film, preset: Preset) -> None:
    """Refuse a film with fewer frames a second than the preset.

    Raises:
        UserError: it is such a film.
    """
    rate = nominal_rate(film)
    if rate < preset.fps:
        raise UserError(
            f"{film.name} has {float(rate):g} frames a second, and --preset {preset.name} needs {preset.fps}: "
            "frames would be repeated; choose other films with --film, or a slower preset"
        )


def film_notices(film: Film, preset: Preset) -> list[str]:
    """Return remarks on steps that are not even, and on pictures smaller than the preset's."""
    notices, steps = [], nominal_rate(film) / preset.fps
    if steps.denominator != 1:
        notices.append(
            f"{film.name}: {float(nominal_rate(film)):g} frames a second are no multiple of {preset.fps}, so that "
            f"steps between frames are {int(steps)} or {int(steps) + 1} film frames"
        )
    if preset.width > film.display_width or preset.height > film.display_height:
        size = f"{film.display_width}x{film.display_height}"
        notices.append(f"{film.name}: {size} is enlarged to {preset.width}x{preset.height}")
    return notices


def length_notices(judged: ClipFormat, cut: ClipFormat) -> list[str]:
    """Return a remark on clips that are cut longer or shorter than those of the data set, if by more than a frame."""
    before, after = judged.frames / judged.fps, cut.frames / cut.fps
    if abs(before - after) <= 1 / judged.fps:
        return []
    return [
        f"the clips of the data set last {float(before):.3g} seconds and those of the preset {float(after):.3g}, from "
        "the same start: captions and verdicts are of the former"
    ]


def inside_scenes(folder: FilmFolder, preset: Preset) -> set[str]:
    """Return the ids of the film's clips whose frames are all in one scene."""
    ends = {scene.scene: scene.end_seconds for scene in folder.read("scenes", Scene)}
    length = (preset.frames - 1) * float(pace(folder.film)) / preset.fps
    length += 2 * TOLERANCE_SECONDS  # of the first frame, from which steps are counted, and of the last
    return {row.clip_id for row in folder.read("clips", Clip) if row.start_seconds + length < ends[row.scene]}


def check_at_hand(film: Film) -> None:
    """Refuse a film that is no longer where the data set found it.

    Raises:
        UserError: it is gone, or has another size.
    """
    if is_address(film.source):
        return
    path = Path(film.source)
    if not path.is_file():
        raise UserError(
            f"{film.name} is no longer at {film.source}, and --preset cuts from the film; "
            "put it back, or run `animegamer build` with its new place"
        )
    if path.stat().st_size != film.bytes:
        raise UserError(
            f"{film.source}: is not the film that the data set was built from; run `animegamer build` again"
        )
