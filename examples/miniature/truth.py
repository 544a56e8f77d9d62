"""Truth of clips: the content of their scenes from OUT/truth.jsonl, with facts that instructions do not mention."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.world.puppet_motions import MOTIONS
from pipeline.core.errors import UserError
from pipeline.core.records import Record
from pipeline.publish.samples import Sample, Split
from training.data.shards import open_shards
from training.data.sources import open_index
from training.data.turns import Catalog


class SceneFacts(Record):
    """Line of truth.jsonl."""

    film: str
    """Name of the file without its suffix."""
    story: int
    scene: int
    start_seconds: float
    end_seconds: float
    characters: tuple[str, ...]
    """The actor, then the companion."""
    actor: str
    motion: str
    level: int
    """Motion level by the script."""
    place: str
    time_of_day: str
    time_named: bool
    """True if the instruction names the time of day."""
    raincoats: tuple[str, ...]
    """Characters of the scene in a raincoat when it begins."""
    flag: bool
    """True if a flag was planted in the place before."""
    shows_flag: bool | None
    """True if it is in the picture; None if only at times, since it or the camera moves, or in part."""
    state: tuple[int, int, int]
    """Social, entertainment, stamina."""
    held_out: tuple[str, ...]
    """Kinds of its pairs that OUT/dataset lacks."""
    stays: bool
    """True if it begins where the scene before ended."""
    chance: Mapping[str, Any]
    """Chance, which no caption tells: positions, phase, camera, clouds and passers-by."""

    @property
    def look(self) -> Hashable:
        """Everything that determines its pictures but for chance."""
        return (
            self.characters, self.motion, self.level, self.place, self.time_of_day, self.raincoats, self.flag
        )  # fmt: skip

    @property
    def coats_last(self) -> bool:
        """True if nobody puts a raincoat on or takes it off."""
        return MOTIONS[self.motion].coat is None


@dataclass(frozen=True)
class Truths:
    """Facts of all scenes, by film in order."""

    scenes: Mapping[str, Sequence[SceneFacts]]

    @classmethod
    def read(cls, out: Path) -> Truths:
        """Read OUT/truth.jsonl. UserError without one."""
        path = out / "truth.jsonl"
        if not path.exists():
            raise UserError(f"{path} is missing: run the step `data` first, or name the folder it wrote with --out")
        scenes: dict[str, list[SceneFacts]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            facts = SceneFacts.model_validate(json.loads(line))
            scenes.setdefault(facts.film, []).append(facts)
        return cls(scenes)

    def of(self, sample: Sample) -> SceneFacts:
        """Return the facts of the scene that a clip is from."""
        scenes = self.scenes[sample.film_id.rpartition("-")[0]]
        middle = (sample.start_seconds + sample.end_seconds) / 2
        return scenes[bisect_right([scene.start_seconds for scene in scenes], middle) - 1]

    def looks_in(self, sources: Iterable[tuple[Path, Split]]) -> frozenset[Hashable]:
        """Return the looks of all scenes that have a clip in these splits of datasets; a split may be empty."""
        filled = [each for each in sources if any(entry.split == each[1] for entry in open_index(each[0]).shards)]
        catalogs = [Catalog.read(open_shards(source, split)) for source, split in filled]
        return frozenset(self.of(turn.sample).look for catalog in catalogs for turn in catalog.turns)
