"""Networks of phase d: a student that learns guidance, then few steps, from a teacher of its own size.

Part 1 takes guidance into the weights (Meng et al., arXiv 2210.03142). The student predicts, in one pass, the velocity
that the teacher needs two passes for:

    L = mean (v_s(x_t, t, c) - [v_u + g (v_c - v_u)])^2,    x_t from recorded latents, t uniform in 0..999

with v_u and v_c the teacher's velocities without and with the shot tokens c, and g its guidance scale.

Part 2 is distribution matching (DMD2: Yin et al., arXiv 2405.14867). The teacher is the student of part 1, so nothing
here is guided. The student draws a sample x in the steps of play: from noise at the first of the sampler's timesteps,
x0 of one step with fresh noise goes into the next. Only the last of these steps has a gradient, and it is drawn anew
for each step of training. The critic, a second network of this size, learns to denoise such samples. The student goes
where the teacher finds them too unlikely, and the critic too likely:

    L_critic  = mean (v_f(x_t, t, c) - v(x, e, t))^2                                      x without a gradient
    L_student = mean (x - stop(x - d))^2 / 2,   d = (x_f - x_r) / (mean |x - x_r| + 1e-6)    t uniform in 20..980

with x_r and x_f the clean latents that teacher and critic predict from x_t. `judge.py` has the adversarial term, which
may be added. The parts of the sum have disjoint weights, so one backward pass gives each its own gradient, and one
optimizer trains all, at paces of their own.

The critic is adapters on the teacher's weights, which both share by reference. They are two modules, because gradient
checkpointing calls a block again in the backward pass: one module with adapters switched on and off would then compute
with the wrong ones.

Letters of the shapes: B batch, K denoising steps, T latent frames, C channels, H and W latent pixels, L shot tokens,
D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from models.config import ShotDecoderConfig
from models.diffusion import Guidance, noised, v_loss
from models.engine_options import TIMESTEPS
from models.prompt_batch import TensorBatch
from models.shot_decoder import ATTENTION, ShotDecoder, add_lora
from training.optimizer import Pace, Paced
from training.phases.condition import Condition
from training.phases.judge import HEAD, Judge
from training.phases.shot import NoisedShots

SCORED = (20, 980)
"""First and last timestep at which teacher and critic judge a sample: at the ends there is no noise, or no signal."""
_CRITIC_TARGETS = (*ATTENTION, "proj_out")
_SMALLEST = 1e-6


class GuideNetworks(nn.Module):
    """Student of guidance, beside its teacher.

    Args:
        unconditional_LD: shot tokens of the unconditional prediction.
        guidance: of the teacher, in runs of so many steps.
    """

    units = ("CogVideoXBlock",)
    scales_t: Tensor
    unconditional_LD: Tensor

    def __init__(
        self,
        teacher: ShotDecoder,
        student: ShotDecoder,
        unconditional_LD: Tensor,
        guidance: Guidance,
        steps: int,
        *,
        motion_scope: bool,
    ) -> None:
        super().__init__()
        self.teacher, self.student, self.motion_scope = teacher, student, motion_scope
        scales_t = torch.tensor([guidance.at(timestep, steps) for timestep in range(TIMESTEPS)])
        self.register_buffer("scales_t", scales_t, persistent=False)
        self.register_buffer("unconditional_LD", unconditional_LD, persistent=False)

    def forward(self, batch: NoisedShots) -> dict[str, Tensor]:
        """Return the squared distance of each example [B] to the guided velocity."""
        noised_BTCHW = noised(batch.latents_BTCHW, batch.noise_BTCHW, batch.timesteps_B)
        scope_B = batch.scope_B if self.motion_scope else None
        condition = Condition(batch.conditions[0].float(), scope_B, batch.before_BCHW)
        with torch.no_grad():
            target_BTCHW = self.guided(condition, noised_BTCHW, batch.timesteps_B)
        found_BTCHW = condition.velocity(self.student, noised_BTCHW, batch.timesteps_B)
        return {"loss": (found_BTCHW - target_BTCHW).square().flatten(1).mean(dim=1)}

    def guided(self, condition: Condition, noised_BTCHW: Tensor, timesteps_B: Tensor) -> Tensor:
        """Return the teacher's guided velocity [B, T, C, H, W]."""
        both = condition.guided(self.unconditional_LD)
        found_BTCHW = both.velocity(self.teacher, noised_BTCHW.repeat(2, 1, 1, 1, 1), timesteps_B.repeat(2))
        without_BTCHW, with_BTCHW = found_BTCHW.chunk(2)
        scales_B1111 = self.scales_t[timesteps_B].view(-1, 1, 1, 1, 1)
        return without_BTCHW + scales_B1111 * (with_BTCHW - without_BTCHW)


@dataclass(frozen=True, eq=False)
class FewStepShot:
    """Example of part 2: a recorded shot, its conditions, and all noise that is drawn for it."""

    latents_TCHW: Tensor
    tokens_LD: Tensor
    scope_px: float
    noises_KTCHW: Tensor
    """Noise at the start of each denoising step up to the last one."""
    student_noise_TCHW: Tensor
    student_timestep: int
    critic_noise_TCHW: Tensor
    critic_timestep: int
    teaches: bool
    """True if the student learns from it; the critic always does. Equal for all examples of a step, as is K."""
    before_CHW: Tensor | None = None
    """The `ending` of the shot before, as in `NoisedShot`."""


@dataclass(frozen=True, eq=False)
class FewStepShots(TensorBatch):
    """Collated examples; the noises are [B, K, T, C, H, W]."""

    latents_BTCHW: Tensor
    tokens_BLD: Tensor
    scope_B: Tensor
    noises_BKTCHW: Tensor
    student_noise_BTCHW: Tensor
    student_timesteps_B: Tensor
    critic_noise_BTCHW: Tensor
    critic_timesteps_B: Tensor
    teaches: bool
    before_BCHW: Tensor | None = None

    @classmethod
    def of(cls, examples: Sequence[FewStepShot]) -> Self:
        """Collate examples of one step."""

        def stacked(name: str) -> Tensor:
            return torch.stack([getattr(example, name) for example in examples])

        def numbers(name: str) -> Tensor:
            return torch.tensor([getattr(example, name) for example in examples])

        return cls(
            stacked("latents_TCHW"),
            stacked("tokens_LD"),
            numbers("scope_px"),
            stacked("noises_KTCHW"),
            stacked("student_noise_TCHW"),
            numbers("student_timestep"),
            stacked("critic_noise_TCHW"),
            numbers("critic_timestep"),
            examples[0].teaches,
            None if examples[0].before_CHW is None else stacked("before_CHW"),
        )


class FewStepNetworks(Paced):
    """Student of few steps, with its critic and its teacher.

    Args:
        critic: made by `critic_of` the teacher.
        timesteps: timesteps of the sampler, from 999 down.
        paces: of each part that is trained.
        judge: for the adversarial term, if there is one.
        adversarial: its weight in the student's loss.
    """

    units = ("CogVideoXBlock",)

    def __init__(
        self,
        teacher: ShotDecoder,
        critic: ShotDecoder,
        student: ShotDecoder,
        timesteps: Sequence[int],
        paces: Mapping[str, Pace],
        judge: Judge | None = None,
        adversarial: float = 0.0,
        *,
        motion_scope: bool,
    ) -> None:
        super().__init__()
        self.student, self.critic, self.teacher = student, critic, teacher
        self.judge, self.adversarial = judge, adversarial
        self.timesteps, self.paces, self.motion_scope = timesteps, paces, motion_scope
        self.register_state_dict_post_hook(_without_shared)  # type: ignore[no-untyped-call]

    def forward(self, batch: FewStepShots) -> dict[str, Tensor]:
        """Return the losses of the parts, and their sum, for each example [B].

        In a batch that does not teach the student, it has none.
        """
        scope_B = batch.scope_B if self.motion_scope else None
        condition = Condition(batch.tokens_BLD.float(), scope_B, batch.before_BCHW)
        drawn_BTCHW = self.drawn(condition, batch.noises_BKTCHW, learns=batch.teaches)
        # 1. Terms of every batch: critic and judge learn what the student draws now.
        every = {"critic": self._denoising_loss(batch, condition, drawn_BTCHW.detach())}
        if self.judge:
            every["judge"] = self._judged(self.judge, batch, condition, drawn_BTCHW.detach())
        loss_B: Tensor = torch.stack([*every.values()]).sum(dim=0)
        # 2. Terms of a batch that teaches the student.
        taught = self._teaching(batch, condition, drawn_BTCHW) if batch.teaches else {}
        if batch.teaches:
            loss_B = loss_B + taught["student"] + self.adversarial * taught.get("adversarial", 0.0)
        elif self.training:
            loss_B = loss_B + self._untouched()
        # 3. Means for the log; the terms of the student count in the batches that have them.
        names = ("student", "apart", *(("adversarial",) if self.judge else ()))
        terms = every | {name: taught.get(name, torch.zeros_like(loss_B)) for name in names}
        shares = {name: torch.full_like(loss_B, float(name in every or batch.teaches)) for name in terms}
        logged = {f"loss/{name}": each for name, each in terms.items()}
        return {"loss": loss_B, **logged, **{f"share/{name}": each for name, each in shares.items()}}

    def drawn(self, condition: Condition, noises_BKTCHW: Tensor, *, learns: bool = False) -> Tensor:
        """Draw samples of the student, [B, T, C, H, W], in as many of the sampler's steps as there are noises.

        Args:
            learns: whether the last step has a gradient.
        """
        last = noises_BKTCHW.shape[1] - 1
        clean_BTCHW = torch.zeros_like(noises_BKTCHW[:, 0])  # of no weight at the first timestep, 999
        for number, timestep in enumerate(self.timesteps[: last + 1]):
            timesteps_B = torch.full_like(noises_BKTCHW[:, 0, 0, 0, 0, 0], timestep, dtype=torch.long)
            noised_BTCHW = noised(clean_BTCHW, noises_BKTCHW[:, number], timesteps_B)
            with nullcontext() if number == last and learns else torch.no_grad():
                clean_BTCHW = condition.clean(self.student, noised_BTCHW, timesteps_B)
        return clean_BTCHW

    def _denoising_loss(self, batch: FewStepShots, condition: Condition, drawn_BTCHW: Tensor) -> Tensor:
        """Return the critic's loss on samples of the student."""
        timesteps_B, noise_BTCHW = batch.critic_timesteps_B, batch.critic_noise_BTCHW
        found_BTCHW = condition.velocity(self.critic, noised(drawn_BTCHW, noise_BTCHW, timesteps_B), timesteps_B)
        return v_loss(found_BTCHW, drawn_BTCHW, noise_BTCHW, timesteps_B)

    def _judged(self, judge: Judge, batch: FewStepShots, condition: Condition, drawn_BTCHW: Tensor) -> Tensor:
        """Return the judge's loss, on samples and recorded latents with the noise of the critic's examples."""
        timesteps_B, noise_BTCHW = batch.critic_timesteps_B, batch.critic_noise_BTCHW
        sample_BTCHW, recorded_BTCHW = (
            noised(each, noise_BTCHW, timesteps_B) for each in (drawn_BTCHW, batch.latents_BTCHW)
        )
        return judge.loss(condition, sample_BTCHW, recorded_BTCHW, timesteps_B)

    def _teaching(self, batch: FewStepShots, condition: Condition, drawn_BTCHW: Tensor) -> dict[str, Tensor]:
        """Return the terms of the student, and the distance of critic and teacher: 0 while the critic is flat."""
        timesteps_B = batch.student_timesteps_B
        noised_BTCHW = noised(drawn_BTCHW, batch.student_noise_BTCHW, timesteps_B)
        with torch.no_grad():
            networks = self.teacher, self.critic
            real_BTCHW, fake_BTCHW = (condition.clean(each, noised_BTCHW.detach(), timesteps_B) for each in networks)
            apart_B = (fake_BTCHW - real_BTCHW).abs().flatten(1).mean(dim=1)
        found = {"student": matching_loss(drawn_BTCHW, fake_BTCHW, real_BTCHW), "apart": apart_B}
        if self.judge:
            found["adversarial"] = self.judge.adversarial(condition, noised_BTCHW, timesteps_B)
        return found

    def _untouched(self) -> Tensor:
        """Return 0 with a gradient of 0 for the student, which processes that train together wait for."""
        parts = [each.flatten()[0] for each in self.student.parameters() if each.requires_grad]
        return 0 * torch.stack(parts).sum()


def matching_loss(drawn_BTCHW: Tensor, fake_BTCHW: Tensor, real_BTCHW: Tensor) -> Tensor:
    """Return the loss of each sample [B] whose gradient is the distance of critic and teacher, by the teacher's error.

    Args:
        drawn_BTCHW: the student's samples, with a gradient.
        fake_BTCHW: clean latents by the critic.
        real_BTCHW: clean latents by the teacher.
    """
    with torch.no_grad():
        error_B = (drawn_BTCHW - real_BTCHW).abs().flatten(1).mean(dim=1) + _SMALLEST
        target_BTCHW = drawn_BTCHW - (fake_BTCHW - real_BTCHW) / error_B.view(-1, 1, 1, 1, 1)
    return (drawn_BTCHW - target_BTCHW).square().flatten(1).mean(dim=1) / 2


def critic_of(teacher: ShotDecoder, config: ShotDecoderConfig, rank: int, seed: int) -> ShotDecoder:
    """Return a critic that shares the teacher's weights, with adapters of its own, in float32, without an effect yet.

    Args:
        teacher: without adapters.
        seed: of the adapters' first values: a run begun again has to have the same.
    """
    critic = deepcopy(teacher, {id(parameter): parameter for parameter in teacher.parameters()})
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        add_lora(critic, config.model_copy(update={"lora_rank": rank, "lora_alpha": rank}), _CRITIC_TARGETS)
    for name, parameter in critic.named_parameters():
        is_adapter = ".lora_" in name
        parameter.requires_grad_(is_adapter)
        if is_adapter:
            parameter.data = parameter.data.float()
    return critic


def _without_shared(_module: nn.Module, state: dict[str, Any], prefix: str, _local: dict[str, Any]) -> None:
    """Remove the teacher and all but the head of the judge from a state: it has their weights as the critic's."""
    head = f"{prefix}judge.{HEAD}"
    for name in [name for name in state if name.startswith((f"{prefix}teacher.", f"{prefix}judge."))]:
        if not name.startswith(head):
            del state[name]
