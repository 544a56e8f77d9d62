"""Files of each trainer with their grammars: keys, types and values of configurations and tables."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from tests.support.trainers.grammar.ai_toolkit import Toolkit
from tests.support.trainers.grammar.diffusion_pipe import Pipe, PipeData
from tests.support.trainers.grammar.finetrainers import Finetrainers
from tests.support.trainers.grammar.musubi_tuner import Musubi
from tests.support.trainers.grammar.onetrainer import OneTrainer
from tests.support.trainers.grammar.simpletuner import Tuner, TunerData
from tests.support.trainers.grammar.tables import FunRow, SynthRow

FILES: dict[str, dict[str, TypeAdapter[Any]]] = {
    "musubi-tuner": {"dataset.toml": TypeAdapter(Musubi)},
    "diffusion-pipe": {"dataset.toml": TypeAdapter(PipeData), "config.toml": TypeAdapter(Pipe)},
    "onetrainer": {"config.json": TypeAdapter(OneTrainer)},
    "ai-toolkit": {"config.yaml": TypeAdapter(Toolkit)},
    "simpletuner": {"multidatabackend.json": TunerData, "config/clips/config.json": TypeAdapter(Tuner)},
    "diffsynth": {"metadata.jsonl": TypeAdapter(list[SynthRow])},
    "finetrainers": {"training.json": TypeAdapter(Finetrainers)},
    "videox-fun": {"metadata.json": TypeAdapter(list[FunRow])},
}
"""Files beside clips, captions and the command, by trainer."""
