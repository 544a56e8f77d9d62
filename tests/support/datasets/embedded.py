"""Small complete dataset whose clips are embedded by random networks of the real form."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.core.config import Config
from pipeline.core.embed_settings import EmbedSettings
from pipeline.core.stage import perform
from pipeline.core.store import Dataset
from pipeline.stages.embed import Embed
from tests.support import onnx_networks as onnx
from tests.support.datasets.made_dataset import make_dataset

LEFT = (16, 32, 32, 64, 0.9)
RIGHT = (48, 32, 32, 64, 0.8)
"""Halves of a picture of 64x64 pixels, as middle, size and score of a figure."""


def embed(dataset: Dataset, settings: EmbedSettings) -> None:
    """Embed all films, and note the networks as a build does."""
    for folder in dataset.folders():
        perform(Embed(settings), folder)
    config = Config(embed=settings).model_dump(mode="json", exclude={"run"})
    dataset.save(dataset.record.model_copy(update={"config": config}))


def embedded_dataset(root: Path, figures: Sequence[Sequence[float]] | None = None, films: int = 1) -> Dataset:
    """Make a dataset with vectors of whole pictures, or of these figures on each picture."""
    dataset = make_dataset(root / "data", films=films)
    onnx.processor(root)
    settings = {"pictures": str(onnx.picture_encoder(root / "pictures.onnx"))}
    if figures is not None:
        settings |= {
            "figures": str(onnx.detector(root / "figures.onnx", figures)),
            "characters": str(onnx.picture_encoder(root / "characters.onnx")),
        }
    embed(dataset, EmbedSettings.model_validate(settings))
    return dataset
