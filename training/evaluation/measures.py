"""Measures: a long table of what was measured about agents, a row per agent, game, turn and metric.

    EVALUATION/measures/turns.parquet     metrics of the clips
    EVALUATION/measures/judge.parquet     scores of a multimodal model
    EVALUATION/measures/study.parquet     scores made of people's ranks

Every table and curve of the report is a mean over some of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, arrow_schema

Better = Literal["higher", "lower"]


class Metric(Record):
    """A metric as the report shows it."""

    name: str = Field(description="name in the table of measures, such as `clip_i`")
    title: str = Field(description="name in print, such as `CLIP-I`")
    meaning: str = Field(description="definition in one sentence")
    better: Better = "higher"
    is_share: bool = Field(False, description="a mean of yes and no, so that a perfect agent has 1")


class Measure(Record):
    """A value of a metric; `turn` is null for a value of a whole game."""

    agent: str
    game: str
    turn: int | None
    metric: str
    value: float


def write_measures(path: Path, measures: Iterable[Measure]) -> None:
    """Write a table of measures, atomically.

    Raises:
        DiskError: it cannot be written.
    """
    rows = [measure.model_dump() for measure in measures]
    with replacing(path) as temporary, disk_errors(path):
        pq.write_table(pa.Table.from_pylist(rows, arrow_schema(Measure)), temporary)


def read_measures(path: Path) -> list[Measure]:
    """Read a table of measures; a missing file is an empty table.

    Raises:
        UserError: the file is damaged.
    """
    if not path.exists():
        return []
    try:
        rows = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: damaged ({error}); delete it, and it is measured again") from error
    return [Measure.model_construct(**row) for row in rows]
