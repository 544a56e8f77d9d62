"""Mixture of datasets that are trained on together, with one set of motion levels, and casts joined or kept apart.

    mixture = Mixture.of(["films/ponyo", "s3://bucket/arrietty=2"])     the clips of the second come twice an epoch
    mixture.catalogs(cached)["train"].parts                             its turns by dataset

A single dataset is read unchanged. Turns of several datasets are changed as they are read; the shards stay:

- motion levels are binned again from the motion scopes, by one set of edges: the datasets' own if they agree,
  otherwise quantiles of all training clips. Scopes of different optical-flow models cannot be compared;
- a character of the same name in two datasets is one character, or two characters whose names begin with the name of
  their dataset: "ponyo Lisa" and "arrietty Lisa".

Each dataset keeps its own split into `train` and `val`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from pipeline.core.errors import UserError
from pipeline.core.ingredients import fingerprint
from pipeline.publish.samples import SPLITS, SampleCaption, Split, instruction_of
from pipeline.publish.shards import Index
from pipeline.stages.motion_levels import Edges, fit_edges, level_of, level_values
from training.config import Names
from training.data.order import Examples, Mixed
from training.data.shards import ShardFile, open_shards
from training.data.sources import Source, open_index, sources_of
from training.data.turns import Catalog, Part, RecordedTurn


@dataclass(frozen=True)
class Mixture:
    """One or more datasets, read when they are needed.

    Attributes:
        sources: the datasets.
        names: treatment of a name that is in several casts.
    """

    sources: tuple[Source, ...]
    names: Names = "joined"

    @classmethod
    def of(cls, data: str | Path | Sequence[str], names: Names = "joined") -> Self:
        """Return the mixture of one or several addresses, each with an optional weight; weights are ratios.

        Raises:
            UserError: a weight is 0, or two datasets have one name.
        """
        texts = [str(data)] if isinstance(data, str | Path) else list(data)
        return cls(sources_of(texts), names)

    @cached_property
    def _indexes(self) -> tuple[Index, ...]:
        return tuple(open_index(source.address) for source in self.sources)

    @property
    def splits(self) -> list[Split]:
        """Splits with shards in any dataset, and `train` in any case."""
        existing = {shard.split for index in self._indexes for shard in index.shards}
        return [split for split in SPLITS if split == "train" or split in existing]

    def shards(self, split: Split) -> list[ShardFile]:
        """Return the shards of a split, by dataset.

        Raises:
            UserError: a dataset cannot be used, or has no `train` split, or has a film or an optical-flow model that
                does not go with the others.
        """
        self._check()
        return [shard for source in self._with(split) for shard in open_shards(source.address, split)]

    def catalogs(self, cached: Path | None = None) -> dict[Split, Catalog]:
        """Return the catalogs of the splits.

        Args:
            cached: folder of the cached catalogs of the datasets.

        Raises:
            UserError: as in `shards`, or the scopes are too few for five levels.
        """
        # 1. Read each dataset by itself, since each has its own splits and its own cache.
        self._check()
        read = {
            split: {source: self._read(source, split, cached) for source in self._with(split)} for split in self.splits
        }
        if len(self.sources) == 1:
            return {split: next(iter(catalogs.values())) for split, catalogs in read.items()}
        # 2. Find edges and names that fit all datasets, and apply them to the turns.
        edges, renamed = self._edges(read["train"].values()), self._renamed(read.values())
        return {split: _joined(catalogs, edges, renamed) for split, catalogs in read.items()}

    def level_values(self, train: Catalog) -> tuple[float, ...] | None:
        """Return the motion scope of each level: the dataset's own, or the medians of the training clips."""
        if len(self.sources) == 1:
            return self._indexes[0].level_values
        return level_values(map(_scope_of, train.turns), train.turns[0].sample.motion.edges)

    def with_turns(self, train: Catalog) -> Iterator[tuple[Source, Part]]:
        """Yield each dataset with its training turns, so that every dataset is checked."""
        yield from zip(self.sources, train.parts, strict=True)

    def _with(self, split: Split) -> list[Source]:
        """Return the datasets that have a split; each must have `train`."""
        pairs = zip(self.sources, self._indexes, strict=True)
        return [one for one, index in pairs if split == "train" or any(shard.split == split for shard in index.shards)]

    def _read(self, source: Source, split: Split, cached: Path | None) -> Catalog:
        name = f"{split}.json" if len(self.sources) == 1 else f"{source.name}-{split}.json"
        return Catalog.read(open_shards(source.address, split), cached / name if cached else None)

    def _check(self) -> None:
        """Raise a UserError for datasets that cannot be mixed, from their indexes alone."""
        models = {index.flow_model: one.name for one, index in zip(self.sources, self._indexes, strict=True)}
        if len(models) > 1:
            found = " and ".join(f"{model} in {name}" for model, name in models.items())
            raise UserError(
                f"motion scopes are measured by different optical-flow models, {found}: build all with one `--flow`"
            )
        owner: dict[str, tuple[str, str]] = {}
        for source, index in zip(self.sources, self._indexes, strict=True):
            for film in sorted({shard.film_id for shard in index.shards}):
                content = film.rpartition("-")[2]  # the part before it is the name of the file
                other, before = owner.setdefault(content, (source.name, film))
                if other != source.name:
                    found = f"in {other} (as {before}) and in {source.name} (as {film})"
                    raise UserError(f"one film is {found}: build one dataset without it")

    def _edges(self, train: Iterable[Catalog]) -> Edges:
        """Return one set of edges for all datasets."""
        turns = [turn for catalog in train for turn in catalog.turns]
        known = {turn.sample.motion.edges for turn in turns}
        return known.pop() if len(known) == 1 else fit_edges(map(_scope_of, turns), "quantiles")

    def _renamed(self, splits: Iterable[Mapping[Source, Catalog]]) -> dict[str, dict[str, str]]:
        """Return the new name of each character that is in several casts, by dataset and name."""
        if self.names == "joined":
            return {}
        casts: dict[str, set[str]] = {source.name: set() for source in self.sources}
        for catalogs in splits:
            for source, catalog in catalogs.items():
                casts[source.name].update(*(turn.sample.caption.characters or () for turn in catalog.turns))
        met = Counter(name for cast in casts.values() for name in cast)
        return {own: {name: f"{own} {name}" for name in sorted(cast) if met[name] > 1} for own, cast in casts.items()}


def by_dataset(catalog: Catalog, make: Callable[[Sequence[RecordedTurn], int], Examples]) -> Examples:
    """Return the examples of one or several datasets, each made from its turns and its number."""
    made = [make(part.turns, number) for number, part in enumerate(catalog.parts)]
    return made[0] if len(made) == 1 else Mixed(made, [part.weight for part in catalog.parts])


def _joined(catalogs: Mapping[Source, Catalog], edges: Edges, renamed: Mapping[str, Mapping[str, str]]) -> Catalog:
    """Return one catalog of several datasets, with new levels and names."""
    parts = []
    for source, catalog in catalogs.items():
        change = _changing(edges, renamed.get(source.name, {}))
        parts.append(Part(tuple(map(change, catalog.turns)), source.weight))
    shards = tuple(shard for catalog in catalogs.values() for shard in catalog.shards)
    content = {shard.name: shard.entry.sha256 for shard in shards}
    names = {name: dict(changes) for name, changes in renamed.items() if changes}
    return Catalog(
        fingerprint({"shards": content, "edges": edges, "names": names}),
        tuple(turn for part in parts for turn in part.turns),
        shards,
        tuple(parts),
        fingerprint(names) if names else "",
    )


def _changing(edges: Edges, names: Mapping[str, str]) -> Callable[[RecordedTurn], RecordedTurn]:
    """Return a function that gives a turn its level by other edges, and its characters other names."""

    def change(turn: RecordedTurn) -> RecordedTurn:
        level = level_of(_scope_of(turn), edges)
        motion = turn.sample.motion.model_copy(update={"level": level, "edges": edges})
        caption, text = turn.sample.caption, turn.instruction
        if names and caption.characters and not names.keys().isdisjoint(caption.characters):
            caption = _with_names(caption, names)
            text = instruction_of(caption)
        sample = turn.sample.model_copy(update={"motion": motion, "caption": caption})
        return turn.model_copy(update={"sample": sample, "instruction": text})

    return change


def _with_names(caption: SampleCaption, names: Mapping[str, str]) -> SampleCaption:
    """Return a caption with other names of characters, also in its sentence."""
    anywhere = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in sorted(names, key=len, reverse=True)))
    sentence = caption.sentence and anywhere.sub(lambda match: names[match[0]], caption.sentence)
    changes = {
        "characters": tuple(names.get(name, name) for name in caption.characters or ()),
        "actor": names.get(caption.actor, caption.actor) if caption.actor else None,
        "sentence": sentence,
    }
    return caption.model_copy(update=changes)


def _scope_of(turn: RecordedTurn) -> float:
    return turn.sample.motion.scope_px
