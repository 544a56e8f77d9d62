"""Distillation of a tiny checkpoint by the training loop: both parts, killed and resumed, and teachers it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from models.checkpoint import Checkpoint
from models.config import Distillation, Sampling
from models.engine_options import EngineOptions
from models.game import Game
from pipeline.core.errors import UserError
from tests.support.networks.small_run import STEPS, small_dataset, small_recipe
from tests.support.networks.tiny_models import adapted_checkpoint, mini_checkpoint, tiny_checkpoint
from training.config import Recipe
from training.data.order import Batches
from training.phases.collapse import SIGNS
from training.phases.distill import DistillExamples, check_teacher
from training.phases.shot import ShotExamples
from training.run import TrainingRun
from training.run_folder import RunFolder
from training.snapshots import take_snapshot
from training.trainer import StepReport
from training.trial import try_phase


class KilledError(Exception):
    """Simulated kill: no object of the process is used afterwards."""


def distilling(
    folder: Path, start: Path | None = None, watch: Callable[[StepReport], None] | None = None
) -> TrainingRun:
    run_folder = RunFolder(folder, str(small_dataset()), watch=watch, shared_features=folder.parent / "features")
    return TrainingRun(run_folder, recipe(), start or adapted_checkpoint())


def recipe() -> Recipe:
    loop = {"snapshot_every": 4, "ema_decay": 0.9}
    return small_recipe(validation={"pictures": 1}, distill={"loop": loop, "guidance": 3.0, "adversarial": 0.03})


def weights(result: Path) -> dict[str, torch.Tensor]:
    return {
        f"{path.name}:{name}": tensor
        for path in sorted((result / "shot_decoder").glob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[StepReport]]:
    """Both parts in one go."""
    folder, reports = tmp_path_factory.mktemp("distilled") / "whole", []
    assert distilling(folder, watch=reports.append).distill() == folder / "distill" / "result"
    return folder, reports


@pytest.mark.slow
def test_the_result_is_a_checkpoint_of_four_unguided_steps(whole: tuple[Path, list[StepReport]]) -> None:
    folder, reports = whole
    steps = [("guide", 1), ("guide", 2), *(("distill", step) for step in range(1, STEPS + 1))]
    assert [(report.phase, report.step) for report in reports] == steps
    between, result = (Checkpoint.open(folder / phase / "result") for phase in ("guide", "distill"))
    assert between.config.sampling == Sampling(guidance=1.0)
    assert between.config.distilled == Distillation(guidance=3.0)
    assert result.config.sampling == Sampling(sampler="renoise", steps=4, guidance=1.0)
    assert result.config.distilled == Distillation(guidance=3.0, steps=4)
    trained = [each["phase"] for each in json.loads((result.folder / "trained.json").read_text())["phases"]]
    assert trained == ["adapt", "guide", "distill"]
    game = Game.load(result.folder, EngineOptions("cpu"))
    assert (game.engine.sampling.steps, game.engine.guidance.is_off) == (4, True)
    first, second = (next(Game.load(result.folder, EngineOptions("cpu")).play("Hana runs")) for _ in range(2))
    assert (first.frames_THWC == second.frames_THWC).all()
    named = {
        name
        for name, tensor in weights(result.folder).items()
        if not torch.equal(tensor, weights(between.folder)[name])
    }
    assert any("lora_B" in name for name in named)


@pytest.mark.slow
def test_signs_of_collapse_and_a_flat_critic_are_logged(whole: tuple[Path, list[StepReport]]) -> None:
    folder, reports = whole
    for phase in ("guide", "distill"):
        last = [report for report in reports if report.phase == phase][-1].figures
        assert {f"val/{sign}{suffix}" for sign in SIGNS for suffix in ("", "_teacher")} <= last.keys()
        assert {"val/loss_099", "val/loss_899"} <= last.keys()
        assert list((folder / phase / "pictures").rglob("sheet.png"))
    taught = ["loss/student" in report.figures for report in reports if report.phase == "distill"]
    assert taught == [True, False, True, False, True, False]
    assert all(
        {"loss/critic", "loss/judge"} <= report.figures.keys() for report in reports if report.phase == "distill"
    )
    assert ["loss/apart" in report.figures for report in reports if report.phase == "distill"] == taught


@pytest.mark.slow
def test_killed_and_resumed_it_ends_with_the_same_bytes(whole: tuple[Path, list[StepReport]]) -> None:
    folder = whole[0].parent / "killed"
    shutil.copytree(whole[0], folder, ignore=shutil.ignore_patterns("distill"))

    def watch(report: StepReport) -> None:
        if report.step == 3:
            raise KilledError

    with pytest.raises(KilledError):
        distilling(folder, watch=watch).distill()
    expected, found = weights(whole[0] / "distill" / "result"), weights(distilling(folder).distill())
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []


@pytest.mark.slow
def test_a_snapshot_of_it_plays(whole: tuple[Path, list[StepReport]]) -> None:
    distill = whole[0] / "distill"
    written = weights(distill / "snapshots" / "step-00000004")
    shutil.rmtree(distill / "snapshots")
    again = take_snapshot(distill, 4)
    assert all(torch.equal(tensor, written[name]) for name, tensor in weights(again).items())
    assert Checkpoint.open(again).config.distilled == Distillation(guidance=3.0, steps=4)


def test_all_random_numbers_come_from_the_position_and_a_step_shares_its_length() -> None:
    settings = recipe().distill

    class Turn:
        clip_id = "one"

        class sample:  # noqa: N801
            class motion:  # noqa: N801
                scope_px = 5.0

    class Cache:
        def get(self, name: str, _clip: str) -> torch.Tensor:
            return torch.zeros(2, 2, 3, 4, 4) if name == "latents" else torch.zeros(2, 3)

    absent = {"predictions": torch.zeros(2, 3)}
    examples = DistillExamples(ShotExamples([Turn()] * 6, Cache(), absent, seed=1), settings)  # type: ignore[list-item, arg-type]
    lengths = set()
    for batch in Batches(6, 4, 0, steps=range(40)):
        found = [examples[position] for position in batch]
        assert len({len(each.noises_KTCHW) for each in found}) == 1
        assert {each.teaches for each in found} == {batch[0].step % settings.generator_every == 0}
        assert all(20 <= each.student_timestep <= 980 for each in found)
        again = examples[batch[0]]
        assert torch.equal(again.noises_KTCHW, found[0].noises_KTCHW)
        assert again.critic_timestep == found[0].critic_timestep
        assert not torch.equal(found[0].student_noise_TCHW, found[1].student_noise_TCHW)
        lengths.add(len(found[0].noises_KTCHW))
    assert lengths == {1, 2, 3, 4}


def refused(folder: Path, **changes: Any) -> Checkpoint:
    checkpoint = Checkpoint.open(adapted_checkpoint())
    return Checkpoint(folder, checkpoint.config.replaced(**changes))


def test_teachers_that_cannot_teach_are_refused(tmp_path: Path) -> None:
    adapted = Checkpoint.open(adapted_checkpoint())
    check_teacher("guide", adapted)
    with pytest.raises(UserError, match=r"is not adapted, .*: run `animegamer train adapt` first"):
        check_teacher("guide", Checkpoint.open(tiny_checkpoint()))
    shutil.copytree(adapted.folder, tmp_path / "game", copy_function=shutil.copy)
    (tmp_path / "game" / "trained.json").write_text('{"phases": [{"phase": "game", "step": 9, "steps": 9}]}')
    with pytest.raises(UserError, match="is not adapted"):
        check_teacher("guide", Checkpoint.open(tmp_path / "game"))
    guided, few = {"guidance": 3.0}, {"guidance": 3.0, "steps": 4}
    check_teacher("distill", refused(adapted.folder, distilled=guided))
    shutil.copytree(adapted.folder, tmp_path / "guide", copy_function=shutil.copy)  # of a teacher without a note
    (tmp_path / "guide" / "trained.json").write_text('{"phases": [{"phase": "guide", "step": 9, "steps": 9}]}')
    check_teacher("distill", refused(tmp_path / "guide", distilled=guided))
    for name, distilled in (("guide", guided), ("guide", few), ("distill", few)):
        with pytest.raises(UserError, match=r"is distilled already, .*: start from adapt/result"):
            check_teacher(name, refused(adapted.folder, distilled=distilled))
    with pytest.raises(UserError, match=r"needs guidance, and distill\.guide\.steps is 0"):
        check_teacher("distill", adapted)


def test_a_teacher_of_another_size_is_refused_before_encoding(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json and the recipe differ in size: train from another checkpoint"):
        distilling(tmp_path / "run", mini_checkpoint()).distill()
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_a_missing_teacher_is_named_before_the_data_is_read(tmp_path: Path) -> None:
    run = TrainingRun(RunFolder(tmp_path / "run", str(tmp_path / "no data")), recipe())
    with pytest.raises(UserError, match=r"adapt/result does not exist yet: run `animegamer train adapt` first"):
        run.distill()


def test_weights_that_would_be_sharded_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    for asked in (distilling(tmp_path / "run").distill, lambda: try_phase("guide", recipe())):
        with pytest.raises(UserError, match=r"distill: teacher and critic share weights, .*: train with DDP"):
            asked()


def test_few_steps_of_a_checkpoint_that_was_not_distilled() -> None:
    plain = Checkpoint.open(adapted_checkpoint()).config
    with pytest.raises(UserError, match=r"renoise is for a checkpoint distilled to few steps, which this one is not"):
        EngineOptions(sampler="renoise").sampling_of(plain)
    assert EngineOptions().doubt(plain) is None
    assert EngineOptions(speed="fast").doubt(plain) is None
    assert "4 steps of a checkpoint that was not distilled to few steps draw coarse" in (
        EngineOptions(steps=4).doubt(plain) or ""
    )
    four = Sampling(sampler="renoise", steps=4, guidance=1.0)
    distilled = plain.replaced(sampling=four, distilled=Distillation(guidance=6.0, steps=4))
    assert EngineOptions().sampling_of(distilled) == EngineOptions(speed="fast").sampling_of(distilled) == four
    assert EngineOptions().doubt(distilled) is None
    assert "comes on top and burns" in (EngineOptions(guidance=2.0).doubt(distilled) or "")
    assert "was trained for 4 steps of renoise" in (EngineOptions(steps=8).doubt(distilled) or "")


@pytest.mark.slow
def test_another_guidance_of_the_teacher_is_another_run(whole: tuple[Path, list[StepReport]], tmp_path: Path) -> None:
    folder = shutil.copytree(whole[0], tmp_path / "whole", copy_function=shutil.copy)
    start = Path(shutil.copytree(adapted_checkpoint(), tmp_path / "start"))
    assert distilling(folder, start).distill() == folder / "distill" / "result"
    config = json.loads((start / "config.json").read_text())
    (start / "config.json").write_text(json.dumps(config | {"sampling": {"steps": 25}}))
    with pytest.raises(UserError, match=r"guide was begun with another sampling\.steps: name another --out"):
        distilling(folder, start).distill()
