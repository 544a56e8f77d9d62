"""Distilled shot decoders against their teacher, in the world in miniature: what their shots show, and how they differ.

    make bench-distillation MINI=miniature TEACHER=run/adapt/result STUDENT="run/distill/result ..." OUT=distillation

All play the held-out stories of MINI with the same seeds. Game model and shot tokens are the teacher's, so turns are
compared one by one; the recogniser of MINI names them. The teacher takes 50 steps of its own guidance, a student its
own sampling. Then all draw a part of the turns in 8, 4, 2 and 1 steps, the teacher as an `ode` without guidance.

A world without chance needs no distillation: few steps then show what 50 do. `--tokens` without a student tells early,
after a thousand steps of joint training, because it draws the clips from their own shot tokens.

OUT/PLAYER.json       values of every turn, written after each story: the next call goes on from them
OUT/PLAYER.png        some first turns
OUT/pictures.png      those of teacher and students side by side, with the teacher's in four steps without guidance
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
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

from examples.miniature.figures import Figure, drawn_level, figure
from examples.miniature.games import ScriptedTurn, Shown, Story, played, read_stories
from examples.miniature.package import sheet, turn_picture
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
SEEDS, PROMPTS, PICTURED = 8, 12, 5
"""Seeds of a prompt whose shots are compared; prompts, and those of them that the pictures show."""
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

    def rows(self, stories: Sequence[Story], turns: range, recogniser: Recogniser) -> Iterator[list[Row]]:
        """Play stories, one after another with ever new seeds, and yield the values of each story's turns.

        Args:
            turns: numbers of the turns to play, counted over all stories; the first begins a story.
        """
        self.engine.sampling, begin = self.sampling, 0
        for seed, story in enumerate(cycle(stories)):
            if begin >= turns.stop:
                return
            if begin >= turns.start:
                yield list(_rows(list(self._shown(story[: turns.stop - begin], seed)), recogniser))
            begin += len(story)

    def shots(self, prompt: ScriptedTurn, seeds: int) -> NDArray[np.uint8]:
        """Draw a turn as the first of a game, with several seeds, [N, T, H, W, C]."""
        self.engine.sampling = self.sampling
        return np.stack([self._first(prompt, seed).frames_THWC for seed in range(seeds)])

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


def spread_of(shots_NTHWC: NDArray[np.uint8]) -> float:
    """Return how far shots of a prompt are from their mean: root mean square, in levels of 255."""
    return float(np.sqrt(shots_NTHWC.astype(np.float32).var(axis=0).mean()))


def table_of(figures: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a row for each player."""
    titles = ("player", "as asked", "less the teacher's", "levels drawn", "spread", "of the teacher's", "saturation")
    table = Table(*titles, "frozen")
    for name, found in figures.items():
        apart, spread, share = found.get("apart"), found.get("spread"), found.get("share of spread")
        table.add_row(
            name,
            f"{found['as asked']:.1%}",
            _with_interval(apart["as asked"], "+") if apart else "",
            " ".join(f"{drawn:.1f}" for drawn in found["drawn by level"].values()),
            f"{spread:.1f}" if spread is not None else "",
            _with_interval(share) if share else "",
            f"{found['saturation']:.3f}",
            f"{found['frozen']:.1%}",
        )
    return table


def _with_interval(found: Figure, sign: str = "") -> str:
    """Return a share or a difference with its interval, which a single story does not have."""
    mean, *ends = (f"{found[part]:{sign}.1%}" for part in ("mean", "low", "high") if found[part] is not None)
    return f"{mean} ({' to '.join(ends)})" if ends else mean


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
    shared = {
        "tokens": given.tokens,
        "recogniser": identity_of(sorted((given.miniature / "recogniser" / "result").iterdir())),
        "data": Catalog.read(open_shards(given.miniature / "dataset", "val")).fingerprint,
    }
    whole, few = players_of(given.teacher, given.student, Reconstructor.load if given.tokens else Engine.load)
    given.out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, dict[str, Any]] = {}
    with Bars().watching():
        for player, turns in (
            *((each, given.turns) for each in whole),
            *((each, min(given.few, given.turns)) for each in few),
        ):
            path, made_from = given.out / f"{player.name}.json", {**shared, **player.made_from, "turns": turns}
            seeds = SEEDS if player in whole else 1
            found = _play(player, path, made_from, stories, recogniser, seeds)
            if player.name == "teacher":
                teacher = found
            figures[player.name] = _compared(found, teacher)
    write_json(given.out / "figures.json", figures)
    columns = [given.out / f"{name}.png" for name in (whole[0].name, "teacher-4", *(each.name for each in whole[1:]))]
    sheet([Image.open(path) for path in columns], len(columns)).save(given.out / "pictures.png")
    Console(width=140).print(table_of(figures))


def _play(
    player: Player,
    path: Path,
    made_from: Mapping[str, Any],
    stories: Sequence[Story],
    recogniser: Recogniser,
    seeds: int,
) -> Mapping[str, Any]:
    """Play what is missing, and return the content of the player's file.

    Args:
        seeds: shots of a prompt; their spread counts if there are several.
    """
    found = read_note(path) or {}
    if found.get("made_from") != made_from:
        found = {"made_from": made_from, "rows": []}
    for rows in player.rows(stories, range(len(found["rows"]), made_from["turns"]), recogniser):
        found["rows"] += rows
        write_json(path, found)
    if "spread" not in found:
        prompts = [story[0] for story in stories][:PROMPTS]
        shots = list[NDArray[np.uint8]]()
        with watched(player.name, f"seeds of {len(prompts)} prompts") as watch:
            for prompt in prompts:
                watch(len(shots), len(prompts))
                shots.append(player.shots(prompt, seeds))
        _draw(path.with_suffix(".png"), player.name, prompts, shots)
        found["spread"] = [spread_of(shots_NTHWC) for shots_NTHWC in shots] if seeds > 1 else None
        write_json(path, found)
    return found


def _compared(found: Mapping[str, Any], teacher: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary of a player; of a student, also its distance from the teacher."""
    rows, spread = found["rows"], found["spread"]
    figures = summary(rows) | ({"spread": fmean(spread)} if spread else {})
    if found is teacher:
        return figures
    of_teacher = teacher["rows"][: len(rows)]
    figures["apart"] = {part: paired(rows, of_teacher, part) for part in ("as asked", "what")}
    if spread:
        shares = [one / other for one, other in zip(spread, teacher["spread"], strict=True)]
        figures["share of spread"] = figure(list(enumerate(shares)))
    return figures


def _draw(path: Path, name: str, prompts: Sequence[ScriptedTurn], shots: Sequence[NDArray[np.uint8]]) -> None:
    """Draw the first shot of some prompts as a column."""
    pictures = [
        turn_picture(f"{name}: {prompt.instruction}", shots_NTHWC[0][..., ::-1])
        for prompt, shots_NTHWC in list(zip(prompts, shots, strict=True))[:PICTURED]
    ]
    sheet(pictures, 1).save(path)


if __name__ == "__main__":
    main()
