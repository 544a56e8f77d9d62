"""Measures of agents in long tables: a row per agent, game, turn and metric.

    EVALUATION/measures/turns.parquet     metrics of the clips
    EVALUATION/measures/judge.parquet     scores of a multimodal model
    EVALUATION/measures/study.parquet     scores made of people's ranks

Every table and curve of the report is a mean over some of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError, disk_errors
from pipeline.core.records import Record, arrow_schema

Better = Literal["higher", "lower"]
_ROWS_AT_ONCE = 8192


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
    """Write a table of measures as they come, atomically. DiskError if it cannot be written."""
    schema, left = arrow_schema(Measure), iter(measures)
    with replacing(path) as temporary, disk_errors(path), pq.ParquetWriter(temporary, schema) as writer:
        while rows := [measure.model_dump() for measure in islice(left, _ROWS_AT_ONCE)]:
            writer.write_table(pa.Table.from_pylist(rows, schema))


def read_measures(path: Path) -> Iterator[Measure]:
    """Yield the measures of a table; a missing file is an empty table. UserError if the file is damaged."""
    if not path.exists():
        return
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    yield Measure.model_construct(**row)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} is damaged ({error}); delete it, and measure again") from error


def all_measures(evaluation: Path) -> Iterator[Measure]:
    """Yield the measures of all tables of an evaluation, without the partial files of killed commands.

    Raises:
        UserError: a table is damaged.
    """
    for path in sorted((evaluation / "measures").glob("[!.]*.parquet")):
        yield from read_measures(path)
