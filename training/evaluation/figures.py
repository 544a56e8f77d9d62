"""Figures: means of measures with 95 % intervals, overall, by game, by character and by turn; `figures.json`.

The report, its tables and `figures.csv` are made from this record alone.
"""

from __future__ import annotations

from pydantic import Field

from pipeline.core.records import Record
from training.evaluation.measures import Metric


class Figure(Record):
    """A mean; at most one of game, character and turn is given, and none for the overall mean."""

    agent: str
    metric: str
    game: str | None = None
    character: str | None = Field(None, description="protagonist of the games")
    turn: int | None = None
    value: float
    low: float | None = Field(None, description="bounds of the 95 % interval, by bootstrap over games; null: one game")
    high: float | None = None
    count: int = Field(description="number of measures in the mean")


class Slope(Record):
    """Change of a metric per turn, by least squares over the turns' numbers."""

    agent: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None


class AgentNote(Record):
    """An agent as the report names it."""

    name: str
    kind: str = Field(description="such as `checkpoint`, `gc`, `folder`, `painted`")
    note: str = Field("", description="a sentence, such as the ablation it is, or what differs in its clips")


class Figures(Record):
    """`figures.json`."""

    benchmark_sha256: str
    agents: tuple[AgentNote, ...]
    metrics: tuple[Metric, ...]
    figures: tuple[Figure, ...]
    slopes: tuple[Slope, ...] = ()
    notes: tuple[str, ...] = Field((), description="what the reader has to know, such as a network with random weights")
