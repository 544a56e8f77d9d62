"""Datasets to train on as the user names them: addresses with weights, their files, and the index of their shards.

A dataset is a folder or any fsspec address (http, s3, gs, hf, ...). Imports no torch, so that a mistyped address is
refused at once.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from pipeline.core.errors import UserError
from pipeline.core.records import faults_of
from pipeline.publish.samples import SHARD_SCHEMA
from pipeline.publish.shards import Index
from pipeline.remote.objects import NotThereError, Remote, RemoteError

_WEIGHT = re.compile(r"(?P<address>.+)=(?P<weight>[0-9]{1,3})")
_WAITS_SECONDS = (0.5, 2.0, 8.0)


@dataclass(frozen=True)
class Source:
    """Dataset of a mixture."""

    address: str
    """Folder or address."""
    weight: int = 1
    """Number of times that its clips occur in an epoch."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse an address with an optional weight, such as `films/ponyo=2`. UserError if the weight is 0."""
        match = _WEIGHT.fullmatch(text)
        source = cls(match["address"], int(match["weight"])) if match else cls(text)
        if source.weight < 1:
            raise UserError(f"--data {text} has weight 0; use 1 or more, or leave the dataset out")
        return source

    @property
    def name(self) -> str:
        """Last part of the address."""
        address = self.address if "://" in self.address else str(Path(self.address).resolve())
        return re.sub(r"[\s;:,.]+", " ", address.rstrip("/").rpartition("/")[2]).strip()


def sources_of(texts: Sequence[str]) -> tuple[Source, ...]:
    """Return the datasets of one or several addresses, each with an optional weight; weights are ratios.

    Raises:
        UserError: a weight is 0, or two datasets have one name.
    """
    asked = list(map(Source.of, texts))
    common = gcd(*(source.weight for source in asked))  # so that equal mixtures are equal
    sources = tuple(replace(source, weight=source.weight // common) for source in asked)
    for name, times in Counter(source.name for source in sources).items():
        if times > 1:
            raise UserError(
                f"--data has {times} datasets of the name {name}; rename a folder, or give each dataset once"
            )
    return sources


def shards_at(source: str | Path) -> str:
    """Return the address of the shards of a dataset."""
    return f"{str(source).rstrip('/')}/shards"


def open_index(source: str | Path) -> Index:
    """Read the index of a dataset: its shards, motion levels and their values, counts.

    Args:
        source: folder or address of a dataset, such as `https://host/set` or `s3://bucket/set`.

    Raises:
        UserError: the index is missing or damaged.
    """
    address = f"{shards_at(source)}/index.json"
    with fetched(address) as path:
        try:
            return Index.model_validate_json(path.read_bytes())
        except ValidationError as error:
            if any(fault["loc"] == ("schema",) and isinstance(fault["input"], int) for fault in error.errors()):
                remedy = f"this version reads schema {SHARD_SCHEMA}: run `animegamer build` with it"
                raise UserError(f"{address} is of another schema; {remedy}, or train with the other") from error
            raise UserError(f"{address} is damaged, {faults_of(error)}; build the dataset again") from error


@contextmanager
def fetched(address: str) -> Iterator[Path]:
    """Yield the local path of a dataset's file; a remote file is downloaded and removed afterwards.

    Raises:
        UserError: the file does not exist, or cannot be fetched after several attempts.
    """
    if "://" not in address:
        if not (path := Path(address)).is_file():
            raise UserError(f"{address}: no such file; name a dataset folder that `animegamer build` has finished")
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="animegamer-") as folder:
        path = Path(folder) / "file"
        _fetch(address, path)
        yield path


def _fetch(address: str, path: Path) -> None:
    remote = Remote(address)
    for wait in (*_WAITS_SECONDS, None):
        try:
            remote.fetch_file(path)
            return
        except NotThereError as error:
            raise UserError(f"{address}: no such file; name the address of a whole dataset") from error
        except RemoteError:
            if wait is None:
                raise
            time.sleep(wait)
