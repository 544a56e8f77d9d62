"""Tables of the claims and of drift, in Markdown, with a column per measured model.

OUT/tables.md    upper bounds and figures by chance; models with their 95% intervals; runs that differ only in their
                 seed, with mean, lowest and highest; games of 50 turns
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.miniature.claims import CHANGES, MAIN, RESEARCH, SEEDS, WITHOUT_DRIFT
from examples.miniature.figures import Figure
from examples.miniature.games import SETS
from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError
from pipeline.stages.motion_levels import LEVELS

_Figures = Mapping[str, Figure]
ROWS = {
    "who": "who is on screen",
    "where": "where",
    "what": "doing what",
    "by whom": "the motion by the right one",
    "as asked": "all three: as asked",
    "as asked, repeated scene": "of a scene that other stories of the training have too",
    "as asked, new scene": "of a scene that no story of the training has",
    "as asked, one character": "of one character",
    "as asked, two characters": "of two characters",
    **{f"as asked, level {level}": f"of motion level {level}" for level in range(1, LEVELS + 1)},
    "as asked, character x motion": "of a held-out character and motion",
    "as asked, character x place": "of a held-out character and place",
    "as asked, motion x place": "of a held-out motion and place",
    "level predicted": "motion level predicted",
    "level drawn": "motion level drawn",
    "level drawn, error": "its error in levels",
    "states": "states",
    "night": "time of day, named before",
    "raincoats, told": "raincoat, told by the last turns",
    "no raincoats, told": "no raincoat, told",
    "flag, told": "flag, told",
    "no flag, told": "no flag, told",
    "raincoats, not told": "raincoat, not told",
    "flag, not told": "flag, not told",
    "saturation": "saturation",
    "sharpness": "sharpness",
    "seconds": "seconds a turn",
}
"""Fields of a turn by the words of their row."""
_NUMBERS = ("level drawn, error", "saturation", "sharpness", "seconds")
"""Fields that are no shares."""
_BOUNDS = ("recorded", "reconstructed", "played", "played without guidance", "played without past", "by chance")


def write_tables(out: Path) -> Path:
    """Write the tables of all figures that are there. Return their file. UserError if no model has been measured."""
    claims, drift = {name: _read(out / "claims" / name) for name, _, _ in SETS}, _read(out / "drift")
    if not any(claims.values()):
        raise UserError(f"{out / 'claims'} has no figures yet: run the step `claims` first")
    target = out / "tables.md"
    parts = [
        "# Figures of the miniature",
        f"All models but `{RESEARCH}` have trained on the held-out pairs.",
        *(line for name, of_set in claims.items() for line in _of_claims(name, of_set)),
        *_of_drift(drift),
    ]
    with replacing(target) as part:
        part.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return target


def _read(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the figures of each model, the main one first."""
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.stem != MAIN, path.stem))
    return {path.stem: json.loads(path.read_bytes()) for path in paths if path.name != "made.json"}


def _of_claims(name: str, claims: Mapping[str, Mapping[str, _Figures]]) -> Iterator[str]:
    if not claims:
        return
    if MAIN in claims:
        yield f"## `{name}`: the model, and what bounds it"
        bounds = {kind: claims[MAIN][kind] for kind in _BOUNDS}
        yield table(bounds, intervals=False)
        drawn, most = (bounds[kind]["level drawn"]["mean"] for kind in ("played", "reconstructed"))
        if most:
            yield f"Motion level drawn: {drawn / most:.0%} of what reconstructions reach."
    yield f"## `{name}`: all models"
    played = {f"`{model}`": found["played"] for model, found in claims.items()}
    yield table(played)
    seeds = {run: played[run] for run in (f"`{seed}`" for seed in SEEDS) if run in played}
    if len(seeds) > 1:
        yield f"## `{name}`: runs that differ by their seed alone"
        yield table(seeds | {"mean (lowest to highest)": over_runs(list(seeds.values()))})


def _of_drift(drift: Mapping[str, Mapping[str, _Figures]]) -> Iterator[str]:
    for model, found in drift.items():
        tens = {name: figures for name, figures in found.items() if name not in (CHANGES, WITHOUT_DRIFT)}
        yield f"## Games of 50 turns: `{model}`"
        yield table(tens)
        (first, begun), *_, (last, _) = tens.items()
        yield f"T{last[1:]} against {first}: {_changes(begun, found[CHANGES])}."
        if WITHOUT_DRIFT in found:
            yield f"Their recorded clips, reconstructed: {_changes(begun, found[WITHOUT_DRIFT])}."


def _changes(begun: _Figures, changes: _Figures) -> str:
    """Return in words how the last turns differ from the first ones, in percent of what the model began with."""
    parts = []
    for field, change in changes.items():
        whole, unit = (0.01, " points") if field == "as asked" else (0.01 * (begun[field]["mean"] or 1.0), "%")
        ends = "" if change["low"] is None else f" ({change['low'] / whole:+.0f} to {change['high'] / whole:+.0f})"
        parts.append(f"{field} {change['mean'] / whole:+.0f}{unit}{ends}")
    return ", ".join(parts)


def over_runs(runs: Sequence[_Figures]) -> dict[str, Figure]:
    """Return for each field the mean of several runs, with the lowest and the highest instead of an interval."""
    found: dict[str, Figure] = {}
    for field in runs[0]:
        means = [run[field]["mean"] for run in runs if field in run]
        found[field] = {"mean": sum(means) / len(means), "low": min(means), "high": max(means)}
    return found


def table(columns: Mapping[str, _Figures], *, intervals: bool = True) -> str:
    """Return a table of a row for each field of `ROWS` that a column has.

    Args:
        intervals: show the ends of the intervals too.
    """
    lines = [f"| right in | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for field, words in ROWS.items():
        if any(field in figures for figures in columns.values()):
            cells = [_cell(field, figures.get(field), intervals) for figures in columns.values()]
            lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(field: str, figure: Figure | None, intervals: bool) -> str:
    if figure is None:
        return ""
    mean, unit = _number(field, figure["mean"]), "" if field in _NUMBERS else "%"
    if not intervals or figure["low"] is None:
        return f"{mean}{unit}"
    return f"{mean}{unit} ({_number(field, figure['low'])} to {_number(field, figure['high'])})"


def _number(field: str, value: float) -> str:
    return f"{value:.2f}" if field in _NUMBERS else f"{100 * value:.0f}"
