"""Measurement of played games: `measure` gives the measures of every turn, game by game."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
from PIL.Image import Image

from pipeline.core.config import MotionSettings
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from training.evaluation.measures import Measure
from training.evaluation.metrics.appearance import Appearance, hashes_of
from training.evaluation.metrics.features import ClipMotions, EmbeddedFrames, Extractor, Features, HashedFrames
from training.evaluation.metrics.networks import Embeddings, Picture, PictureNetwork, TextNetwork
from training.evaluation.metrics.turn_metrics import (
    Values,
    cast_values,
    copied,
    cost_values,
    likeness,
    mean_rows,
    motion_values,
    nearness,
    place_values,
    state_values,
    style_values,
    words_of,
)
from training.evaluation.played import PlayedTurn, content_hash


@dataclass(frozen=True)
class MetricNetworks:
    """Networks of an evaluation; if one is missing, its metrics are left out."""

    clip: TextNetwork | None = None
    dreamsim: PictureNetwork | None = None
    motion: MotionSettings = field(default_factory=MotionSettings)
    """Optical flow and level edges, ideally from the dataset that the agents were trained on."""
    motion_size: tuple[int, int] | None = None
    """Width and height of the dataset's clips, to which others are scaled. None: motion in each clip's own pixels."""

    @property
    def comparing(self) -> PictureNetwork:
        """Network for identity, cast and places: DreamSim, else CLIP, else the appearance, which needs no weights."""
        return self.dreamsim or self.clip or Appearance()

    @property
    def identities(self) -> dict[str, str]:
        """Identities of the networks by their use, for the record of an evaluation."""
        return {use: network.identity for use, network in self._by_use.items()}

    @property
    def untrained(self) -> list[str]:
        """Uses of networks with random weights."""
        return [use for use, network in self._by_use.items() if network.is_untrained]

    @property
    def _by_use(self) -> dict[str, PictureNetwork]:
        known = {"CLIP": self.clip, "DreamSim": self.dreamsim, "identity, cast and places": self.comparing}
        return {use: network for use, network in known.items() if network}


class Measurer:
    """Measurement of games with given networks and reference pictures.

    Args:
        cast: reference pictures of each character; empty: metrics of characters are left out.
        truths: real clips of panels, by clip id.
    """

    def __init__(
        self,
        features: Path,
        networks: MetricNetworks,
        cast: Mapping[str, Sequence[Image]] | None = None,
        truths: Mapping[str, Path] | None = None,
    ) -> None:
        pictures = {name: [np.asarray(each.convert("RGB")) for each in images] for name, images in (cast or {}).items()}
        self._networks = networks
        self._truths = truths or {}
        self._edges = networks.motion.edges or PUBLISHED_EDGES
        self._motions = ClipMotions(networks.motion, networks.motion_size)
        self._hashes, self._appearance = HashedFrames(), EmbeddedFrames(Appearance())
        self._compared = EmbeddedFrames(networks.comparing)
        self._pictures: dict[str, tuple[EmbeddedFrames, dict[str, Embeddings]]] = {
            metric: (EmbeddedFrames(network), _embedded(network, pictures))
            for metric, network in (("clip_i", networks.clip), ("dreamsim", networks.dreamsim))
            if network
        }
        self._cast = _embedded(networks.comparing, pictures)
        self._cast_hashes = {name: hashes_of(each) for name, each in pictures.items()}
        self._texts: dict[str, Embeddings] = {}
        extractors: list[Extractor] = [self._motions, self._hashes, self._appearance, self._compared]
        extractors += [extractor for extractor, _ in self._pictures.values()]
        self._features = Features(features, list({each.identity: each for each in extractors}.values()))

    def measure(self, turns: Sequence[PlayedTurn]) -> Iterator[Measure]:
        """Yield the measures of one agent's game, its turns in order."""
        panels = [turn.panel for turn in turns]
        truths = [self._truths.get(turn.panel.clip_id or "") for turn in turns]
        self._features.fill([turn.clip for turn in turns] + [truth for truth in truths if truth])
        hashes = [content_hash(turn.clip) for turn in turns]
        values = [self._turn(*each) for each in zip(turns, hashes, truths, strict=True)]
        styles = style_values(panels, mean_rows([self._frames(self._appearance, sha256) for sha256 in hashes]))
        compared = mean_rows([self._frames(self._compared, sha256) for sha256 in hashes])
        places = place_values(panels, compared)
        for turn, *found in zip(turns, values, styles, places, strict=True):
            for metric, value in (pair for each in found for pair in each.items()):
                yield Measure(
                    agent=turn.agent, game=turn.panel.game, turn=turn.panel.turn, metric=metric, value=float(value)
                )

    def _turn(self, turn: PlayedTurn, sha256: str, truth: Path | None) -> Values:
        values = cost_values(turn) | state_values(turn)
        scope_px = float(self._features.of(self._motions, sha256)["scope_px"][0])
        values |= motion_values(scope_px, turn.panel, self._edges)
        values |= cast_values(self._frames(self._compared, sha256), self._cast, turn.panel.characters)
        values |= copied(self._features.of(self._hashes, sha256)["hashes"], self._cast_hashes)
        for metric, (extractor, references) in self._pictures.items():
            found = likeness(self._frames(extractor, sha256), references, turn.panel.characters)
            values |= {} if found is None else {metric: found}
        if truth:
            values |= self._truth(sha256, content_hash(truth))
        return values | self._words(turn, sha256)

    def _truth(self, sha256: str, truth: str) -> Values:
        """Return the similarity of a clip to the real one, by network."""
        extractors = {"appearance": self._appearance}
        extractors |= {metric: extractor for metric, (extractor, _) in self._pictures.items()}
        return {
            f"{metric}_truth": nearness(self._frames(extractor, sha256), self._frames(extractor, truth))
            for metric, extractor in extractors.items()
        }

    def _words(self, turn: PlayedTurn, sha256: str) -> Values:
        if not self._networks.clip:
            return {}
        extractor, _ = self._pictures["clip_i"]
        frames_FD = self._frames(extractor, sha256)
        return {metric: float(np.mean(frames_FD @ self._text(text))) for metric, text in words_of(turn.panel).items()}

    def _text(self, text: str) -> Embeddings:
        assert self._networks.clip
        if text not in self._texts:
            self._texts[text] = self._networks.clip.embed_texts([text])[0]
        return self._texts[text]

    def _frames(self, extractor: Extractor, sha256: str) -> Embeddings:
        return self._features.of(extractor, sha256)["frames"]


def measure(
    turns: Iterable[PlayedTurn],
    features: Path,
    networks: MetricNetworks,
    cast: Mapping[str, Sequence[Image]] | None = None,
    truths: Mapping[str, Path] | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> Iterator[Measure]:
    """Yield the measures of played turns; one game's features are in memory at a time.

    Args:
        turns: turns of agents, the turns of a game in a row.
        features: folder of the cache, `EVALUATION/features`.
        cast: reference pictures of each character, by `pipeline.captions.cast.reference_pictures`.
        done: called with the number of turns measured.

    Raises:
        UserError: a clip cannot be read, or a network cannot be used.
    """
    measurer, measured = Measurer(features, networks, cast, truths), 0
    for _, group in groupby(turns, key=lambda turn: (turn.agent, turn.panel.game)):
        game = list(group)
        yield from measurer.measure(game)
        measured += len(game)
        done(measured)


def _embedded(network: PictureNetwork, pictures: Mapping[str, Sequence[Picture]]) -> dict[str, Embeddings]:
    return {name: network.embed(each) for name, each in pictures.items() if each}
