"""Metrics of the judge, and its summary: counts, agreement of the repeats, and effect of the order on the scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from pipeline.core.records import Record
from training.evaluation.measures import Metric
from training.evaluation.ratings import CriterionScores, moved_by_order, read_scores

_TITLES = {
    "OA": ("Overall", "Overall quality"),
    "TA": ("Text alignment", "Agreement of scenes with their instructions"),
    "CONC": ("Contextual coherence", "Continuity from scene to scene, places included"),
    "CHAC": ("Character consistency", "Likeness of the characters between scenes, and to reference sheets if shown"),
    "EC": ("Emotional consistency", "Fit of faces and gestures to the events"),
    "VC": ("Visual coherence", "Unity of style, freedom from artefacts"),
}
JUDGE_METRICS = tuple(
    Metric(
        name=f"judge_{name.lower()}",
        title=title,
        meaning=f"{meaning}: score from 1 to 10 by a multimodal model that sees five scenes of all agents, "
        "mean over orders of the agents.",
    )
    for name, (title, meaning) in _TITLES.items()
)
NO_SHEET = "no reference sheet was shown: character consistency is likeness between scenes alone"


class JudgeSummary(Record):
    """`judge/summary.json`."""

    model: str
    prompt: str
    temperature: float
    cast_sha256: str = Field(description="empty: no reference sheet was attached")
    agents: tuple[str, ...]
    repeats: int
    windows: int = Field(description="windows with a score")
    left_out: int = Field(description="windows that an agent has not played in full")
    refused: dict[str, str] = Field(description="reason by the name of the request")
    repaired: int
    criteria: tuple[CriterionScores, ...]


def read_summary(evaluation: Path) -> JudgeSummary | None:
    """Read the summary of a judge; None before it has scored anything. UserError if it is damaged."""
    return read_scores(evaluation / "judge" / "summary.json", JudgeSummary, "animegamer evaluate judge")


def judge_notes(evaluation: Path) -> Iterator[str]:
    """Yield sentences on the judge for the head of the report; none before it has scored anything."""
    summary = read_summary(evaluation)
    if summary is None:
        return
    judged = f"Judge: {summary.model}, {summary.windows:,} windows, each judged {summary.repeats} times"
    yield f"{judged}." if summary.cast_sha256 else f"{judged}; {NO_SHEET}."
    moved = moved_by_order(summary.criteria)
    if moved:
        yield f"The order of the agents moves the judge's scores: {moved}."
