"""Measures by the recogniser of the world in miniature: does a turn show who, where and what was asked for?

EVALUATION/measures/recogniser.parquet      `as_asked`, `shows_who`, `shows_where` and `shows_what` of every turn
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from examples.miniature.recogniser_network import Recogniser
from pipeline.video.clip_files import read_clip
from training.evaluation.folder import EvaluationFolder
from training.evaluation.measures import Measure, write_measures


def write_recognised(evaluation: Path) -> None:
    """Measure all turns played in an evaluation of games in the world in miniature."""
    folder = EvaluationFolder.open(evaluation)
    write_measures(evaluation / "measures" / "recogniser.parquet", _measures(folder, Recogniser.open()))


def _measures(folder: EvaluationFolder, recogniser: Recogniser) -> Iterator[Measure]:
    for turn in (turn for agent in folder.request.agents for turn in folder.played(agent.name)):
        frames_THWC = torch.from_numpy(read_clip(turn.clip)[..., ::-1].copy())
        [named], panel = recogniser.name(frames_THWC[None]), turn.panel
        found = named.follows(panel.characters, panel.EV or "", panel.MD or "")
        for field, right in found.items():
            metric = "as_asked" if field == "as asked" else f"shows_{field}"
            yield Measure(agent=turn.agent, game=panel.game, turn=panel.turn, metric=metric, value=float(right))
