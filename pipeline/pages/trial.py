"""Page of a trial of captions: the model's pictures next to its replies, in one HTML file without scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import Picture
from pipeline.captions.questions import view_clip
from pipeline.captions.trial import Trial, TriedClip
from pipeline.core.atomic import replacing
from pipeline.core.records import RecordError
from pipeline.pages.charts import clock
from pipeline.publish.samples import instruction_of

TAGS = ("S", "MD", "EV", "MA", "SC", "ET", "ST", "characters", "others", "actor", "sentence", "flags")


def write_trial(path: Path, trial: Trial, cast: Cast, model: str, figures: Sequence[tuple[str, str]]) -> None:
    """Write the page with the tried clips, the sheets of the cast, and `figures` (names and values) at the top."""
    css = (files("pipeline.pages") / "trial.css").read_text(encoding="utf-8")
    environment = Environment(loader=PackageLoader("pipeline.pages", "."), undefined=StrictUndefined, autoescape=True)
    page = environment.get_template("trial.html.j2").render(
        css=Markup(css),  # noqa: S704 - our own file
        css_hash=base64.b64encode(hashlib.sha256(css.encode()).digest()).decode(),
        title=path.parent.name,
        model=model,
        figures=figures,
        sheets=[_address(sheet) for one in (cast, *cast.films.values()) for sheet in one.sheets],
        clips=list(map(_shown, trial.clips)),
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def _shown(tried: TriedClip) -> dict[str, Any]:
    clip, caption = tried.clip, tried.caption
    try:
        frames = [_address(frame) for frame in view_clip(tried.folder.clip_path(clip.clip_id)).frames]
    except RecordError:
        frames = []
    known = [(name, getattr(caption, name)) for name in TAGS if name != "flags" or caption.flags]
    return {
        "film": tried.folder.film.name,
        "time": f"{clock(clip.start_seconds)}, motion level {tried.level or 'unknown'}",
        "fault": caption.fault,
        "frames": frames,
        "line": instruction_of(caption),
        "tags": [(name, _text(value)) for name, value in known if value is not None],
        "exchanges": tried.exchanges,
    }


def _text(value: object) -> str:
    return (", ".join(value) or "none") if isinstance(value, tuple) else str(value)


def _address(picture: Picture) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}"
