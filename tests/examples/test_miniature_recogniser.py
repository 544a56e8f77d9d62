"""Recogniser of the world in miniature: what it learns, what is asked of it, and what it keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples.miniature.dataset import ANY_PAIRS, MORE, build_datasets, films_of
from examples.miniature.encoders import FITTED
from examples.miniature.recogniser import LabelledClips, accuracy, labels_of, train_recogniser
from examples.miniature.recogniser_network import HEIGHT, LABELS, WIDTH, Recogniser, loss_of, seen_acting
from examples.miniature.truth import SceneFacts
from examples.world.characters import CAST
from examples.world.puppet_motions import COAT_ON
from models.config import mini_config
from models.untrained import new_checkpoint
from pipeline.core.errors import UserError
from training.config import LoopSettings

FACTS = SceneFacts(
    film="stories-1", story=0, scene=0, start_seconds=0, end_seconds=2, characters=("Yuki", "Haru"), actor="Yuki",
    motion="wave", level=2, place="beach", time_of_day="night", time_named=False, raincoats=("Haru",), flag=True,
    shows_flag=True, state=(1, 1, -1), held_out=(), stays=False, chance={},
)  # fmt: skip


def test_labels_are_the_facts_and_unknown_where_they_change() -> None:
    labels = labels_of(FACTS)
    assert {name for name, value in zip(LABELS["who"], labels["who"], strict=True) if value} == {"Yuki", "Haru"}
    assert {name for name, value in zip(LABELS["raincoats"], labels["raincoats"], strict=True) if value} == {"Haru"}
    assert (LABELS["where"][labels["where"]], LABELS["what"][labels["what"]]) == ("beach", "wave")
    assert (labels["night"].item(), labels["flag"].item()) == (1, 1)
    dressing = labels_of(FACTS.model_copy(update={"motion": COAT_ON}))
    assert dressing["raincoats"].tolist()[:4] == [0, 1, -1, 0]
    assert [labels_of(FACTS.model_copy(update={"shows_flag": it}))["flag"].item() for it in (None, False)] == [-1, 0]


def test_unknown_labels_change_neither_loss_nor_accuracy() -> None:
    torch.manual_seed(0)
    recogniser, frames = Recogniser().eval(), torch.randint(256, (2, 5, 64, 96, 3), dtype=torch.uint8)
    logits = recogniser(frames)
    right = {
        field: (logits[field].argmax(dim=1) if rows.dim() == 0 else (logits[field] > 0).float())
        for field, rows in labels_of(FACTS).items()
    }
    assert set(accuracy(recogniser, LabelledClips(frames, right)).values()) == {1.0}
    wrong = right | {"raincoats": 1 - right["raincoats"]}
    assert accuracy(recogniser, LabelledClips(frames, wrong))["raincoats"] == 0
    unknown = right | {"raincoats": torch.full((2, len(CAST)), -1.0)}
    assert accuracy(recogniser, LabelledClips(frames, unknown))["raincoats"] == 1
    assert loss_of(logits, unknown)["raincoats"].tolist() == [0, 0]


def test_clips_are_worsened_on_the_device_of_the_recogniser() -> None:
    frames_BTHWC = torch.empty(2, 3, HEIGHT, WIDTH, 3, dtype=torch.uint8, device="meta")
    named = Recogniser().to("meta").train()(frames_BTHWC)
    assert {logits_BK.device.type for logits_BK in named.values()} == {"meta"}


def test_a_recogniser_is_read_as_it_was_written(tmp_path: Path) -> None:
    torch.manual_seed(0)
    recogniser, frames = Recogniser(), torch.randint(256, (2, 17, 128, 192, 3), dtype=torch.uint8)
    recogniser.save(tmp_path, recogniser.state_dict())
    assert Recogniser.open(tmp_path).name(frames) == recogniser.name(frames)


def test_what_is_missing_is_named_with_its_step(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"truth.jsonl is missing: run the step `data` first"):
        train_recogniser(tmp_path)
    with pytest.raises(UserError, match="has no trained recogniser: run the step `recogniser` first"):
        Recogniser.open(tmp_path)


@pytest.mark.nightly
def test_a_recogniser_learns_a_few_clips_once_and_says_how_well(tmp_path: Path) -> None:
    (film,) = films_of("stories", 1, stories=1)
    others = {name: films_of(name, 1, "unseen", stories=1) for name in ("unseen", ANY_PAIRS)}
    films = {name: [replace(other, scenes=other.scenes[:4])] for name, (other,) in others.items()}
    more = replace(films_of("more", 1, stories=1)[0], scenes=film.scenes[4:8])
    build_datasets(tmp_path, {"dataset": [film], MORE: [more], **films})
    new_checkpoint(tmp_path / FITTED, mini_config())
    loop = LoopSettings(steps=60, batch_size=8, micro_batch=8, learning_rate=3e-3, save_every=30, validate_every=60)
    recogniser = train_recogniser(tmp_path, loop)
    found = json.loads((tmp_path / "recogniser" / "accuracy.json").read_text())
    assert {"val", "unseen", "unseen, new scenes"} <= found.keys()
    assert all(shares.keys() == {"clips", *LABELS} for shares in found.values())
    assert found["unseen, new scenes"]["clips"] <= found["unseen"]["clips"]
    reconstructed = json.loads((tmp_path / "recogniser" / "reconstructions.json").read_text())
    assert reconstructed["val"]["named"] <= min(reconstructed["val"][field] for field in LABELS) <= 1
    points = [json.loads(line) for line in (tmp_path / "recogniser" / "curve.jsonl").read_text().splitlines()]
    assert points[-1]["where"] == pytest.approx(found["val"]["where"], abs=1e-4)
    assert found["val"]["night"] > 0.8
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "recogniser").rglob("*") if path.is_file()}
    again = train_recogniser(tmp_path, loop)
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "recogniser").rglob("*") if path.is_file()}
    assert all(torch.equal(one, two) for one, two in zip(recogniser.parameters(), again.parameters(), strict=True))


def test_a_recogniser_of_another_world_keeps_its_labels(tmp_path: Path) -> None:
    other = Recogniser({**LABELS, **dict.fromkeys(("who", "actor"), ("Nobody", "Somebody"))})
    other.save(tmp_path, other.state_dict())
    (named,) = Recogniser.open(tmp_path).name(torch.zeros(1, 17, HEIGHT, WIDTH, 3, dtype=torch.uint8))
    assert named.actor in {"Nobody", "Somebody"}


def test_an_actor_is_somebody_who_is_seen_if_anybody_is() -> None:
    who_BK, actor_BK = torch.tensor([[-1.0, 2.0, 1.0], [-1.0, -2.0, -3.0]]), torch.tensor([[9.0, 1.0, 2.0]] * 2)
    actors_B = seen_acting({"who": who_BK, "actor": actor_BK})["actor"].argmax(dim=1)
    assert actors_B.tolist() == [2, 0]
