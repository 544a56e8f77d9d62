"""Claims of the world in miniature: what counts as right in a turn, and the figures of whole games."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from flows.demos.miniature.claims import Shown, hits_of, measure_claims
from flows.demos.miniature.dataset import build_datasets, films_of
from flows.demos.miniature.judge_network import Judge, Named
from flows.demos.world.puppet_motions import COAT_ON, PLANT
from models.config import mini_config
from models.untrained import new_checkpoint
from tests.flows.demos.test_miniature_judge import FACTS

STILL = np.zeros((17, 64, 96, 3), np.uint8)
RIGHT = Named(
    frozenset({"Yuki", "Haru"}), frozenset({"Haru"}), "beach", night=True, flag=True, what="wave", actor="Yuki"
)


def test_a_turn_is_as_asked_if_who_where_and_what_are_right() -> None:
    hits = hits_of(Shown(FACTS, STILL, 2), RIGHT)
    assert {field for field, hit in hits.items() if not hit} == {"level drawn"}
    assert {
        "as asked",
        "who",
        "where",
        "what",
        "by whom",
        "night",
        "raincoats",
        "flag",
        "level predicted",
    } <= hits.keys()
    for wrong in ({"who": frozenset({"Yuki"})}, {"where": "shrine"}, {"what": "dance"}):
        hits = hits_of(Shown(FACTS, STILL, 2), replace(RIGHT, **wrong))
        assert [field for field in ("as asked", *wrong) if hits[field]] == []
    assert hits_of(Shown(FACTS, STILL, 2), replace(RIGHT, night=False, raincoats=frozenset()))["as asked"]


def test_facts_that_a_turn_names_or_leaves_open_are_counted_apart() -> None:
    named = hits_of(Shown(FACTS.model_copy(update={"time_named": True}), STILL, 2), RIGHT)
    assert "night" not in named
    assert named["night, named"]
    dressing = hits_of(Shown(FACTS.model_copy(update={"motion": COAT_ON}), STILL, 2), RIGHT)
    assert "raincoats" not in dressing
    planting = hits_of(Shown(FACTS.model_copy(update={"motion": PLANT}), STILL, 2), RIGHT)
    assert not {"flag", "no flag"} & planting.keys()
    assert hits_of(Shown(FACTS.model_copy(update={"flag": False}), STILL, 2), RIGHT)["no flag"] is False


@pytest.mark.slow
def test_games_along_the_stories_are_named_with_and_without_their_past(tmp_path: Path) -> None:
    (film,) = films_of("unseen", 1, unseen=True, stories=1)
    short = replace(film, scenes=film.scenes[:4])
    build_datasets(tmp_path, {"unseen": [short]})
    (tmp_path / "dataset").symlink_to(tmp_path / "unseen")
    torch.manual_seed(0)
    (tmp_path / "judge" / "result").mkdir(parents=True)
    Judge().save(tmp_path / "judge" / "result", Judge().state_dict())
    new_checkpoint(tmp_path / "model" / "adapt" / "result", mini_config())
    measure_claims(tmp_path)
    found = json.loads((tmp_path / "claims.json").read_text())
    kinds = {"recorded", "played", "played without past", "by chance"}
    assert [set(each) for each in found.values()] == [kinds, kinds]
    level = found["unseen"]["recorded"]["level drawn, or a neighbour"]
    assert level["turns"] == sum(scene.clips for scene in short.scenes)
    assert level["low"] <= level["share"] <= level["high"]
    assert level["share"] > 0.8, "recorded clips of 96x64 still have about their level"
