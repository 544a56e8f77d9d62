"""Remarks on the clips of a film, which are no failure: that it has none, or that much of its pictures is cut off."""

from __future__ import annotations

from pipeline.core.config import ClipSettings
from pipeline.core.records import Clip, Crop, Scene
from pipeline.core.store import FilmFolder
from pipeline.stages.clip_grid import HELD_SECONDS, span_seconds
from pipeline.video.scaling import Geometry

LEAST_SHOWN = 2 / 3
"""Share of a side of the picture below which what is cut off deserves a remark."""


def film_remarks(folder: FilmFolder, settings: ClipSettings) -> list[str]:
    """Return the remarks on a film, as its last cut left it; none before the stage `cut`.

    Raises:
        StoreError: a table cannot be read.
    """
    remarks = (why_no_clip(folder, settings), _cut_off(folder, settings))
    return [remark for remark in remarks if remark]


def why_no_clip(folder: FilmFolder, settings: ClipSettings) -> str | None:
    """Return the reason for which no clip was cut from a film; None if one was, or before the stage `cut`.

    Raises:
        StoreError: a table cannot be read.
    """
    scenes = folder.read_if_made("scenes", Scene)
    if not folder.stage_record("cut") or folder.read_if_made("clips", Clip):
        return None
    if not scenes:
        return "no clip: no frame of the film could be used"
    film, clip_seconds = folder.film, span_seconds(settings)
    # the mean rate of a variable one says nothing about the length of the margins
    margins = 0.0 if film.variable_rate else 2 * settings.margin_frames / float(film.fps)
    longest = max(scene.end_seconds - scene.start_seconds for scene in scenes)
    if longest < clip_seconds + margins:
        what = f"no scene is as long as a clip with its margins ({clip_seconds + margins:.3g} s)"
    else:
        held = f"frames held longer than {HELD_SECONDS} s"
        what = f"no scene has {clip_seconds:.3g} s between its margins, transitions and {held}"
    return f"no clip: {what}; the longest lasts {longest:.3g} s"


def _cut_off(folder: FilmFolder, settings: ClipSettings) -> str | None:
    crops = folder.read_if_made("crop", Crop)
    if not folder.stage_record("cut") or not crops:
        return None
    geometry = Geometry.of(folder.film, crops[0])
    width, height = geometry.shown(settings.width, settings.height, settings.fit)
    if min(width, height) >= LEAST_SHOWN:
        return None
    kind = "vertical film: " if geometry.width * geometry.pixel_aspect < geometry.height else ""
    side = "width" if width < height else "height"
    return f'{kind}clips show {100 * min(width, height):.0f} % of its {side}; `fit = "fit"` in [clips] shows all of it'
