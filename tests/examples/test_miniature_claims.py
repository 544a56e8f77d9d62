"""Claims of the world in miniature: what counts as right in a turn, and the figures of whole games."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np
import pytest
import torch

from examples.miniature.claims import (
    AT_ONCE,
    FIELDS,
    GAMES,
    TURNS,
    MeasuredModel,
    long_games,
    measure,
    measure_claims,
    measure_drift,
    measured_models,
)
from examples.miniature.dataset import TRAINED, build_datasets, films_of
from examples.miniature.figures import Figure, figure, values_of
from examples.miniature.games import ScriptedTurn, Shown, exchanged, read_stories
from examples.miniature.recogniser_network import Named, Recogniser
from examples.miniature.tables import write_tables
from examples.miniature.truth import SceneFacts
from examples.world.puppet_motions import COAT_ON, PLANT
from models.config import Distillation, Sampling, mini_config
from models.untrained import new_checkpoint
from pipeline.core.errors import UserError
from tests.examples.test_miniature_recogniser import FACTS
from training.baselines.folder import new_mini_gc
from training.baselines.router import NEUTRAL

WINDOW = 5
RIGHT = Named(
    frozenset({"Yuki", "Haru"}), frozenset({"Haru"}), "beach", night=True, flag=True, what="wave", actor="Yuki"
)
CHANGE = {"turns": 70, "games": 7, "mean": -0.09, "low": -0.18, "high": 0.0}
KINDS = ("recorded", "reconstructed", "played", "played without guidance", "played without past", "by chance")


def shown(facts: SceneFacts = FACTS, flag_age: int = 1, *, repeated: bool = False, **changes: Any) -> Shown:
    ages = {"flag_age": flag_age, "coats_age": 1}
    scripted = ScriptedTurn(None, facts, repeated=repeated, **ages)  # type: ignore[arg-type]  # its clip is not looked at
    still = np.zeros((17, 64, 96, 3), np.uint8)
    return replace(Shown(scripted, still, level=2, state=(1, 1, -1), seconds=0.5), **changes)


def values(each: Shown, named: Named = RIGHT) -> dict[str, float]:
    return values_of(each, named, WINDOW)


def test_a_turn_is_as_asked_if_who_where_and_what_are_right() -> None:
    found = values(shown())
    numbers = {"level drawn, error": 1, "seconds": 0.5, "saturation": 0, "sharpness": 0}
    assert {field: found[field] for field in numbers} == numbers
    assert {field for field in found.keys() - numbers.keys() if not found[field]} == {"level drawn"}
    assert {
        "as asked",
        "who",
        "where",
        "what",
        "by whom",
        "night",
        "raincoats, told",
        "level predicted",
        "states",
    } < set(found)
    for wrong in ({"who": frozenset({"Yuki"})}, {"where": "shrine"}, {"what": "dance"}):
        found = values(shown(), replace(RIGHT, **wrong))
        assert [field for field in ("as asked", *wrong) if found[field]] == []
    assert values(shown(), replace(RIGHT, night=False, raincoats=frozenset()))["as asked"]
    assert not values(shown(state=(1, 1, 1)))["states"]


def test_facts_that_a_turn_names_or_leaves_open_are_counted_apart() -> None:
    named = values(shown(FACTS.model_copy(update={"time_named": True})))
    assert "night" not in named
    assert named["night, named"]
    assert not any("raincoats" in field for field in values(shown(FACTS.model_copy(update={"motion": COAT_ON}))))
    assert values(shown(FACTS.model_copy(update={"raincoats": ()})))["no raincoats, told"] is False
    assert values(shown(FACTS.model_copy(update={"shows_flag": False})))["no flag, told"] is False
    held_out = values(shown(FACTS.model_copy(update={"held_out": ("motion x place",)})))
    assert held_out["as asked, motion x place"] is True
    assert "as asked, new scene" not in held_out
    two = values(shown(FACTS.model_copy(update={"characters": ("Hana", "Yuki"), "level": 5})))
    assert {"as asked, two characters", "as asked, level 5"} < two.keys()
    assert not {"as asked, one character", "as asked, two characters"} <= two.keys()


def test_scenes_that_training_has_too_are_counted_apart() -> None:
    kinds = [{field for field in values(shown(repeated=repeated)) if "scene" in field} for repeated in (False, True)]
    assert kinds == [{"as asked, new scene"}, {"as asked, repeated scene"}]
    others = {"film": "more-1", "story": 3, "scene": 9, "start_seconds": 7.5, "time_named": True, "held_out": ("x",)}
    assert FACTS.model_copy(update=others).look == FACTS.look
    for seen in ({"level": 3}, {"place": "shrine"}, {"raincoats": ()}, {"flag": False}, {"time_of_day": "day"}):
        assert FACTS.model_copy(update=seen).look != FACTS.look


def test_a_flag_counts_by_the_turns_since_it_was_told() -> None:
    flags = {
        age: {field for field in values(shown(flag_age=age)) if "flag" in field} for age in (1, WINDOW - 1, WINDOW)
    }
    assert flags == {1: {"flag, told"}, 4: {"flag, told"}, 5: {"flag, not told"}}
    assert not any("flag" in field for field in values(shown(FACTS.model_copy(update={"shows_flag": None}))))


def test_a_figure_is_a_mean_with_its_interval() -> None:
    hits = figure([(number, number < 95) for number in range(100)])  # a game each
    assert (hits["turns"], hits["mean"]) == (100, 0.95)
    assert (hits["low"], hits["high"]) == (pytest.approx(0.887, abs=0.001), pytest.approx(0.979, abs=0.001))
    errors = figure(list(enumerate([0.0, 1.0, 2.0, 1.0])))
    assert (errors["mean"], errors["high"] - 1) == (1, pytest.approx(1 - errors["low"]))
    assert errors["high"] - 1 == pytest.approx(3.182 * stdev([0, 1, 2, 1]) / 2, rel=1e-3), "Student's t of 3"


def test_intervals_of_games_that_differ_hold_the_truth() -> None:
    dice, held, truth = np.random.default_rng(0), 0, 0.87
    for _ in range(400):
        shares = dice.beta(truth * 9, (1 - truth) * 9, size=7)  # of seven games: correlation within one .1
        twins = [(game, bool(dice.random() < share)) for game, share in enumerate(shares) for _ in range(14)]
        found = figure(twins + twins)
        held += found["low"] <= truth <= found["high"]
    assert held >= 0.9 * 400, f"{held} of 400; about 60 % if every turn is a sample of its own"


def test_turns_exchanged_keep_their_scripts() -> None:
    turns = [shown(level=level) for level in (1, 2, 3)]
    other = exchanged(turns, seed=1)
    assert [each.scripted for each in other] == [each.scripted for each in turns]
    assert sorted(each.level for each in other) == [1, 2, 3]


@pytest.fixture(scope="module")
def measured_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """World of one short story, an untrained recogniser, an untrained model and an untrained GC."""
    out = tmp_path_factory.mktemp("world")
    (film,) = films_of("unseen", 1, "unseen", stories=1)
    build_datasets(out, {"unseen": [replace(film, scenes=film.scenes[:4])]})
    for name in TRAINED:
        (out / name).symlink_to(out / "unseen")
    torch.manual_seed(0)
    (out / "recogniser" / "result").mkdir(parents=True)
    Recogniser().save(out / "recogniser" / "result", Recogniser().state_dict())
    model = new_checkpoint(out / "model" / "adapt" / "result", mini_config())
    new_mini_gc(out / "variants" / "gc" / "gc" / "result", model)
    return out


@pytest.mark.slow
def test_facts_age_from_the_turn_that_told_them_or_the_beginning(measured_world: Path) -> None:
    (story,) = read_stories(measured_world, "unseen", "val")
    for number, turn in enumerate(story):
        there = [
            earlier
            for earlier, before in enumerate(story[:number])
            if before.facts.place == turn.facts.place
            and (before.facts.motion == PLANT or before.facts.shows_flag is not None)
        ]
        assert turn.flag_age == number - (there[-1] if there else 0)
        seen = [
            max((at for at, before in enumerate(story[:number]) if name in before.facts.characters), default=0)
            for name in turn.facts.characters
        ]
        assert turn.coats_age == number - min(seen)


@pytest.mark.slow
def test_figures_by_an_earlier_recogniser_do_not_stay_beside_new_ones(measured_world: Path, tmp_path: Path) -> None:
    for part in ("truth.jsonl", *TRAINED, "unseen", "model", "variants"):
        (tmp_path / part).symlink_to(measured_world / part)
    shutil.copytree(measured_world / "recogniser", tmp_path / "recogniser")
    models = measured_models(tmp_path)

    def figures(model: MeasuredModel, recogniser: Recogniser) -> tuple[Any, str]:
        return {"model": model.name}, "right"

    measure(tmp_path, "claims", 0, models, figures)
    assert {path.stem for path in (tmp_path / "claims").iterdir()} == {"model", "gc", "made"}
    Recogniser().save(tmp_path / "recogniser" / "result", Recogniser().state_dict())
    measure(tmp_path, "claims", 0, models[:1], figures)
    assert {path.stem for path in (tmp_path / "claims").iterdir()} == {"model", "made"}
    with pytest.raises(UserError, match=r"no trained model in .*: run the steps to `adapt`, or `unpack`"):
        measure(tmp_path, "claims", 0, [], figures)


@pytest.mark.nightly
def test_games_along_the_stories_are_measured_once(measured_world: Path) -> None:
    few = {"distilled": Distillation(guidance=2, steps=4), "sampling": Sampling(sampler="renoise", steps=4, guidance=1)}
    new_checkpoint(measured_world / "model" / "distill" / "result", mini_config().replaced(**few))
    measure_claims(measured_world)
    claims = measured_world / "claims"
    path = claims / "unseen" / "model.json"
    both: list[Mapping[str, Any]] = [
        json.loads((claims / name / "model.json").read_text()) for name in ("val", "unseen")
    ]
    kinds = {"played", "played without past", "played without guidance", "recorded", "reconstructed", "by chance"}
    assert [set(each) for each in both] == [kinds, kinds]
    distilled = json.loads((claims / "unseen" / "distilled.json").read_text())
    assert set(distilled) == {"played"}
    error = both[1]["recorded"]["level drawn, error"]
    assert error["turns"] == len(read_stories(measured_world, "unseen", "val")[0])
    assert (error["games"], error["low"], error["high"]) == (1, None, None), "one game has no interval"
    assert error["mean"] < 0.3, "recorded clips still have about their level"
    baseline: Mapping[str, Any] = json.loads((claims / "unseen" / "gc.json").read_text())
    assert set(baseline) == {"played"}
    turns = read_stories(measured_world, "unseen", "val")[0]
    neutral = [turn.facts.state == (NEUTRAL.social, NEUTRAL.entertainment, NEUTRAL.stamina) for turn in turns]
    assert baseline["played"]["states"]["mean"] == np.mean(neutral)
    made = path.stat().st_mtime_ns
    measure_claims(measured_world)
    assert path.stat().st_mtime_ns == made


@pytest.mark.slow
def test_long_games_are_measured_by_tens(measured_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stories = read_stories(measured_world, "unseen", "val") * 16
    lengths = [len(game) for game in long_games(stories)]
    assert lengths == [min(TURNS, 2 * len(stories[0]))] * GAMES
    monkeypatch.setattr("examples.miniature.claims.GAMES", 1)
    monkeypatch.setattr("examples.miniature.claims.TURNS", 4)
    monkeypatch.setattr("examples.miniature.claims.AT_ONCE", 2)
    measure_drift(measured_world)
    found = json.loads((measured_world / "drift" / "model.json").read_text())
    assert list(found) == ["changes", "changes, reconstructed", "turns 1-2", "turns 3-4"]
    change, without_drift, first, last = (found[part]["saturation"]["mean"] for part in found)
    assert change == pytest.approx(last - first)
    assert without_drift != change
    assert found["turns 1-2"].keys() == set(FIELDS)
    assert AT_ONCE == 10


def figures(share: float) -> Mapping[str, Figure]:
    around = {"turns": 196, "games": 7, "mean": share, "low": share - 0.05, "high": share + 0.05}
    return {
        "as asked": around,
        "level drawn": around,
        "level drawn, error": around | {"mean": 0.4, "low": 0.3, "high": 0.5},
        "saturation": around,
        "sharpness": around,
        "seconds": around | {"mean": 0.8, "low": None, "high": None},
    }


def measured(out: Path, name: str, share: float, kinds: tuple[str, ...] = ("played",)) -> None:
    for data in ("val", "unseen"):
        (out / "claims" / data).mkdir(parents=True, exist_ok=True)
        (out / "claims" / data / f"{name}.json").write_text(json.dumps({kind: figures(share) for kind in kinds}))


def section(text: str, title: str) -> list[str]:
    """Return the lines of a table by its title."""
    _, _, rest = text.partition(f"## {title}\n\n")
    return rest.split("\n\n")[0].splitlines()


def test_models_stand_side_by_side_and_seeds_have_a_mean(tmp_path: Path) -> None:
    measured(tmp_path, "model", 0.87, KINDS)
    for name, share in (("seed-2", 0.8), ("seed-1", 0.76), ("short", 0.46), ("distilled", 0.85)):
        measured(tmp_path, name, share)
    (tmp_path / "claims" / "val" / "made.json").write_text("{}")
    (tmp_path / "drift").mkdir()
    changes = {"as asked": CHANGE, "saturation": CHANGE, "sharpness": CHANGE | {"low": None, "high": None}}
    tens = {"turns 1-10": figures(0.9), "turns 41-50": figures(0.81)}
    (tmp_path / "drift" / "model.json").write_text(
        json.dumps(tens | {"changes": changes, "changes, reconstructed": {"as asked": CHANGE}})
    )
    text = write_tables(tmp_path).read_text()
    models = section(text, "`val`: all models")[0]
    assert models == "| right in | `model` | `distilled` | `seed-1` | `seed-2` | `short` |"
    seeds = section(text, "`unseen`: runs that differ by their seed alone")
    assert seeds[0] == "| right in | `model` | `seed-1` | `seed-2` | mean (lowest to highest) |"
    assert seeds[2] == "| all three: as asked | 87% (82 to 92) | 76% (71 to 81) | 80% (75 to 85) | 81% (76 to 87) |"
    bounds = section(text, "`val`: the model, and what bounds it")
    assert "Motion level drawn: 100% of what reconstructions reach." in text
    assert bounds[2] == f"| all three: as asked |{' 87% |' * 6}"
    assert section(text, "Games of 50 turns: `model`")[2:] == [
        "| all three: as asked | 90% (85 to 95) | 81% (76 to 86) |",
        "| motion level drawn | 90% (85 to 95) | 81% (76 to 86) |",
        "| its error in levels | 0.40 (0.30 to 0.50) | 0.40 (0.30 to 0.50) |",
        "| saturation | 0.90 (0.85 to 0.95) | 0.81 (0.76 to 0.86) |",
        "| sharpness | 0.90 (0.85 to 0.95) | 0.81 (0.76 to 0.86) |",
        "| seconds a turn | 0.80 | 0.80 |",
    ]
    drift = "as asked -9 points (-18 to +0), saturation -10% (-20 to +0), sharpness -10%."
    assert f"Turns 41-50 against turns 1-10: {drift}" in text
    assert "Their recorded clips, reconstructed: as asked -9 points (-18 to +0)." in text


def test_without_figures_the_step_to_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run the step `claims` first"):
        write_tables(tmp_path)
