"""Plans of training windows: which frames each window shows, how scenes join, and what disturbs them.

A plan is numbers only; `render.py` draws the pictures of many plans at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.transitions.shots import FRAMES, Floats, Shot, Sources, colour_change, placed, turned

LEAST_SHARE = 0.03
"""A frame is mixed if both scenes fill more than this of it."""
STILL = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
SHAPES = 14
"""Number of shapes of wipes, as `render.fields` draws them; shape 0 is a dissolve, all pixels at once."""


@dataclass
class Rows:
    """Rows of a table by column."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, **values: Any) -> None:
        """Append arrays with one entry per row."""
        for name, value in values.items():
            self.columns.setdefault(name, []).append(np.asarray(value))


def shares(front_T: Floats, soft: float) -> Floats:
    """Return the mean share of the new scene; the pixels of a field are reached at even times from 0 to 1."""
    reached = (np.arange(64) + 0.5) / 64
    found: Floats = np.clip((front_T[:, None] - reached) / soft, 0, 1).mean(axis=1).astype(np.float32)
    return found


def plan(sources: Sources, dice: Generator) -> dict[str, Any]:
    """Return the plan of one window: tables `base`, `over`, `mix`, `figures`, per-frame and per-window values."""
    base, over, mix, figures = Rows(), Rows(), Rows(), Rows()
    truth = np.zeros((FRAMES, 2), np.float32)
    veil = np.zeros((FRAMES, 4), np.float32)
    blur, cells = np.zeros(FRAMES, np.float32), np.zeros(FRAMES, np.float32)
    if dice.random() < 0.3 and len(sources.stretches):
        _film(sources, dice, base, truth)
    else:
        _joined_shots(sources, dice, (base, over, mix, figures), truth, veil, blur, cells)
    gain = _disturbed(dice, veil, np.flatnonzero(truth[:, 1] == 1))
    rows = {name: {key: np.concatenate(parts) for key, parts in table.columns.items()} for name, table in
            (("base", base), ("over", over), ("mix", mix), ("figures", figures))}  # fmt: skip
    shown, truth = _held(dice, truth)
    return {
        **rows, "truth": truth, "shown": shown, "veil": veil, "gain": gain, "blur": blur, "cells": cells,
        "whole": _whole(dice),
    }  # fmt: skip


def _film(sources: Sources, dice: Generator, base: Rows, truth: Floats) -> None:
    """Show a stretch of film with its own changes."""
    lengths = sources.stretches[:, 1]
    first, length = sources.stretches[dice.choice(len(lengths), p=lengths / lengths.sum())]
    speed = float(dice.choice((0.5, 1, 1, 1, 1.5)))
    start = dice.integers(max(int(length - speed * FRAMES), 1))
    steps = np.minimum((start + np.arange(FRAMES + 1) * speed).astype(np.int64), length - 1)
    numbers = first + steps
    zoom = dice.uniform(0.75, 1.0)
    theta = np.concatenate(
        [turned(0, zoom, dice.choice((-1.0, 1.0))), (dice.uniform(-1, 1, 2) * (1 - zoom))[:, None]], axis=1
    )
    colour = colour_change(dice) if dice.random() < 0.5 else np.eye(3, 4, dtype=np.float32)
    base.add(
        picture=numbers[:FRAMES], theta=np.broadcast_to(theta, (FRAMES, 2, 3)).astype(np.float32),
        colour=np.broadcast_to(colour, (FRAMES, 3, 4)), levels=np.zeros(FRAMES, np.int64),
        sketch=np.zeros(FRAMES, np.float32), times=np.arange(FRAMES),
    )  # fmt: skip
    truth[:] = sources.truth[numbers[:FRAMES]]
    if speed > 1:  # a skipped frame may be the first of a scene
        for number in range(1, FRAMES):
            truth[number, 1] = sources.truth[numbers[number - 1] + 1 : numbers[number] + 1, 1].max(initial=0)
    elif speed < 1:
        truth[1:, 1] *= numbers[1:FRAMES] != numbers[: FRAMES - 1]


def _joined_shots(
    sources: Sources, dice: Generator, tables: tuple[Rows, Rows, Rows, Rows], truth: Floats, veil: Floats, blur: Floats,
    cells: Floats,
) -> None:  # fmt: skip
    base, over, mix, figures = tables
    old = Shot(sources, dice)
    mean, at, shown = dice.choice((15, 40, 90, 200)), 0, int(dice.integers(3 * FRAMES))
    fields = 0
    while at < FRAMES:
        stay = min(int(2 + dice.exponential(6 if old.is_blank else mean)), FRAMES - at)
        _show(base, figures, old, np.arange(at, at + stay), shown, 0)
        at, shown = at + stay, shown + stay
        if at == FRAMES:
            return
        new = Shot(sources, dice, old)
        is_cut = dice.random() < (0.15 if new.is_blank or old.is_blank else 0.45)
        length = 0 if is_cut else int(np.exp(dice.uniform(np.log(2), np.log(72))))
        new_shown = int(dice.integers(3 * FRAMES))
        if length == 0:
            truth[at, 1] = 1
        else:
            way = _way(dice, length, new.is_blank or old.is_blank)
            times = np.arange(at, min(at + length, FRAMES))
            fits = len(times)
            _show(base, figures, old, times, shown, 0, way["old"][:fits])
            _show(over, figures, new, times, new_shown, 1, way["new"][:fits])
            mix.add(time=times, front=way["front"][:fits], soft=np.full(fits, way["soft"]), field=np.full(fits, fields),
                    shape=np.full(fits, way["shape"]), numbers=np.tile(way["numbers"], (fits, 1)),
                    edge=np.full(fits, way["edge"]))  # fmt: skip
            fields += 1
            share = way["share"]
            truth[times, 0] = way["mixed"][:fits]
            veil[times], blur[times], cells[times] = way["veil"][:fits], way["blur"][:fits], way["cells"][:fits]
            middle = at + int(np.argmax(share > 0.5)) if (share > 0.5).any() else at + length
            for beside, weight in ((0, 1.0), (1, 0.5), (-1, 0.5)):
                if 0 <= middle + beside < FRAMES and (beside == 0 or length >= 6):
                    truth[middle + beside, 1] = max(truth[middle + beside, 1], weight)
        at, shown, old = min(at + length, FRAMES), new_shown + length, new


def _show(
    table: Rows,
    figures: Rows,
    shot: Shot,
    times: NDArray[np.int64],
    since: int,
    layer: int,
    place: Floats | None = None,
) -> None:
    own = since + np.arange(len(times))
    rows = shot.rows(own)
    if place is not None:
        rows["theta"] = placed(place, rows["theta"])
    table.add(**rows, times=times)
    for figure in shot.figures:
        alpha = figure["alpha"][own % (4 * FRAMES)]
        seen = np.flatnonzero(alpha > 0)
        if len(seen):
            theta = figure["theta"][own % (4 * FRAMES)]
            theta = theta if place is None else placed(place, theta)
            count = len(seen)
            figures.add(time=times[seen], layer=np.full(count, layer), theta=theta[seen], alpha=alpha[seen],
                        **{key: np.repeat(np.asarray(figure[key])[None], count, axis=0)
                           for key in ("picture", "kind", "solid", "tone", "power", "seed")})  # fmt: skip


def _way(dice: Generator, length: int, is_fade: bool) -> dict[str, Any]:
    """Return how two scenes join: places of both, fronts, softness, shape, and what covers them."""
    progress = (np.arange(length, dtype=np.float32) + 1) / (length + 1)
    ease = dice.random()
    if ease < 0.25:
        progress = progress * progress * (3 - 2 * progress)
    elif ease < 0.35:
        progress = progress ** dice.choice((0.5, 2.0))
    places = {"old": np.tile(STILL, (length, 1, 1)), "new": np.tile(STILL, (length, 1, 1))}
    veil, blur, cells = (np.zeros(shape, np.float32) for shape in ((length, 4), length, length))
    shape, soft, edge = 0, 1.0, 0.0
    numbers = np.concatenate([dice.uniform(-0.5, 0.5, 2), [_angle(dice), dice.integers(2, 9)]]).astype(np.float32)
    kind = dice.choice(5, p=(0.55, 0.0, 0.42, 0.0, 0.03) if is_fade else (0.36, 0.09, 0.25, 0.22, 0.08))
    bump = 1 - np.abs(2 * progress - 1)
    if kind in (0, 1) and dice.random() < 0.15:
        blur[:] = bump
    elif kind in (0, 1) and dice.random() < 0.08:
        cells[:] = bump
    if kind == 1:  # through a colour
        tone = dice.choice((0.0, 0.0, 1.0, 0.5))
        plateau = dice.uniform(1, 1.6)
        veil[:, :3], veil[:, 3] = tone if dice.random() < 0.8 else dice.random(3), np.clip(bump * plateau, 0, 1)
    elif kind == 2:
        shape, soft = int(dice.integers(1, SHAPES)), float(dice.choice((0.03, 0.03, 0.1, 0.3, 0.6)))
        edge = float(dice.random() < 0.12)
    elif kind == 3:  # slides, covers, reveals, squeezes
        shape, soft = 1, 0.03
        numbers[2] = angle = float(dice.choice((0, 0.25, 0.5, 0.75)) * 2 * math.pi)
        direction = np.array([math.cos(angle), math.sin(angle)], np.float32)
        moving = dice.choice(("new", "old", "both", "squeeze"), p=(0.3, 0.25, 0.3, 0.15))
        if moving in ("new", "both"):  # the wipe's front goes along the direction; the new picture follows it
            places["new"][:, :, 2] += 2 * (1 - progress)[:, None] * direction
        if moving in ("old", "both"):
            places["old"][:, :, 2] -= 2 * progress[:, None] * direction
        if moving == "squeeze":
            shape, axis = 6, int(dice.integers(2))
            numbers[:3] = 0, 0, axis * math.pi / 2
            places["old"][:, axis, axis] /= np.maximum(1 - progress, 0.02)
    elif kind == 4:  # into the old scene
        zoom = 1 / (1 + dice.uniform(0.5, 4) * progress)
        places["old"][:, :, :2] *= zoom[:, None, None]
        if dice.random() < 0.5:
            places["new"][:, :, :2] *= (1 / (1 + dice.uniform(0.5, 3) * (1 - progress)))[:, None, None]
    front = progress * (1 + soft) if shape else progress
    share = progress if shape == 0 else shares(front.astype(np.float32), soft)
    mixed = (share > LEAST_SHARE) & (share < 1 - LEAST_SHARE)
    if kind == 1:
        mixed[:] = True
        front = (progress > 0.5).astype(np.float32) if dice.random() < 0.7 else front
    if shape == 0:
        soft = 1.0
    return {**places, "veil": veil, "blur": blur, "cells": cells, "front": front, "soft": soft, "shape": shape,
            "numbers": numbers, "edge": edge, "share": share, "mixed": mixed}  # fmt: skip


def _angle(dice: Generator) -> float:
    return float(dice.choice((0, 0.25, 0.5, 0.75, dice.random()))) * 2 * math.pi


def _disturbed(dice: Generator, veil: Floats, cuts: NDArray[np.int64]) -> Floats:
    """Add flashes to the veil (T, 4: colour, weight); return the light (T, 4): a gain per frame and where it acts."""
    time = np.arange(FRAMES)
    if dice.random() < 0.25:
        flashes = dice.integers(FRAMES, size=int(dice.choice((1, 1, 2, 5))))
        if len(cuts) and dice.random() < 0.4:  # near a change
            flashes[0] = np.clip(dice.choice(cuts) + dice.choice((-8, -6, -5, -4, 1, 2, 3, 5)), 0, FRAMES - 1)
        for begin in flashes:
            span = slice(begin, begin + int(dice.integers(1, 5)))
            tone = dice.random(3) if dice.random() < 0.25 else dice.choice((1.0, 1.0, 0.0))
            veil[span] = np.maximum(veil[span], np.concatenate([np.ones(3) * tone, [dice.uniform(0.4, 1.0)]]))
    light = np.zeros((FRAMES, 4), np.float32)
    if dice.random() < 0.4:
        begin, frames = dice.integers(FRAMES), dice.choice((1, 4, 12, 24, 48))
        ramp = np.clip((time - begin) / frames, 0, 1)
        if dice.random() < 0.5:  # and back
            ramp -= np.clip((time - begin - frames - dice.integers(60)) / dice.choice((1, 4, 12, 24, 48)), 0, 1)
        light[:, 0] = ramp * (dice.normal(0, 0.5) if dice.random() < 0.6 else -dice.uniform(0.3, 1.3))
        light[:, 1:3] = dice.normal(0, 1.0, 2) * (dice.random() < 0.5)  # the light comes from one side
        light[:, 3] = dice.uniform(-0.5, 0.5)
    return light


def _held(dice: Generator, truth: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return which frames are shown when the film repeats some, and the truth of the frames shown."""
    shown = np.arange(FRAMES)
    way = dice.random()
    if way < 0.12:
        shown = shown // int(dice.choice((2, 3)))
        shown = shown + dice.integers(0, FRAMES - shown[-1])
    elif way < 0.18:
        shown = np.sort(np.clip(shown - (dice.random(FRAMES) < 0.2), 0, FRAMES - 1))
    else:
        return shown, truth
    held = truth[shown].copy()
    steps = np.diff(shown, prepend=shown[0] - 1)
    for number in range(1, FRAMES):  # a scene begins with the first picture that shows it
        held[number, 1] = truth[shown[number - 1] + 1 : shown[number] + 1, 1].max(initial=0) if steps[number] else 0
    return shown, held


def _whole(dice: Generator) -> Floats:
    """Return what changes the whole window: bars, gamma, gain, gray, noise, smear, blur."""
    bars = np.zeros(2)
    if (way := dice.random()) < 0.25:
        bars[int(way < 0.12)] = dice.uniform(0.02, 0.3)
    return np.array([
        *bars,
        np.exp(dice.normal(0, 0.3)),
        np.exp(dice.normal(0, 0.2)),
        dice.normal(0, 0.05),
        1.0 - (dice.random() < 0.2) * dice.choice((1.0, 1.0, 0.7)),
        dice.choice((0.0, 0.0, 0.004, 0.015, 0.04)),
        dice.uniform(0.05, 0.4) * (dice.random() < 0.06),
        dice.random() < 0.15,
        0.0 if dice.random() < 0.9 else 1.0,
    ], np.float32)  # fmt: skip


@dataclass(frozen=True)
class Plans:
    """Plans of many windows: tables by column, each with a column `window`, and values per window."""

    tables: dict[str, dict[str, NDArray[Any]]]
    frames: dict[str, NDArray[Any]]


def batch(sources: Sources, seed: tuple[int, ...], windows: int) -> Plans:
    """Return the plans of many windows."""
    dice = np.random.default_rng(seed)
    plans = [plan(sources, dice) for _ in range(windows)]
    tables: dict[str, dict[str, NDArray[Any]]] = {}
    for name in ("base", "over", "mix", "figures"):
        found = [(number, one[name]) for number, one in enumerate(plans) if one[name]]
        keys = found[0][1].keys() if found else ()
        tables[name] = {key: np.concatenate([table[key] for _, table in found]) for key in keys}
        lengths = [len(next(iter(table.values()))) for _, table in found]
        numbers = np.array([number for number, _ in found], np.int64)
        tables[name]["window"] = np.repeat(numbers, np.array(lengths, np.int64))
    names = ("truth", "shown", "veil", "gain", "blur", "cells", "whole")
    return Plans(tables, {name: np.stack([one[name] for one in plans]) for name in names})
