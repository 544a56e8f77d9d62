"""The game of the package: the packed model of the miniature draws who and where, by the nearest composed picture."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from examples.miniature.encoders import FITTED
from examples.miniature.package import HELD_OUT, unpack_model
from examples.miniature.story import StoryScene
from examples.world.film import pictures_of
from examples.world.puppet_motions import Cue
from examples.world.scenery import PLACES
from models.checkpoint import Checkpoint
from models.engine import Engine
from models.engine_options import EngineOptions
from models.shipped import PACKED, shipped
from models.turns import GameState, turn_seed
from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.publish.shards import write_shards
from tests.examples.test_miniature_recogniser import FACTS
from tests.support.datasets.made_dataset import make_dataset
from tests.support.networks.tiny_models import mini_checkpoint

MOST_BYTES = 36_000_000
BASE = StoryScene(Cue("Mika", "wave", 2), "meadow")


def still(scene: StoryScene) -> NDArray[np.float64]:
    """Mean picture of a composed scene at the size of the model."""
    pictures = list(pictures_of([scene.drawn("scene")]))[:48]
    small = [cv2.resize(each[:, 50:590, ::-1], (192, 128), interpolation=cv2.INTER_AREA) for each in pictures]
    return np.mean(small, axis=0)


def first_weights(network: nn.Module) -> bytes:
    return next(network.parameters()).detach().numpy().tobytes()


def begin(out: Path, story: int = HELD_OUT["stories-1"]) -> Checkpoint:
    """Write an image encoder, and a dataset that holds out a story of one film."""
    data = make_dataset(out / "dataset", films=1, scenes=2, names=["stories-1.mp4"])
    write_shards(data, ShardSettings(val_share=1))
    facts = FACTS.model_copy(update={"film": "stories-1", "story": story, "start_seconds": 0.0})
    (out / "truth.jsonl").write_text(facts.model_dump_json() + "\n")
    return Checkpoint.open(shutil.copytree(mini_checkpoint(), out / "image_encoder" / "result"))


def test_the_packed_model_is_small() -> None:
    assert sum(path.stat().st_size for path in PACKED.rglob("*") if path.is_file()) <= MOST_BYTES


@pytest.mark.slow
def test_the_packed_model_takes_the_place_of_a_trained_one_but_never_of_a_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run the step `image-encoder` first"):
        unpack_model(tmp_path / "new")
    begun = begin(tmp_path / "new")
    (tmp_path / "new" / "model" / "adapt").mkdir(parents=True)  # as a kill before the link leaves it
    for _ in range(2):
        unpack_model(tmp_path / "new")
    start, trained = (Checkpoint.open(tmp_path / "new" / step) for step in (FITTED, "model/adapt/result"))
    trained_identity = trained.identity()
    assert trained_identity == Checkpoint.open(tmp_path / "new" / "unpacked").identity()
    assert first_weights(start.autoencoder()) == first_weights(trained.autoencoder())
    # else variants would start from a trained model
    assert first_weights(start.shot_decoder()) == first_weights(begun.shot_decoder())
    assert first_weights(start.shot_decoder()) != first_weights(trained.shot_decoder())
    shutil.rmtree(tmp_path / "new" / FITTED)  # as a kill before the start was written leaves it
    (tmp_path / "new").rename(tmp_path / "moved")
    unpack_model(tmp_path / "moved")
    assert Checkpoint.open(tmp_path / "moved" / "model" / "adapt" / "result").identity() == trained_identity
    begun_log = tmp_path / "begun" / "model" / "log" / "events"
    begun_log.parent.mkdir(parents=True)
    begun_log.touch()
    with pytest.raises(UserError, match="begun/model holds a training: name another --out"):
        unpack_model(tmp_path / "begun")
    assert not (tmp_path / "begun" / "model" / "adapt").exists()


def test_stories_that_the_packed_model_was_trained_on_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(tmp_path, story=4)
    unpack_model(tmp_path)
    said = capsys.readouterr().err
    assert "dataset holds out the stories 4 of stories-1, but" in said
    assert "trained without 5 of stories-1, 9 of stories-2" in said


@pytest.mark.slow
def test_turns_show_who_and_where_as_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engine = Engine.load(shipped().folder, EngineOptions("cpu"))
    truth = {
        (name, place): still(replace(BASE, cue=replace(BASE.cue, actor=name), place=place))
        for name in engine.config.characters
        for place in PLACES
    }
    asked = [("Mika", "meadow"), ("Haru", "city street"), ("Yuki", "snowy hill"), ("Kuro", "shrine")]
    state, found = GameState(), []
    for number, (name, place) in enumerate(asked, start=1):
        line = f"Character: {name}; Motion: slightly wave; Background: {'daytime ' if number == 1 else ''}{place}."
        turn, state = engine.next_turn(state, line, turn_seed(0, number))
        drawn = turn.frames_THWC.mean(axis=0)
        found.append(min(truth, key=lambda pair: float(np.abs(truth[pair] - drawn).mean())))
    assert found == asked
