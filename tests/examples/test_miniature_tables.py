"""Tables of the miniature's figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from examples.miniature.figures import Figure
from examples.miniature.tables import write_tables
from pipeline.core.errors import UserError

KINDS = ("recorded", "reconstructed", "played", "played without guidance", "played without past", "by chance")


def figures(share: float) -> Mapping[str, Figure]:
    around = {"turns": 196, "games": 7, "mean": share, "low": share - 0.05, "high": share + 0.05}
    return {
        "as asked": around,
        "level drawn, error": around | {"mean": 0.4, "low": 0.3, "high": 0.5},
        "seconds": around | {"mean": 0.8, "low": None, "high": None},
    }


def measured(out: Path, name: str, share: float, kinds: tuple[str, ...] = ("played",)) -> None:
    (out / "claims").mkdir(exist_ok=True)
    found = {data: {kind: figures(share) for kind in kinds} for data in ("val", "unseen")}
    (out / "claims" / f"{name}.json").write_text(json.dumps(found))


def section(text: str, title: str) -> list[str]:
    """Return the lines of a table by its title."""
    _, _, rest = text.partition(f"## {title}\n\n")
    return rest.split("\n\n")[0].splitlines()


def test_models_stand_side_by_side_and_seeds_have_a_mean(tmp_path: Path) -> None:
    measured(tmp_path, "model", 0.87, KINDS)
    for name, share in (("seed-2", 0.8), ("seed-1", 0.76), ("short", 0.46)):
        measured(tmp_path, name, share)
    (tmp_path / "claims" / "made.json").write_text("{}")
    (tmp_path / "drift").mkdir()
    (tmp_path / "drift" / "model.json").write_text(json.dumps({"turns 1-10": figures(0.9)}))
    text = write_tables(tmp_path).read_text()
    assert section(text, "`val`: all models")[0] == "| right in | `model` | `seed-1` | `seed-2` | `short` |"
    seeds = section(text, "`unseen`: runs that differ by their seed alone")
    assert seeds[0] == "| right in | `model` | `seed-1` | `seed-2` | mean (lowest to highest) |"
    assert seeds[2] == "| all three: as asked | 87 % (82 to 92) | 76 % (71 to 81) | 80 % (75 to 85) | 81 % (76 to 87) |"
    bounds = section(text, "`val`: the model, and what bounds it")
    assert bounds[2] == "| all three: as asked | 87 % | 87 % | 87 % | 87 % | 87 % |"
    assert section(text, "Games of 50 turns: `model`")[2:] == [
        "| all three: as asked | 90 % (85 to 95) |",
        "| its error in levels | 0.40 (0.30 to 0.50) |",
        "| seconds a turn | 0.80 |",
    ]


def test_without_figures_the_step_to_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run the step `claims` first"):
        write_tables(tmp_path)
