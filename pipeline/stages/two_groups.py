"""Second look for two scenes in a clip: how far its pictures fall into two groups in time.

For every moment that splits the clip, with the mean pictures A before and B after it, and S_p the larger mean distance
of pixel p from its own group's mean:

    share    = mean_p [|B_p - A_p| > CHANGED and |B_p - A_p| > 2 S_p]       pixels that keep two values
    likeness = correlation of the detail of A and B where they differ       near 1 if only the light changes
    value    = share * (1 - likeness)

The largest value counts. A fast pan from one place to another scores as high as a cut, but passes through pictures that
show neither: next to a change of scenes every picture shows A, B, a dissolve or a wipe of both (`gradual.py`). Where
one does not, the value is multiplied by `ODD`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline.stages.gradual import likeness_of, undecided

CHANGED = 12
"""Least difference of a changed pixel, gray levels."""
LEAST_SHARE = 0.1
"""Share of changed pixels below which nothing but a small figure changes."""
BESIDE = 3
"""Pictures on each side of the split that must show A, B or a mix."""
LARGEST_MISFIT = 0.15
"""Largest median distance of the pixels' shares from that of the picture, in a dissolve."""
MOST_UNDECIDED = 0.3
"""Largest share of pixels that show neither scene, in a wipe."""
ODD = 0.4


def two_groups(pictures_TP: np.ndarray) -> float:
    """Return how far tiny pictures (`gradual.tiny_gray`), in time order, fall into two groups: 0 (one) to 1 (two)."""
    value, split = max(_values(pictures_TP), default=(0.0, 0))
    return value * (ODD if value and _passes_through_others(pictures_TP, split) else 1)


def _values(pictures_TP: np.ndarray) -> Iterator[tuple[float, int]]:
    for split in range(2, len(pictures_TP) - 1):
        before_NP, after_NP = pictures_TP[:split], pictures_TP[split:]
        old_P, new_P = before_NP.mean(axis=0), after_NP.mean(axis=0)
        change_P = np.abs(new_P - old_P)
        changed_P = change_P > CHANGED
        if changed_P.mean() < LEAST_SHARE:
            continue
        spread_P = np.maximum(np.abs(before_NP - old_P).mean(axis=0), np.abs(after_NP - new_P).mean(axis=0))
        share = (changed_P & (change_P > 2 * spread_P)).mean()
        yield float(share) * (1 - max(likeness_of(old_P, new_P, changed_P), 0.0)), split


def _passes_through_others(pictures_TP: np.ndarray, split: int) -> bool:
    """Return true if a picture near the split shows neither scene, nor a dissolve or wipe of both."""
    old_P = np.median(pictures_TP[: max(1, split - 2)], axis=0)
    change_P = np.median(pictures_TP[min(split + 2, len(pictures_TP) - 1) :], axis=0) - old_P
    changed_P = np.abs(change_P) > CHANGED
    if not changed_P.any():
        return True
    near_NP = pictures_TP[max(0, split - BESIDE) : split + BESIDE]
    shares_NC = (near_NP - old_P)[:, changed_P] / change_P[changed_P]
    misfit_N = np.median(np.abs(shares_NC - np.median(shares_NC, axis=1, keepdims=True)), axis=1)
    undecided_N = undecided(shares_NC).mean(axis=1)
    return bool(((misfit_N > LARGEST_MISFIT) & (undecided_N > MOST_UNDECIDED)).any())
