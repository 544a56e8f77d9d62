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


def mean_rows(frames: Sequence[Embeddings]) -> Embeddings:
    """One row per clip: the mean of its frames, at unit length."""
    means_TD = np.stack([frames_FD.mean(axis=0) for frames_FD in frames])
    return np.asarray(means_TD / np.linalg.norm(means_TD, axis=1, keepdims=True), np.float32)


def style_values(panels: Sequence[Panel], appearance_TD: Embeddings) -> list[Values]:
    """Similarity of each turn after the first ones to the nearest of them; turns may be missing from a game."""
    first = [place for place, panel in enumerate(panels) if panel.turn <= FIRST_TURNS]
    if not first:
        return [{} for _ in panels]
    similar_TF = appearance_TD @ appearance_TD[first].T
    return [{} if place in first else {"style": float(similar_TF[place].max())} for place in range(len(panels))]


def place_values(panels: Sequence[Panel], rows_TD: Embeddings) -> list[Values]:
    """Similarity on each return to a place to the place's last turn, beside that to turns elsewhere.

    A return is a turn at a place that was left: the turn before is elsewhere, and an earlier one is there. Turns may be
    missing from a game; those since the last one there are counted by their numbers.
    """
    places = [panel.EV.casefold() if panel.EV else None for panel in panels]
    turns = [panel.turn for panel in panels]
    return [_return_values(now, places[: now + 1], turns, rows_TD) for now in range(len(panels))]


def _return_values(now: int, places: Sequence[str | None], turns: Sequence[int], rows_TD: Embeddings) -> Values:
    place = places[now]
    here = [before for before in range(now) if places[before] == place]
    elsewhere = [before for before in range(now) if places[before] not in (place, None)]
    if place is None or not here or now - 1 not in elsewhere:
        return {}
    similar_T = rows_TD[:now] @ rows_TD[now]
    last, others = float(similar_T[here[-1]]), similar_T[elsewhere]
    kept, turns_since = float(last > others.max()), turns[now] - turns[here[-1]]
    [end] = [end for end, (least, most) in RETURNS.items() if least <= turns_since <= most]
    return {"place_kept": kept, f"place_kept_{end}": kept, "place_memory": last - float(others.mean())}
