"""Phase d, distillation: examples, validation and result of a shot decoder that draws in few steps without guidance.

| phase | teacher | student learns | result draws |
|---|---|---|---|
| guide | result of adaptation | its guided velocity, on recorded latents | as before, without guidance |
| distill | result of `guide` | to draw like it in few steps, from noise alone | in few steps, without guidance |

`distill_networks.py` has the losses. Both phases take the shot tokens that the game model predicts, as adaptation does.
All that is random comes from the example's position, and all that the examples of a step share from the step's number,
so the training loop needs no other state.

Validation logs the loss on held-out shots at `NOISE_LEVELS`; of `distill` it is the critic's, with the judge's if there
is one. If it is the same at all of them, the critic is flat. It also draws shots with student and teacher from the same
seeds (`collapse.py`).

Letters of the shapes: B batch, K denoising steps, T frames or latent frames, C channels, H W pixels or latent pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from models.checkpoint import Checkpoint
from models.checkpoint_writer import copy_rest, save_config, save_shot_decoder, within
from models.config import Distillation, ModelConfig, Sampling
from models.diffusion import Guidance, draw
from models.engine_options import TIMESTEPS
from models.shot_decoder import ShotDecoder
from pipeline.core.errors import UserError
from pipeline.core.ingredients import read_note
from training.config import DistillPhaseSettings, ValidationSettings
from training.data.order import Examples, Position, chooser, generator, spread, stratified
from training.phase import ALONE, Share
from training.phases.collapse import compared
from training.phases.distill_networks import (
    SCORED,
    FewStepNetworks,
    FewStepShot,
    FewStepShots,
    GuideNetworks,
)
from training.phases.shot import (
    HeldOut,
    NoisedShot,
    NoisedShots,
    ShotExamples,
    loss_by_noise_level,
    preview_decoder,
)
from training.pictures import Comparison, save_comparisons
from training.processes import is_sharded
from training.trainer import TRAINED

DistillNetworks = GuideNetworks | FewStepNetworks
DistillBatch = NoisedShots | FewStepShots


class DistillExamples:
    """Examples of few steps: the conditions of shots, and noise.

    Args:
        shots: recorded shots, of which the conditions are taken; the noise has a seed apart from theirs.
    """

    def __init__(self, shots: ShotExamples, settings: DistillPhaseSettings) -> None:
        self.shots, self.settings = shots, settings

    def __len__(self) -> int:
        return len(self.shots)

    def __getitem__(self, position: Position) -> FewStepShot:
        """Return a training example. All examples of a step have as many denoising steps, so that no process waits."""
        settings, drawn = self.settings, generator(self.shots.seed + 1, position)
        steps = 1 + chooser(settings.loop.seed, Position(position.step, 0))(settings.denoising_steps)
        first, last = SCORED
        timesteps = [first + int((last - first + 1) * stratified(position, drawn)) for _ in range(2)]
        teaches = position.step % settings.generator_every == 0
        return _example(self.shots[position], drawn, steps, timesteps, teaches=teaches)

    def at_noise_level(self, item: int, timestep: int) -> FewStepShot:
        """Return a validation example of all denoising steps, with noise that depends on the item alone."""
        drawn, steps = generator(1, Position(0, item)), self.settings.denoising_steps
        return _example(self.shots.at_noise_level(item, timestep), drawn, steps, [timestep, timestep], teaches=False)


def _example(
    shot: NoisedShot, drawn: torch.Generator, steps: int, timesteps: Sequence[int], *, teaches: bool
) -> FewStepShot:
    shape, (tokens_LD,) = shot.latents_TCHW.shape, shot.conditions
    noises_KTCHW = torch.randn(steps, *shape, generator=drawn)
    student_noise_TCHW, critic_noise_TCHW = torch.randn(2, *shape, generator=drawn)
    return FewStepShot(
        shot.latents_TCHW,
        tokens_LD,
        shot.scope_px,
        noises_KTCHW,
        student_noise_TCHW,
        timesteps[0],
        critic_noise_TCHW,
        timesteps[1],
        teaches,
        shot.before_CHW,
    )


@dataclass(eq=False)
class DistillPhase:
    """Phase `guide` or `distill`, as built by `training/phases/assembly.py`."""

    name: str
    network: DistillNetworks
    examples: Examples
    shown: ShotExamples
    """Shots with their conditions, of which some are drawn in validation."""
    held_out: HeldOut
    validation: ValidationSettings
    checkpoint: Checkpoint
    """The teacher's."""
    config: ModelConfig
    """Configuration of the resulting checkpoint."""
    batches: type[NoisedShots] | type[FewStepShots]
    varied: bool = False

    @property
    def units(self) -> tuple[str, ...]:
        """Names of the blocks that are compiled."""
        return self.network.units

    def size_of(self, _example: NoisedShot | FewStepShot) -> int:
        """Return 1: all examples are of one size."""
        return 1

    def collate(self, examples: Sequence[NoisedShot | FewStepShot]) -> DistillBatch:
        """Collate examples."""
        return self.batches.of(examples)  # type: ignore[arg-type]  # its own kind

    def validate(
        self, network: nn.Module, device: torch.device, pictures: Path | None, share: Share = ALONE
    ) -> dict[str, float]:
        """Return the loss at each noise level and the signs of collapse; save shots of teacher and student."""
        found = loss_by_noise_level(self, network, device, share, self.held_out, self.validation.clips)
        items = spread(len(self.shown), self.validation.pictures)
        if not items:
            return found
        pairs_N2THWC = self._drawn(network, items, device, share)
        teachers_NTHWC, students_NTHWC = pairs_N2THWC.unbind(dim=1)
        if pictures:
            turns = [self.shown.turns[item] for item in items]
            captions = [f"teacher, student: {turn.instruction or turn.clip_id}" for turn in turns]
            pairs = zip(captions, teachers_NTHWC.numpy(), students_NTHWC.numpy(), strict=True)
            save_comparisons(pictures, [Comparison(*pair) for pair in pairs])
        return found | compared(list(teachers_NTHWC), list(students_NTHWC))

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a complete checkpoint: the student as shot decoder, and the rest of the teacher's checkpoint."""
        replaced = save_shot_decoder(folder, self.network.student, within(state, "student."))
        save_config(folder, self.config)
        copy_rest(self.checkpoint, folder, replaced)

    def _drawn(self, network: nn.Module, items: Sequence[int], device: torch.device, share: Share) -> Tensor:
        """Draw shots by teacher and student from the same seeds: [N, 2, T, H, W, C], uint8 on the CPU."""
        inner = network.module if isinstance(network, DistributedDataParallel) else network
        assert isinstance(inner, GuideNetworks | FewStepNetworks)
        decode = preview_decoder(self.checkpoint, device)
        own, steps = self.checkpoint.config.sampling, self.validation.denoising_steps
        if self.name == "guide":
            assert self.config.distilled
            many = own.replaced(steps=steps, guidance=self.config.distilled.guidance)
            few = many.replaced(guidance=1.0)
        else:
            many, few = own.replaced(steps=steps), self.config.sampling
        (absent_LD,) = self.shown.absent.values()

        def drawn(item: int) -> Tensor:
            (tokens_LD,), scope_px = self.shown.conditions(item), self.shown.turns[item].sample.motion.scope_px
            tokens = tokens_LD[None].to(device).float(), absent_LD[None].to(device).float()
            scope_B = torch.tensor([scope_px]) if inner.motion_scope else None
            before_CHW = self.shown.before(item)
            before_BCHW = None if before_CHW is None else before_CHW[None].to(device)

            def by(decoder: ShotDecoder, sampling: Sampling) -> Tensor:
                guidance = Guidance(self.config.conventions.guidance, sampling.guidance, sampling.guided)
                return draw(
                    decoder,
                    *tokens,
                    scope_B,
                    seed=item,  # the same noise in every validation
                    steps=sampling.steps,
                    guidance=guidance,
                    sampler=sampling.sampler,
                    before_BCHW=before_BCHW,
                )

            latents_BTCHW = torch.cat([by(inner.teacher, many), by(inner.student, few)])
            return decode(latents_BTCHW)

        return share.values(items, drawn).cpu()


def config_of_student(name: str, settings: DistillPhaseSettings, teacher: ModelConfig) -> dict[str, object]:
    """Return what a phase of distillation changes in the configuration of a checkpoint."""
    if name == "guide":
        origin = Distillation(guidance=settings.guidance or teacher.sampling.guidance)
        return {"distilled": origin, "sampling": teacher.sampling.replaced(guidance=1.0, guided=(0, TIMESTEPS - 1))}
    assert teacher.distilled, "checked when the phase began"
    origin = Distillation(guidance=teacher.distilled.guidance, steps=settings.denoising_steps)
    return {"distilled": origin, "sampling": Sampling(sampler="renoise", steps=settings.denoising_steps, guidance=1.0)}


def check_unsharded() -> None:
    """Raise a UserError if the weights would be sharded."""
    if is_sharded():
        raise UserError("distill: teacher and critic share weights, which FSDP2 cannot shard: train with DDP")


def check_teacher(name: str, checkpoint: Checkpoint) -> None:
    """Raise a UserError if a phase of distillation cannot take a checkpoint as its teacher."""
    folder, distilled = checkpoint.folder, checkpoint.config.distilled
    if distilled and (distilled.steps or name == "guide"):
        raise UserError(f"{folder} is distilled already, and a copy of a copy gets worse: start from adapt/result")
    if name == "distill":
        if not distilled:
            raise UserError(f"{folder} needs guidance, and distill.guide.steps is 0: raise it to train that part first")
        return  # `guide` checked its teacher, whose phases this result may not name
    trained = read_note(folder / TRAINED)
    phases = None if trained is None else {phase["phase"] for phase in trained["phases"]}
    if checkpoint.untrained() or (phases is not None and "adapt" not in phases):
        raise UserError(
            f"{folder} is not adapted, and a student does not surpass its teacher: run `animegamer train adapt` first"
        )
