"""Distilled shot decoders against their teacher, in the world in miniature: what their shots show, and how they differ.

    make bench-distillation MINI=miniature TEACHER=run/adapt/result STUDENT="run/distill/result ..." OUT=distillation

All play the held-out stories of MINI with the same seeds. Game model and shot tokens are the teacher's, so turns are
compared one by one; the recogniser of MINI names them. The teacher takes 50 steps of its own guidance, a student its
own sampling. Then all draw a part of the turns in 8, 4, 2 and 1 steps, the teacher as an `ode` without guidance.

A world without chance needs no distillation: few steps then show what 50 do. `--tokens` without a student tells early,
after a thousand steps of joint training, because it draws the clips from their own shot tokens.

OUT/PLAYER.json       values of every turn, kept for the next call
OUT/figures.json      the tables
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from examples.miniature.figures import Figure, drawn_level, figure
from examples.miniature.games import ScriptedTurn, Shown, Story, played, read_stories
from examples.miniature.recogniser_network import Recogniser
from flows.console.progress import Bars
from models.checkpoint import Checkpoint, identity_of
from models.config import Sampling
from models.engine import Engine
from models.engine_options import EngineOptions
from models.turns import GameState, Turn, turn_seed
from pipeline.core.atomic import write_json
from pipeline.core.ingredients import read_note
from pipeline.core.progress import watched
from training.data.shards import open_shards
from training.data.turns import Catalog
from training.evaluation.reconstruction import Reconstructor
from training.phases.collapse import SIGNS, signs_of

BEST, FEW = 50, (8, 4, 2, 1)
SEEDS, PROMPTS = 8, 12
"""Seeds of a prompt whose shots are compared, and prompts."""
Row = Mapping[str, Any]
"""Values of a turn: its game, whether it is as asked, the level asked of the decoder and drawn, and `SIGNS`."""


@dataclass(frozen=True)
class Player:
    """Checkpoint with a sampling."""

    name: str
    engine: Engine | Reconstructor
    sampling: Sampling
    made_from: Mapping[str, Any]
    """Checkpoint and sampling: a part of what its values depend on."""

    def rows(self, stories: Sequence[Story], turns: int, recogniser: Recogniser) -> Iterator[Row]:
        """Play stories, one after another with ever new seeds, and yield the values of so many turns."""
        self.engine.sampling, left = self.sampling, turns
        for seed, story in enumerate(cycle(stories)):
            if not left:
                return
            part = story[:left]
            left -= len(part)
            yield from _rows(list(self._shown(part, seed)), recogniser)

    def spread(self, prompts: Sequence[ScriptedTurn]) -> float:
        """Return how far shots are from their mean over the seeds of a prompt: root mean square, in levels of 255."""
        self.engine.sampling, found = self.sampling, []
        for prompt in prompts:
            shots = [self._first(prompt, seed).frames_THWC for seed in range(SEEDS)]
            found.append(np.stack(shots).astype(np.float32).var(axis=0).mean())
        return float(np.sqrt(np.mean(found)))

    def _shown(self, story: Story, seed: int) -> Iterator[Shown]:
        if isinstance(self.engine, Engine):
            yield from played(story, self.engine, seed)
            return
        with watched(f"{story[0].facts.film}, story {story[0].facts.story}", "from shot tokens") as watch:
            for number, scripted in enumerate(story):
                watch(number, len(story))
                turn = self._first(scripted, turn_seed(seed, number + 1))
                yield Shown(scripted, turn.frames_THWC, turn.state.level, scripted.facts.state)

    def _first(self, scripted: ScriptedTurn, seed: int) -> Turn:
        """Draw a turn as the first of a game."""
        if isinstance(self.engine, Engine):
            return self.engine.next_turn(GameState(), scripted.instruction, seed)[0]
        return self.engine.turn(GameState(), scripted.instruction, scripted.packed, seed)


def _rows(shown: Sequence[Shown], recogniser: Recogniser) -> Iterator[Row]:
    names = recogniser.name(torch.from_numpy(np.stack([each.frames_THWC for each in shown])))
    for each, named in zip(shown, names, strict=True):
        facts, signs = each.facts, signs_of(torch.from_numpy(each.frames_THWC)).tolist()
        yield {
            "game": f"{facts.film} {facts.story}",
            **named.follows(facts.characters, facts.place, facts.motion),
            "level": each.level,
            "drawn": drawn_level(each.frames_THWC),
            **dict(zip(SIGNS, signs, strict=True)),
        }


def players_of(
    teacher: Path, students: Sequence[Path], load: Callable[[Path, EngineOptions], Engine | Reconstructor] = Engine.load
) -> tuple[list[Player], list[Player]]:
    """Load the checkpoints. Return the players of all turns, the teacher first, and those of few steps."""
    names = ["student"] if len(students) == 1 else [f"student-{number + 1}" for number in range(len(students))]
    plain = Sampling(sampler="ode", guidance=1.0)
    whole, few = list[Player](), list[Player]()
    for name, path in (("teacher", teacher), *zip(names, students, strict=True)):
        engine, identity = load(path, EngineOptions("cpu")), Checkpoint.open(path).identity()
        best, brief = engine.sampling.replaced(steps=BEST), plain
        if path != teacher:
            best = brief = engine.sampling
        chosen = {name: best, **{f"{name}-{steps}": brief.replaced(steps=steps) for steps in FEW}}
        made = (
            Player(each, engine, sampling, {"checkpoint": identity, "sampling": sampling.model_dump(mode="json")})
            for each, sampling in chosen.items()
        )
        whole.append(next(made))
        few += (player for player in made if player.sampling != best)  # else the same turns again
    return whole, few


def paired(student: Sequence[Row], teacher: Sequence[Row], part: str = "as asked") -> Figure:
    """Return the mean difference in the share of turns whose `part` is right, with its interval over stories."""
    pairs = zip(student, teacher, strict=True)
    return figure([(one["game"], float(one[part]) - float(other[part])) for one, other in pairs])


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the shares of turns as asked, the mean level drawn for each level asked, and the mean signs."""
    asked: dict[int, list[int]] = {}
    for row in rows:
        asked.setdefault(row["level"], []).append(row["drawn"])
    return {
        **{part: fmean(row[part] for row in rows) for part in ("as asked", "who", "where", "what")},
        "drawn by level": {level: fmean(drawn) for level, drawn in sorted(asked.items())},
        **{sign: fmean(row[sign] for row in rows) for sign in SIGNS},
    }


def table_of(figures: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a row for each player."""
    table = Table("player", "as asked", "less the teacher's", "levels drawn", "spread", "saturation", "frozen")
    for name, found in figures.items():
        apart, spread = found.get("apart"), found.get("spread")
        table.add_row(
            name,
            f"{found['as asked']:.1%}",
            _with_interval(apart["as asked"]) if apart else "",
            " ".join(f"{drawn:.1f}" for drawn in found["drawn by level"].values()),
            f"{spread:.1f}" if spread is not None else "",
            f"{found['saturation']:.3f}",
            f"{found['frozen']:.1%}",
        )
    return table


def _with_interval(apart: Figure) -> str:
    """Return a difference with its interval, which a single story does not have."""
    interval = f" ({apart['low']:+.1%} to {apart['high']:+.1%})" if apart["games"] > 1 else ""
    return f"{apart['mean']:+.1%}{interval}"


def main() -> None:
    """Play all players, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("miniature", type=Path, help="folder of the world, with dataset, truth and recogniser")
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--student", type=Path, nargs="*", default=[])
    parser.add_argument("--tokens", action="store_true", help="draw the clips from their own shot tokens")
    parser.add_argument("--out", type=Path, default=Path("distillation"))
    parser.add_argument("--turns", type=int, default=1000, help="turns of teacher and students")
    parser.add_argument("--few", type=int, default=200, help="turns of each player of few steps")
    given = parser.parse_args()
    recogniser = Recogniser.open(given.miniature / "recogniser" / "result")
    stories = read_stories(given.miniature, "dataset", "val")
    prompts = [story[0] for story in stories][:PROMPTS]
    shared = {
        "tokens": given.tokens,
        "recogniser": identity_of(sorted((given.miniature / "recogniser" / "result").iterdir())),
        "data": Catalog.read(open_shards(given.miniature / "dataset", "val")).fingerprint,
    }
    whole, few = players_of(given.teacher, given.student, Reconstructor.load if given.tokens else Engine.load)
    given.out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, dict[str, Any]] = {}
    with Bars().watching():
        for player, turns in (*((each, given.turns) for each in whole), *((each, given.few) for each in few)):
            path, made_from = given.out / f"{player.name}.json", {**shared, **player.made_from, "turns": turns}
            read = read_note(path) or {}
            if read.get("made_from") != made_from:
                rows = list(player.rows(stories, turns, recogniser))
                spread = player.spread(prompts) if player in whole else None
                write_json(path, read := {"made_from": made_from, "spread": spread, "rows": rows})
            if player.name == "teacher":
                teacher: Sequence[Row] = read["rows"]
            figures[player.name] = {**summary(read["rows"]), "spread": read["spread"]}
            if player.name != "teacher":
                less = {part: paired(read["rows"], teacher[: len(read["rows"])], part) for part in ("as asked", "what")}
                figures[player.name]["apart"] = less
    write_json(given.out / "figures.json", figures)
    Console(width=120).print(table_of(figures))


if __name__ == "__main__":
    main()
