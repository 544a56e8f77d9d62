"""Metrics of a turn beside the turns before it: style, and memory of places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.evaluation.benchmark import Panel
from training.evaluation.metrics.catalogue import RETURNS
from training.evaluation.metrics.networks import Embeddings
from training.evaluation.metrics.turn_metrics import Values

FIRST_TURNS = 3
"""Turns of a game whose style later ones are compared with."""


def mean_looks(frames: Sequence[Embeddings]) -> Embeddings:
    """One row per clip: the mean of its frames, at unit length."""
    means_TD = np.stack([frames_FD.mean(axis=0) for frames_FD in frames])
    return np.asarray(means_TD / np.linalg.norm(means_TD, axis=1, keepdims=True), np.float32)


def style_values(looks_TD: Embeddings) -> list[Values]:
    """Similarity of each turn after the first ones to the nearest of them."""
    first_FD = looks_TD[:FIRST_TURNS]
    later = [{"style": float(np.max(first_FD @ look_D))} for look_D in looks_TD[FIRST_TURNS:]]
    return [{} for _ in first_FD] + later


def place_values(panels: Sequence[Panel], looks_TD: Embeddings) -> list[Values]:
    """Similarity on each return to a place to the place's last turn, beside that to turns elsewhere.

    A return is a turn at a place that was left: the turn before is elsewhere, and an earlier one is there.
    """
    places = [panel.EV.casefold() if panel.EV else None for panel in panels]
    return [_return_values(turn, places[: turn + 1], looks_TD) for turn in range(len(panels))]


def _return_values(turn: int, places: Sequence[str | None], looks_TD: Embeddings) -> Values:
    place = places[turn]
    here = [before for before in range(turn) if places[before] == place]
    elsewhere = [before for before in range(turn) if places[before] not in (place, None)]
    if place is None or not here or turn - 1 not in elsewhere:
        return {}
    similar_T = looks_TD[:turn] @ looks_TD[turn]
    last, others = float(similar_T[here[-1]]), similar_T[elsewhere]
    kept, turns_since = float(last > others.max()), turn - here[-1]
    [end] = [end for end, (least, most) in RETURNS.items() if least <= turns_since <= most]
    return {"place_kept": kept, f"place_kept_{end}": kept, "place_memory": last - float(others.mean())}
