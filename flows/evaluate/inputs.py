"""Inputs of an evaluation as the user names them: agents, reference pictures, networks and dataset.

Imports no torch, so that a mistyped folder is an error at once and not after the games are played.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from PIL.Image import Image

from models.config import CONFIG as CHECKPOINT
from models.config import LevelScale
from pipeline.captions.cast import reference_pictures
from pipeline.core.config import ClipSettings, MotionSettings
from pipeline.core.errors import UserError
from pipeline.core.plain_text import first_few
from pipeline.core.store import Dataset, open_dataset
from training.baselines.config import CONFIG as BASELINE
from training.evaluation.benchmark import Benchmark
from training.evaluation.metrics.network_sources import check_clip, check_dreamsim

CLIPS = "[!.]*.mp4"
TOKENS = "tokens:"
"""Word before the folder of a checkpoint that draws real clips again, each from its own shot tokens."""
_MOST_LISTED = 5
"""Characters named in a sentence; more are counted."""


@dataclass(frozen=True)
class TypedAgent:
    """An agent as the user named it."""

    name: str
    folder: Path
    holds: Literal["checkpoint", "baseline", "clips", "tokens"]

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse NAME=FOLDER or NAME=tokens:FOLDER, and look into the folder.

        Raises:
            UserError: the text has another form, or the folder holds nothing that plays or was played.
        """
        name, equals, source = text.partition("=")
        if not equals or not source:
            raise UserError(f"--agent {text}: give NAME=FOLDER, such as `--agent ours=run/adapt/result`")
        folder = Path(source.removeprefix(TOKENS))
        held = _held_by(folder)
        if not source.startswith(TOKENS):
            return cls(name, folder, held)
        if held != "checkpoint":
            raise UserError(
                f"--agent {text}: {folder} is no checkpoint; name a result of training, as run/joint/result"
            )
        return cls(name, folder, "tokens")


def clips_of(folder: Path) -> list[Path]:
    """Return the clips of all games in a folder, without hidden files."""
    return sorted(folder.glob(f"[!.]*/{CLIPS}"))


def _held_by(folder: Path) -> Literal["checkpoint", "baseline", "clips"]:
    if (folder / BASELINE).exists():
        return "baseline"
    if (folder / CHECKPOINT).exists():
        return "checkpoint"
    if clips_of(folder):
        return "clips"
    raise UserError(
        f"{folder} holds no checkpoint ({CHECKPOINT}), baseline ({BASELINE}) or clips of games (GAME/0001.mp4); cut a "
        "film of a whole game into one clip per turn"
    )


@dataclass(frozen=True)
class Yardsticks:
    """Reference pictures, networks and dataset to measure with."""

    cast: Path | None = None
    """Reference pictures, a folder per character."""
    clip: str | None = None
    """CLIP, by id or folder."""
    dreamsim: Path | None = None
    """Folder of DreamSim's weights."""
    data: Path | None = None
    """Dataset that the agents were trained on: its optical flow, level edges and real clips."""
    notes: tuple[str, ...] = ()
    """Sentences of the user for the head of the report."""
    levels: LevelScale | None = None
    """Measurement of the levels by the data of a checkpoint, for use without the dataset."""

    @property
    def options(self) -> tuple[str, ...]:
        """The same as options of `animegamer evaluate run`."""
        paths = {"--cast": self.cast, "--dreamsim": self.dreamsim, "--data": self.data}
        named = [(option, str(path.absolute())) for option, path in paths.items() if path]
        named += [("--clip", self.clip)] if self.clip else []
        return tuple(word for pair in (*named, *(("--note", note) for note in self.notes)) for word in pair)

    def check(self) -> None:
        """Raise a UserError for a picture or folder that cannot be used."""
        _ = self.pictures, self.dataset
        if self.clip:
            check_clip(self.clip)
        if self.dreamsim:
            check_dreamsim(self.dreamsim)

    @cached_property
    def pictures(self) -> dict[str, list[Image]]:
        """Reference pictures of each character, read once. UserError if a picture or the folder cannot be used."""
        return reference_pictures(self.cast) if self.cast else {}

    @cached_property
    def dataset(self) -> Dataset | None:
        """The dataset. UserError if there is none in the folder."""
        return open_dataset(self.data) if self.data else None

    @property
    def motion(self) -> MotionSettings:
        """The dataset's settings of optical flow, with its level edges; else those of a checkpoint."""
        if self.dataset is None:
            levels = self.levels
            return MotionSettings(scale=levels.dis_scale, edges=levels.edges) if levels else MotionSettings()
        record = self.dataset.record
        settings = MotionSettings.model_validate(record.config.get("motion", {}))
        return settings.model_copy(update={"edges": record.edges or settings.edges})

    @property
    def clip_size(self) -> tuple[int, int]:
        """Width and height of the dataset's clips, in whose pixels its level edges are measured."""
        if self.dataset is None and self.levels:
            return self.levels.width, self.levels.height
        record = {} if self.dataset is None else self.dataset.record.config.get("clips", {})
        clips = ClipSettings.model_validate(record)
        return clips.width, clips.height

    def truths(self, benchmark: Benchmark) -> dict[str, Path]:
        """Return the real clips of panels that exist on disk, by clip id."""
        if self.dataset is None:
            return {}
        ids = {panel.clip_id for game in benchmark.games for panel in game.panels if panel.clip_id}
        paths = {clip_id: self.dataset.folder(clip_id.rsplit("-", 1)[0]).clip_path(clip_id) for clip_id in ids}
        return {clip_id: path for clip_id, path in paths.items() if path.exists()}

    def left_out(self, benchmark: Benchmark) -> Iterator[str]:
        """Yield a sentence per missing yardstick, with the metrics that it leaves out and the option that adds them."""
        if not self.clip:
            yield "CLIP-I, CLIP-T, CLIP-T^E and CLIP-T action are not measured: --clip names a CLIP."
        if not self.dreamsim:
            yield "DreamSim is not measured: --dreamsim names the folder of its weights."
        if not self.cast:
            yield "CLIP-I, DreamSim, identity, cast shown and copies are not measured: --cast names reference pictures."
        elif not benchmark.characters:
            yield "CLIP-I, DreamSim, identity and cast shown are not measured: the benchmark names no character."
        else:
            yield from self._lacking_in_cast(benchmark)

    def _lacking_in_cast(self, benchmark: Benchmark) -> Iterator[str]:
        known = self.pictures.keys()
        if unknown := [name for name in benchmark.characters if name not in known]:
            found = f"{first_few(unknown, _MOST_LISTED)}; it has {first_few(sorted(known), _MOST_LISTED)}"
            yield f"Characters without pictures in --cast are not measured: {found}."
        shown = [known & set(panel.characters) for game in benchmark.games for panel in game.panels]
        if any(shown) and not any(0 < len(names) < len(known) for names in shown):
            yield "Identity and cast shown are not measured: turns name all of --cast; pictures of others bring them."
