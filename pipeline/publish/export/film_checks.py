"""Checks before clips are cut again: films that are available and fast enough, and clips that stay in their scene."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.errors import UserError
from pipeline.core.records import Clip, Film, Scene
from pipeline.core.store import ClipFormat, FilmFolder
from pipeline.publish.export.trainers import Preset, nominal_rate, pace
from pipeline.remote.objects import is_address
from pipeline.stages.cutting.clip_grid import TOLERANCE_SECONDS


def check_rate(film: Film, preset: Preset) -> None:
    """Raise a UserError if a film has fewer frames per second than the preset."""
    rate = nominal_rate(film)
    if rate < preset.fps:
        raise UserError(
            f"{film.name} has {float(rate):g} frames per second, and --preset {preset.name} needs {preset.fps}; "
            "choose other films with --film, or a slower preset"
        )


def film_notices(film: Film, preset: Preset) -> list[str]:
    """Return remarks on uneven steps, and on pictures smaller than the preset's."""
    notices, steps = [], nominal_rate(film) / preset.fps
    if steps.denominator != 1:
        notices.append(
            f"{film.name}: {float(nominal_rate(film)):g} frames per second are not a multiple of {preset.fps}, so "
            f"steps between frames are {int(steps)} or {int(steps) + 1} film frames"
        )
    if preset.width > film.display_width or preset.height > film.display_height:
        size = f"{film.display_width}x{film.display_height}"
        notices.append(f"{film.name}: {size} is enlarged to {preset.width}x{preset.height}")
    return notices


def length_notices(judged: ClipFormat, cut: ClipFormat) -> list[str]:
    """Return a remark if the cut clips are longer or shorter than the dataset's clips by more than a frame."""
    before, after = judged.frames / judged.fps, cut.frames / cut.fps
    if abs(before - after) <= 1 / judged.fps:
        return []
    return [
        f"the dataset's clips last {float(before):.3g} seconds, the preset's {float(after):.3g} from the same start; "
        "captions and verdicts are for the dataset's clips"
    ]


def inside_scenes(folder: FilmFolder, preset: Preset) -> set[str]:
    """Return the ids of the film's clips whose frames are all in one scene."""
    ends = {scene.scene: scene.end_seconds for scene in folder.read("scenes", Scene)}
    length = (preset.frames - 1) * float(pace(folder.film)) / preset.fps
    length += 2 * TOLERANCE_SECONDS  # of the first frame, from which steps are counted, and of the last
    return {row.clip_id for row in folder.read("clips", Clip) if row.start_seconds + length < ends[row.scene]}


def check_available(film: Film) -> None:
    """Raise a UserError if a film is no longer at its path, or has another size."""
    if is_address(film.source):
        return
    path = Path(film.source)
    if not path.is_file():
        raise UserError(
            f"{film.name} is no longer at {film.source}, and --preset cuts from the film; "
            "put it back, or run `animegamer build` with its new path"
        )
    if path.stat().st_size != film.bytes:
        raise UserError(f"{film.source} is not the film that the dataset was built from; run `animegamer build` again")
