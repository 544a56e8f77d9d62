"""Consistency of a data set: one way of cutting clips, one optical flow, one set of level edges, and one captioner.

A build may name some films of a data set and leave the others unchanged, or be interrupted before it reaches all of its
films. Films with different settings are rejected, because a reader could not tell their levels and captions apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pipeline.core.config import ClipSettings
from pipeline.core.errors import UserError
from pipeline.core.stage import Stage
from pipeline.core.store import FilmFolder
from pipeline.stages.motion_levels import Edges

Ingredients = Mapping[str, Any]


def _clips(made_from: Ingredients) -> str:
    clips = made_from["clips"]
    placing = clips.get("placing", ClipSettings().placing)
    return (
        f"{clips['frames']} frames at {clips['fps']} per second, one every {clips['seconds']:g} s by {placing}, "
        f"{clips['width']}x{clips['height']} by {clips['fit']}"
    )


def _optical_flow(made_from: Ingredients) -> str:
    motion = made_from["motion"]
    weights = f":{motion['weights'][:8]}" if "weights" in motion else ""
    return f"{motion['model']}{weights} at scale {motion['scale']:g}, background below {motion['background_px']:g} px"


def _edges(made_from: Ingredients) -> str:
    return ", ".join(f"{edge:g}" for edge in made_from["edges"]) + " px"


def _captioner(made_from: Ingredients) -> str:
    return str(made_from.get("model", made_from["captioner"]))


SHARED: dict[str, tuple[str, Callable[[Ingredients], str]]] = {
    "cut": ("clips", _clips),
    "motion": ("optical flow", _optical_flow),
    "screened": ("level edges", _edges),
    "captions": ("captioner", _captioner),
}


def refuse_to_join(others: Iterable[FilmFolder], stages: Sequence[Stage]) -> None:
    """Compare a build's stages with the ingredients of the films that it leaves unchanged.

    Raises:
        UserError: they differ in a setting that all films of a data set share.
    """
    wanted = {stage.name: SHARED[stage.name][1](stage.ingredients()) for stage in stages if stage.name in SHARED}
    for folder in others:
        for name, here in wanted.items():
            setting, describe = SHARED[name]
            record = folder.stage_record(name)
            if record and (there := describe(record.ingredients)) != here:
                raise UserError(
                    f"the {setting} of {folder.film.name}, which this build leaves as it is: {there}; of this build: "
                    f"{here}. One data set never mixes two: name all its films in one build, or choose another --out"
                )


def refuse_to_publish(folders: Iterable[FilmFolder], edges: Edges) -> None:
    """Compare the films to publish with each other, and their levels with the edges in `dataset.json`.

    Raises:
        UserError: they differ in a setting that all films of a data set share.
    """
    kinds: dict[str, dict[str, str]] = {name: {} for name in SHARED}
    kinds["screened"][_edges({"edges": edges})] = "dataset.json"
    for folder in folders:
        for name, (_, describe) in SHARED.items():
            if record := folder.stage_record(name):
                kinds[name].setdefault(describe(record.ingredients), folder.film.name)
    for name, found in kinds.items():
        if len(found) > 1:
            each = "; ".join(f"{kind} ({where})" for kind, where in found.items())
            raise UserError(
                f"{SHARED[name][0]} of several kinds: {each}. One data set never mixes two: build all its films again "
                "together, with the settings you want; what is published stays as it was"
            )
