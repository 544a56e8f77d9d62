"""A run from its first step to its last checkpoint: killed and gone on with, by one process and by two, done twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from diffusers import CogVideoXTransformer3DModel
from peft import PeftModel
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]
from torch import Tensor
from transformers import MistralForCausalLM

from models.checkpoint import Checkpoint
from models.engine_options import EngineOptions
from models.game import Game
from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.core.toml import as_toml
from pipeline.publish.shards import write_shards
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.small_run import (
    STEPS,
    small_dataset,
    small_recipe,
    small_run,
    start,
    train_through_kills,
    weights,
)
from tests.support.networks.tiny_models import brief_checkpoint, copy_of_tiny
from training.config import Precision, Recipe
from training.data.shards import open_shards
from training.recipes import ALL, merged, tiny
from training.run import TrainingRun
from training.run_folder import RunFolder
from training.snapshots import take_snapshot
from training.trainer import StepReport


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[StepReport]]:
    """All phases in one go, with a look at held-out clips at the end of each."""
    folder, reports = tmp_path_factory.mktemp("whole"), []
    (folder / ".start-k1ll3d").mkdir()
    run = small_run(folder, recipe(), watch=reports.append)
    for result in (run.shot(), run.game(), run.adapt()):
        assert Checkpoint.open(result).config.level_values == (0.5, 2.5, 10.0, 15.0, 40.0)
    return folder, reports


def recipe() -> Recipe:
    return small_recipe(
        validation={"pictures": 1},
        shot={"joint": {"ema_decay": 0.9, "snapshot_every": 4}},
        game={"loop": {"ema_decay": 0.9, "ema_on_cpu": True}},
    )


@pytest.mark.slow
def test_every_phase_trains_looks_and_leaves_a_checkpoint_that_plays(whole: tuple[Path, list[StepReport]]) -> None:
    folder, reports = whole
    assert not (folder / ".start-k1ll3d").exists()
    assert [(report.phase, report.step) for report in reports] == [
        (phase, step) for phase in ALL for step in range(1, (2 if phase == "warm-up" else STEPS) + 1)
    ]
    last = {report.phase: report.figures for report in reports}
    assert {"val/loss", "val/loss_099", "val/loss_899"} <= last["joint"].keys()
    assert {"val/state", "val/shot_tokens", "val/loss_without_past", "val/loss_1_turns"} <= last["game"].keys()
    assert (folder / "joint" / "pictures" / "step-00000006" / "sheet.png").exists()
    assert (folder / "adapt" / "pictures" / "step-00000006" / "clips.mp4").exists()
    assert list((folder / "log" / "game").glob("events*"))
    checkpoint = Checkpoint.open(folder / "adapt" / "result")
    assert "Hana" in checkpoint.config.characters
    assert checkpoint.config.game_model.window_turns == 3  # the longest windows of the recipe: play sees no more
    assert json.loads((checkpoint.folder / "config.json").read_text())["sampling"]["steps"] == 50
    (turn,) = Game.load(checkpoint.folder, EngineOptions(steps=2)).play("Hana runs over the waves")
    assert turn.frames_THWC.shape == (16, 32, 48, 3)  # the clips have 16; the 17th repeats the last


@pytest.mark.slow
def test_plain_diffusers_and_plain_peft_load_what_was_trained(whole: tuple[Path, list[StepReport]]) -> None:
    checkpoint = Checkpoint.open(whole[0] / "adapt" / "result")
    adapters = load_file(checkpoint.folder / "shot_decoder" / "pytorch_lora_weights.safetensors")
    transformer = CogVideoXTransformer3DModel.from_pretrained(
        Checkpoint.open(whole[0] / "start").base("transformer").id
    )
    transformer.load_lora_adapter(
        str(checkpoint.folder / "shot_decoder"), prefix=None, weight_name="pytorch_lora_weights.safetensors"
    )
    loaded = {name.replace(".default_0", ""): tensor for name, tensor in transformer.state_dict().items()}
    assert adapters
    assert all(torch.equal(loaded[name], tensor) for name, tensor in adapters.items())
    base = MistralForCausalLM.from_pretrained(checkpoint.base("language_model").id)
    base.resize_token_embeddings(32284, mean_resizing=False)
    model = PeftModel.from_pretrained(base, str(checkpoint.folder / "game_model"))
    assert model.get_base_model().lm_head.weight.shape[0] == 32284


@pytest.mark.nightly
def test_killed_in_each_phase_it_ends_with_the_same_bytes(whole: tuple[Path, list[StepReport]], tmp_path: Path) -> None:
    train_through_kills(tmp_path / "killed", recipe(), (("joint", 3), ("game", 5), ("adapt", 1)))
    expected, found = weights(whole[0]), weights(tmp_path / "killed")
    assert expected.keys() == found.keys()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []


def precise(precision: str) -> dict[str, dict[str, str]]:
    """Changes of a recipe to one precision in all phases."""
    return {section: {"precision": precision} for section in ("shot", "game", "adapt")}


def trained_by_command(whole: Path, out: Path, precision: str, *words: str) -> dict[str, Tensor]:
    """Weights after all phases by `animegamer train all`, from the start of another run."""
    config = out.with_suffix(".toml")
    config.write_text(as_toml(Recipe.model_validate(merged(recipe().model_dump(), precise(precision)))))
    command = [sys.executable, "-m", "flows.cli", "train", "all", "--data", str(small_dataset()), "--out", str(out)]
    done = subprocess.run(
        [*command, "--config", str(config), "--from", str(whole / "start"), *words],
        env={**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == f"{out}/adapt/result\n"
    return weights(out)


def most_apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[key] - other[key]).abs().max()) for key in one)


@pytest.mark.nightly
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_two_processes_by_the_documented_command_train_as_one(
    whole: tuple[Path, list[StepReport]], tmp_path: Path, precision: str
) -> None:
    launch = Path(__file__).parents[2] / "training" / "launch" / "2-cpus-ddp.yaml"
    two = trained_by_command(whole[0], tmp_path / "two", precision, "--accelerate", str(launch))
    full = weights(whole[0])
    one = full if precision == "no" else trained_by_command(whole[0], tmp_path / "one", precision)
    assert Checkpoint.open(tmp_path / "two" / "joint" / "snapshots" / "step-00000004").config.size == "tiny"
    assert most_apart(one, two) < 2e-4  # a few steps of 1e-3: sums in another order, which Adam's division enlarges
    if precision == "bf16":
        assert most_apart(one, full) > 1e-3
    else:
        check_log(whole[1], tmp_path / "two" / "log")


def check_log(reports: list[StepReport], log: Path) -> None:
    """Check that two processes, each with half the validation, found the figures of one; and the tracked speed."""
    for phase in ("joint", "game"):
        [last] = [each.figures for each in reports if each.phase == phase and each.step == each.steps]
        events = EventAccumulator(str(log / phase), size_guidance={"images": 0}).Reload()
        tags = events.Tags()
        found = {name: events.Scalars(name)[-1].value for name in tags["scalars"]}
        expected = {name: value for name, value in last.items() if name.startswith("val/loss")}
        assert expected
        assert {name: found[name] for name in expected} == pytest.approx(expected, rel=2e-3)
        assert found["step_seconds"] > 0
        assert 0 <= found["waiting"] < 1
        assert ("tokens_a_second" in found) == (phase == "game")
        assert tags["images"] == (["val/clips"] if phase == "joint" else [])


@pytest.mark.nightly
@pytest.mark.parametrize(("precision", "most"), [("no", 1e-4), ("bf16", 2e-3)])
def test_two_processes_that_share_the_weights_train_as_one(
    whole: tuple[Path, list[StepReport]], tmp_path: Path, precision: Precision, most: float
) -> None:
    launcher, reports = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"), whole[1]
    described = Recipe.model_validate(merged(recipe().model_dump(), precise(precision)))
    if precision != "no":
        reports = []
        one = small_run(tmp_path / "one", described, watch=reports.append)
        for train in (one.shot, one.game, one.adapt):
            train()
    process = start(tmp_path / "sharded", described, *launcher, ACCELERATE_USE_CPU="true")
    told, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors[-3000:]
    assert "FSDPCogVideoXBlock" in errors
    assert "FSDPMistralDecoderLayer" in errors
    expected = {(report.phase, report.step): report.figures["loss"] for report in reports}
    losses = {(phase, int(step)): float(loss) for phase, step, loss in map(str.split, told.splitlines())}
    assert losses == pytest.approx(expected, rel=most)
    if precision == "no":
        assert most_apart(weights(whole[0]), weights(tmp_path / "sharded")) < 2e-4


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shot": {"joint": {"batch_size": 3}}}, "joint: 2 processes cannot share a batch of 3"),
        (
            {"autoencoder": {"stills": {"steps": 1, "learning_rate": 1e-3, "batch_size": 3}}},
            "autoencoder.stills: 2 processes cannot share a batch of 3",
        ),
    ],
)
def test_a_batch_that_two_processes_cannot_share_is_refused_before_encoding(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    odd = Recipe.model_validate(merged(recipe().model_dump(), change))
    process = start(tmp_path / "odd", odd, *launcher, ACCELERATE_USE_CPU="true")
    _, errors = process.communicate(timeout=300)
    assert process.returncode != 0
    assert said in errors, errors
    assert {path.name for path in (tmp_path / "odd").glob("*")} <= {".lock", "catalogs", "start"}


@pytest.mark.slow
def test_a_run_never_mixes_recipes_data_or_starts(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = small_run(folder, small_recipe(shot={"warm_up": {"steps": 1}, "joint": {"steps": 1}}))
    first = run.shot()
    lines: list[str] = []
    again = small_run(folder, run.recipe, say=lines.append)
    assert again.shot() == first
    assert lines == ["warm-up: done already", "joint: done already"]
    slower = small_recipe(shot={"warm_up": {"steps": 1}, "joint": {"steps": 1, "learning_rate": 1e-4}})
    with pytest.raises(
        UserError, match=r"joint was begun with another recipe\.joint\.learning_rate: name another --out"
    ):
        small_run(folder, slower).shot()
    with pytest.raises(UserError, match=r"config\.json and the recipe differ in shot_encoder"):
        small_run(folder, small_recipe(model={"shot_encoder": {"variant": "linear"}})).shot()
    with pytest.raises(UserError, match=r"game.result does not exist yet: run `animegamer train game` first; or name"):
        small_run(folder, run.recipe).adapt()
    other = tmp_path / "data"
    shutil.copytree(small_dataset(), other)
    index = json.loads((other / "shards" / "index.json").read_text())
    index["shards"] = index["shards"][:-1]
    (other / "shards" / "index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="warm-up was begun with another data"):
        small_run(folder, run.recipe, other).shot()


@pytest.mark.slow
def test_a_run_of_several_datasets_keeps_their_order(tmp_path: Path) -> None:
    other = make_dataset(tmp_path / "other", films=1, scenes=4, captioner=MODEL, names=("other.mkv",))
    write_shards(other, ShardSettings(val_share=0))
    both = [str(small_dataset()), str(other.root)]
    recipe = small_recipe(shot={"warm_up": {"steps": 1}, "joint": {"steps": 0}})
    small_run(tmp_path / "run", recipe, both).shot()
    small_run(tmp_path / "run", recipe, both).shot()
    with pytest.raises(UserError, match="warm-up was begun with another order"):
        small_run(tmp_path / "run", recipe, both[::-1]).shot()


def test_a_run_with_an_unfinished_phase_takes_no_other_start(tmp_path: Path) -> None:
    (tmp_path / "warm-up" / "result").mkdir(parents=True)
    (tmp_path / "joint" / "states").mkdir(parents=True)
    run_folder = RunFolder(tmp_path, str(small_dataset()))
    with pytest.raises(UserError, match=r"joint.result does not exist yet: .*; --from is for a run without"):
        TrainingRun(run_folder, small_recipe(), brief_checkpoint()).game()


def test_what_is_no_phase_has_no_snapshots(tmp_path: Path) -> None:
    (tmp_path / "autoencoder" / "states" / "step-00000002").mkdir(parents=True)
    with pytest.raises(
        UserError, match=r"autoencoder has no snapshots: choose one of the phases warm-up, joint, game, adapt"
    ):
        take_snapshot(tmp_path / "autoencoder")


@pytest.mark.nightly
def test_a_phase_with_more_steps_goes_on_until_a_later_one_has_used_its_result(tmp_path: Path) -> None:
    def run(joint: int, game: int = 1) -> TrainingRun:
        steps = {"warm_up": {"steps": 1}, "joint": {"steps": joint, "snapshot_every": 3}}
        recipe = small_recipe(shot=steps, game={"loop": {"steps": game}}, adapt={"loop": {"steps": 1}})
        return small_run(tmp_path, recipe, watch=reports.append)

    reports: list[StepReport] = []
    run(4).shot()
    first = load_file(tmp_path / "joint" / "result" / "shot_encoder.safetensors")
    take_snapshot(tmp_path / "joint")  # in the place where the result will be
    result = run(8).shot()
    assert [report.step for report in reports if report.phase == "joint"] == list(range(1, 9))
    rates = [report.figures["learning_rate"] for report in reports if report.phase == "joint"]
    assert rates[3] < rates[4] < rates[1]  # nearly 0 at the end of the first cosine, then on the longer one
    snapshots = tmp_path / "joint" / "snapshots"
    assert sorted(path.name for path in snapshots.iterdir()) == ["step-00000003", "step-00000004", "step-00000006"]
    kept = load_file(snapshots / "step-00000004" / "shot_encoder.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in first.items())
    trained = json.loads((result / "trained.json").read_text())["phases"]
    assert trained == [
        {"phase": "warm-up", "step": 1, "steps": 1},
        {"phase": "joint", "step": 8, "steps": 8},
    ]
    with pytest.raises(UserError, match=r"joint has done 8 steps: its steps can be raised, but not be 7"):
        run(7).shot()
    run(8).game()
    run(8, game=2).game()
    with pytest.raises(
        UserError, match=r"joint has 8 steps, and game was begun from its result: for 9 steps, continue in a new"
    ):
        run(9).shot()


@pytest.mark.slow
def test_ablations_that_share_a_folder_of_features_encode_once(tmp_path: Path) -> None:
    encoded: list[list[str]] = []
    changes = {"one": {}, "other": {"shot": {"dropout": 0.5}}, "random": {"shot": {"frame": "random"}}}
    for name, changed in changes.items():
        encoded.append([])
        options = {"shared_features": tmp_path / "all", "watch_features": lambda name, *_: encoded[-1].append(name)}
        assert small_run(tmp_path / name, small_recipe(**changed), **options).features() == tmp_path / "all"
    assert [set(names) for names in encoded] == [{"latents", "patches", "text"}, set(), {"patches"}]
    assert not (tmp_path / "one" / "features").exists()


@pytest.mark.nightly
def test_two_datasets_train_one_model_and_other_weights_another(tmp_path: Path) -> None:
    other = make_dataset(tmp_path / "other", films=1, scenes=4, clips=2, captioner=MODEL, names=("other.mkv",))
    write_shards(other, ShardSettings(samples=3, val_share=0.3))
    data, lines = [str(small_dataset()), f"{other.root}=2"], []
    brief = {"warm_up": {"steps": 0}, "joint": {"steps": 1}}
    changes = {"shot": brief, "game": {"loop": {"steps": 1}}, "adapt": {"loop": {"steps": 1}}}
    run = small_run(tmp_path / "run", small_recipe(**changes), data, names="apart", say=lines.append)
    for train in (run.shot, run.game, run.adapt):
        result = train()
    clips = [
        sum(shard.entry.samples for shard in open_shards(place, "train")) for place in (small_dataset(), other.root)
    ]
    assert f"joint: {clips[0] + 2 * clips[1]} examples, 1 steps" in lines
    shown = [line for line in lines if "windows an epoch" in line]
    for line, name, weight, count in zip(shown, (small_dataset().name, "other"), (1, 2), clips, strict=True):
        assert line.startswith(f"game: {name}, weight {weight}: {count} windows an epoch: ")
    tracked = EventAccumulator(str(tmp_path / "run" / "log" / "game")).Reload()
    shares = [tracked.Scalars(f"windows/{turns}_turns")[0].value for turns in (1, 2, 3)]
    assert sum(shares) == pytest.approx(1)
    assert shares == pytest.approx([1 / 3] * 3, abs=0.1)
    assert {"other Hana", f"{small_dataset().name} Hana"} <= set(Checkpoint.open(result).config.characters)
    with pytest.raises(UserError, match="joint was begun with another data"):
        small_run(tmp_path / "run", run.recipe, [data[0], str(other.root)], names="apart").shot()


def test_a_base_that_is_another_network_is_refused_before_encoding(tmp_path: Path) -> None:
    start = copy_of_tiny(tmp_path / "start")
    shutil.rmtree(start / "bases" / "language_model")
    shutil.copytree(start / "bases" / "text_encoder", start / "bases" / "language_model")
    described = Recipe.model_validate(merged(tiny().model_dump(), {"game": {"windows": {"most_turns": 2}}}))
    run = TrainingRun(RunFolder(tmp_path / "run", str(small_dataset())), described, start)
    with pytest.raises(UserError, match="it is a t5, where language_model must be mistral"):
        run.features()
    assert not list((tmp_path / "run").rglob("*.safetensors"))
