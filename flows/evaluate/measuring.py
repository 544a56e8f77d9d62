"""Measuring of played games: networks as named by the user, and measures of every turn.

Networks that are not named leave out their metrics, and a note in the report names the option that adds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.engine import device_of
from pipeline.captions.cast import reference_pictures
from pipeline.core.config import ClipSettings, MotionSettings
from pipeline.core.progress import watched
from pipeline.core.store import Dataset
from training.evaluation.benchmark import Benchmark
from training.evaluation.folder import EvaluationFolder
from training.evaluation.measures import write_measures
from training.evaluation.metrics.dreamsim_network import load_dreamsim
from training.evaluation.metrics.measure import MetricNetworks, measure
from training.evaluation.metrics.networks import load_clip


@dataclass(frozen=True)
class Yardsticks:
    """Reference pictures, networks and data set to measure with, as the user named them."""

    cast: Path | None = None
    """Reference pictures, a folder per character."""
    clip: str | None = None
    """CLIP, by id or folder."""
    dreamsim: Path | None = None
    """Folder of DreamSim's weights."""
    data: Path | None = None
    """Data set that the agents were trained on: its optical flow, level edges and real clips."""
    notes: tuple[str, ...] = ()
    """Sentences of the user for the head of the report."""

    @property
    def options(self) -> tuple[str, ...]:
        """The same as options of `animegamer evaluate run`."""
        paths = {"--cast": self.cast, "--dreamsim": self.dreamsim, "--data": self.data}
        named = [(option, str(path.absolute())) for option, path in paths.items() if path]
        named += [("--clip", self.clip)] if self.clip else []
        return tuple(word for pair in (*named, *(("--note", note) for note in self.notes)) for word in pair)


def measure_games(evaluation: EvaluationFolder, yardsticks: Yardsticks, device: str | None) -> EvaluationFolder:
    """Measure every turn that was played, and return the evaluation with notes of what it was measured with.

    Raises:
        UserError: a network, the cast or a clip cannot be used; the message names the remedy.
    """
    place = str(device_of(device))
    networks = MetricNetworks(
        clip=load_clip(yardsticks.clip, place) if yardsticks.clip else None,
        dreamsim=load_dreamsim(yardsticks.dreamsim, place) if yardsticks.dreamsim else None,
        motion=_motion_of(yardsticks.data),
        motion_size=_clip_size(yardsticks.data),
    )
    cast = reference_pictures(yardsticks.cast) if yardsticks.cast else None
    turns = [turn for agent in evaluation.request.agents for turn in evaluation.played(agent.name)]
    with watched("turns", "measure") as watch:
        measures = measure(
            turns,
            evaluation.path / "features",
            networks,
            cast,
            _truths(evaluation.benchmark, yardsticks.data),
            lambda done: watch(done, len(turns)),
        )
        write_measures(evaluation.path / "measures" / "turns.parquet", measures)
    return evaluation.measured_with(yardsticks.options, (*yardsticks.notes, *_notes(yardsticks, networks)))


def _motion_of(data: Path | None) -> MotionSettings:
    """Return a data set's settings of optical flow, with its level edges."""
    if data is None:
        return MotionSettings()
    record = Dataset(data).record
    settings = MotionSettings.model_validate(record.config.get("motion", {}))
    return settings.model_copy(update={"edges": record.edges or settings.edges})


def _clip_size(data: Path | None) -> tuple[int, int]:
    """Width and height of the clips whose pixels the level edges are in; the published edges are for the default."""
    record = {} if data is None else Dataset(data).record.config.get("clips", {})
    clips = ClipSettings.model_validate(record)
    return clips.width, clips.height


def _truths(benchmark: Benchmark, data: Path | None) -> dict[str, Path]:
    """Return the real clips of panels by clip id, as far as they are on disk."""
    if data is None:
        return {}
    ids = {panel.clip_id for game in benchmark.games for panel in game.panels if panel.clip_id}
    paths = {clip_id: Dataset(data).folder(clip_id.rsplit("-", 1)[0]).clip_path(clip_id) for clip_id in ids}
    return {clip_id: path for clip_id, path in paths.items() if path.exists()}


def _notes(yardsticks: Yardsticks, networks: MetricNetworks) -> Iterator[str]:
    if networks.identities:
        yield f"Networks: {'; '.join(f'{use} by {identity}' for use, identity in networks.identities.items())}."
    if networks.untrained:
        yield f"Random weights, whose similarities say nothing about pictures: {'; '.join(networks.untrained)}."
    if not yardsticks.clip:
        yield "CLIP-I, CLIP-T and CLIP-T^E are not measured: --clip names a CLIP."
    if not yardsticks.dreamsim:
        yield "DreamSim is not measured: --dreamsim names the folder of its weights."
    if not yardsticks.cast:
        yield "Characters are not measured: --cast names their reference pictures."
    edges = f"the level edges of {yardsticks.data.name}" if yardsticks.data else "the published level edges"
    width, height = _clip_size(yardsticks.data)
    yield f"Motion: optical flow by {networks.motion.model}, with {edges}, in pixels of clips of {width}x{height}."
