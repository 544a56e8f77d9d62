"""Random sample, simple or stratified, of the kept clips of a dataset for an audit, stored in `sample.json`.

A stratified sample has at least a few clips of each stratum. The clips are in random order, so the labelled part of an
unfinished audit is a random sample too. The sample names spans of film, so it stays valid in a dataset built again.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from pipeline.core.atomic import write_json
from pipeline.core.errors import UserError
from pipeline.core.records import Record, faults_of

SIZE = 200
"""Default number of clips in a sample, or all clips if there are fewer."""
AUDIT_FOLDER = "audit"
SAMPLE_FILE = f"{AUDIT_FOLDER}/sample.json"
ANSWERS_FILE = f"{AUDIT_FOLDER}/answers.jsonl"
AUDIT_FILES = (SAMPLE_FILE, ANSWERS_FILE)
LEAST_OF_STRATUM = 5
Strata = Literal["level", "character"]


class Span(Record):
    """Piece of film that was a clip when the sample was drawn."""

    film_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    start_seconds: float = Field(ge=0)
    end_seconds: float
    stratum: str = ""


class AuditSample(Record):
    """Sample of an audit (`sample.json`)."""

    seed: int
    by: Strata | None = Field(description="null: a simple random sample")
    blind: bool = Field(description="true: the page hides the machine's answers")
    strata: dict[str, int] = Field(description="kept clips of each stratum when the sample was drawn")
    spans: tuple[Span, ...] = Field(description="in random order")


def draw(spans: Sequence[Span], size: int | None, by: Strata | None, seed: int, blind: bool) -> AuditSample:
    """Draw a sample, by default of `SIZE` clips; the same spans and seed give the same sample.

    Raises:
        UserError: the sample would be larger than the dataset, or smaller than the number of strata.
    """
    size = size or min(SIZE, len(spans))
    if size > len(spans):
        raise UserError(f"the dataset keeps {len(spans)} clips, fewer than --size {size}; lower or omit --size")
    strata: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        strata[span.stratum].append(span)
    if len(strata) > size:
        raise UserError(f"--by {by} makes {len(strata)} strata; give at least that --size, or omit --by")
    populations = {name: len(strata[name]) for name in sorted(strata)}
    chance = random.Random(seed)
    drawn = [span for name, count in _shares(populations, size).items() for span in chance.sample(strata[name], count)]
    chance.shuffle(drawn)
    return AuditSample(seed=seed, by=by, blind=blind, strata=populations, spans=tuple(drawn))


def read_sample(root: Path) -> AuditSample | None:
    """Return the sample of the dataset in `root`; None if none was drawn. Raises UserError if the file is damaged."""
    path = root / SAMPLE_FILE
    if not path.is_file():
        return None
    try:
        return AuditSample.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path}: is not a sample ({faults_of(error)}); restore it, or start another audit") from error


def save_sample(root: Path, sample: AuditSample) -> None:
    """Write the sample of the dataset in `root`."""
    write_json(root / SAMPLE_FILE, sample.model_dump(mode="json"))


def _shares(populations: Mapping[str, int], size: int) -> dict[str, int]:
    """Return the number of clips to draw of each stratum: a few of each, then in proportion."""
    least = min(LEAST_OF_STRATUM, size // len(populations))
    counts = {name: min(population, least) for name, population in populations.items()}
    for _ in range(size - sum(counts.values())):
        open_strata = [name for name, population in populations.items() if counts[name] < population]
        rarest = min(open_strata, key=lambda name: (counts[name] + 1) / populations[name])
        counts[rarest] += 1
    return counts
