"""Metrics of turns: characters, words, truth, motion, state, cost, and style and places compared with earlier turns.

Every function returns values by the name of their metric, without unknown values. Definitions are in
docs/evaluation.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.stages.motion_levels import level_of
from training.evaluation.benchmark import Panel
from training.evaluation.metrics.appearance import COPY_BITS, different_bits
from training.evaluation.metrics.catalogue import RETURNS
from training.evaluation.metrics.networks import Embeddings, Picture
from training.evaluation.played import PlayedTurn

Values = dict[str, float]
FIRST_TURNS = 3
"""Number of first turns with which the style of later turns is compared."""


def likeness(frames_FD: Embeddings, references: Mapping[str, Embeddings], names: Sequence[str]) -> float | None:
    """Mean similarity of the frames to the references of the named characters; None if none has references."""
    means = [float(np.mean(frames_FD @ references[name].T)) for name in names if name in references]
    return float(np.mean(means)) if means else None


def nearness(frames_FD: Embeddings, truth_FD: Embeddings) -> float:
    """Mean over the frames of the similarity to the nearest frame of the truth."""
    return float(np.mean(np.max(frames_FD @ truth_FD.T, axis=1)))


def words_of(panel: Panel) -> dict[str, str]:
    """Texts that the frames are compared with, by metric."""
    action = f"{panel.MA} {panel.MD}" if panel.MA and panel.MD else panel.MD
    texts = {"clip_t": panel.instruction, "clip_t_e": panel.EV, "clip_t_action": action}
    return {metric: text for metric, text in texts.items() if text}


def cast_values(frames_FD: Embeddings, references: Mapping[str, Embeddings], names: Sequence[str]) -> Values:
    """Identity, and the share of the named cast that is on screen.

    A character's similarity is the maximum over all pairs of a frame and a reference picture. If the panel names all
    characters, no other can be mistaken for them, and nothing is measured.
    """
    named = [name for name in dict.fromkeys(names) if name in references]
    if not named or len(named) == len(references):
        return {}
    nearest = {name: float(np.max(frames_FD @ rows_RD.T)) for name, rows_RD in references.items()}
    most_similar = sorted(nearest, key=lambda name: -nearest[name])[: len(named)]
    other = max(value for name, value in nearest.items() if name not in named)
    return {
        "identity": float(np.mean([nearest[name] for name in named])) - other,
        "cast_shown": len(set(named) & set(most_similar)) / len(named),
    }


def copied(hashes_FB: Picture, references: Mapping[str, Picture]) -> Values:
    """1 if a frame is one of the reference pictures."""
    if not references:
        return {}
    different = different_bits(hashes_FB, np.concatenate(list(references.values())))
    return {"copies": float(different.min() <= COPY_BITS)}


def motion_values(scope_px: float, panel: Panel, edges: Sequence[float]) -> Values:
    """Difference of the measured motion level from the one asked for."""
    if panel.level is None:
        return {}
    difference = abs(level_of(scope_px, edges) - panel.level)
    return {"acc_f": float(difference == 0), "mae_f": float(difference)}


def state_values(turn: PlayedTurn) -> Values:
    """Accuracy and mean error of the predicted changes, over the changes whose truth is known."""
    panel, changes = turn.panel, turn.line.changes
    if changes is None:
        return {}
    pairs = ((changes.social, panel.SC), (changes.entertainment, panel.ET), (changes.stamina, panel.ST))
    differences = [abs(found - right) for found, right in pairs if right is not None]
    if not differences:
        return {}
    return {"acc_s": float(np.mean([each == 0 for each in differences])), "mae_s": float(np.mean(differences))}


def cost_values(turn: PlayedTurn) -> Values:
    """Seconds and memory that the agent reports."""
    memory = turn.line.memory_bytes
    known = {
        "turn_seconds": turn.seconds,
        "first_frame_seconds": turn.line.first_frame_seconds,
        "memory_gb": None if memory is None else memory / 1e9,
    }
    return {metric: value for metric, value in known.items() if value is not None}


def mean_rows(frames: Sequence[Embeddings]) -> Embeddings:
    """One row per clip: the mean of its frames, at unit length."""
    means_TD = np.stack([frames_FD.mean(axis=0) for frames_FD in frames])
    return np.asarray(means_TD / np.linalg.norm(means_TD, axis=1, keepdims=True), np.float32)


def style_values(panels: Sequence[Panel], appearance_TD: Embeddings) -> list[Values]:
    """Similarity of each later turn to the most similar of the first turns; turns may be missing from a game."""
    first = [place for place, panel in enumerate(panels) if panel.turn <= FIRST_TURNS]
    if not first:
        return [{} for _ in panels]
    similar_TF = appearance_TD @ appearance_TD[first].T
    return [{} if place in first else {"style": float(similar_TF[place].max())} for place in range(len(panels))]


def place_values(panels: Sequence[Panel], rows_TD: Embeddings) -> list[Values]:
    """Similarity on each return to a place: to the place's last turn, compared with the turns elsewhere.

    On a return, the previous turn is elsewhere and an earlier turn was at the same place. Turns may be missing from a
    game, so the numbers of the turns give the time since the last visit.
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
