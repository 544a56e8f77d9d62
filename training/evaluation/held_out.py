"""Held-out games: windows of real turns of the split `val`, with their truth, as games of a benchmark.

The windows of a film do not overlap, and the films take turns, so that few games come from many films.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from pathlib import Path

from pipeline.core.errors import UserError
from training.config import WindowSettings
from training.data.checks import check_captions
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn
from training.data.windows import Window, Windows
from training.evaluation.benchmark import BenchmarkGame, Panel, text_of, write_benchmark


def write_held_out(source: str, out: Path, turns: int, games: int | None) -> tuple[BenchmarkGame, ...]:
    """Write a benchmark file of held-out windows of a dataset.

    Args:
        games: maximum number of games; None means all.

    Raises:
        UserError: the dataset has no split `val`, no captions by a model, or no window of this length; or `out` was
            edited or holds other games.
    """
    catalog = Catalog.read(open_shards(source, "val"))
    check_captions(catalog.turns, source, "split val")
    windows = _spread(_disjoint(catalog.turns, turns))[:games]
    if not windows:
        raise UserError(f"{source} has no {turns} turns in a row in its split val; take fewer with --turns")
    panels = [
        panel_of(f"held-out-{number:03d}", turn, recorded)
        for number, window in enumerate(windows, start=1)
        for turn, recorded in enumerate(window.turns, start=1)
    ]
    if out.exists() and out.read_bytes() != text_of(panels).encode():
        raise UserError(f"{out} holds other games, or was edited; rename or delete it, and run this again")
    return write_benchmark(out, panels)


def _disjoint(turns: Sequence[RecordedTurn], length: int) -> Iterator[Window]:
    """Yield windows of a length that share no turn, in the order of the turns."""
    windows = Windows(turns, WindowSettings().model_copy(update={"most_turns": length}))
    used: set[str] = set()
    for end in range(len(windows)):
        window = windows.longest(end)
        ids = {turn.clip_id for turn in window.turns}
        if len(ids) == length and not ids & used:
            used |= ids
            yield window


def _spread(windows: Iterator[Window]) -> list[Window]:
    """Return the windows with the films taking turns."""
    films = [list(group) for _, group in groupby(windows, key=lambda window: window.target.sample.film_id)]
    return [window for row in zip_longest(*films) for window in row if window]


def panel_of(game: str, turn: int, recorded: RecordedTurn) -> Panel:
    """Return a recorded turn as a panel of a game, with its clip, level and states as the truth."""
    sample, caption = recorded.sample, recorded.sample.caption
    names = caption.characters or ()
    first = (caption.actor,) if caption.actor in names else ()
    characters = (*first, *(name for name in names if name not in first))
    panel = Panel(
        game=game,
        turn=turn,
        characters=tuple(name for name in characters if name),
        level=sample.motion.level,
        words=recorded.instruction,
        clip_id=recorded.clip_id,
        **{tag: getattr(caption, tag) for tag in ("S", "MD", "MA", "EV", "SC", "ET", "ST")},
    )
    made = panel.model_copy(update={"words": None})
    return made if made.instruction == recorded.instruction.strip() else panel
