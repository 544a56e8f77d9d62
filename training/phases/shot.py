"""Phases a and c: denoising training of shot encoder and shot decoder on noised latents.

| phase | trained | the shot tokens come from |
|---|---|---|
| warm-up | shot encoder, motion scope | the shot encoder |
| joint | shot encoder, adapters and adaLN of the shot decoder, motion scope | the shot encoder |
| adaptation | adapters and adaLN of the shot decoder, motion scope | the game model's predictions |

The objective is the denoising loss with v-prediction at a random timestep t, uniform in 0..999. To make the gradient
less noisy, each example of a step draws from another band of t (`training/data/order.py:stratified`):

    x_t = sqrt(abar_t) x_0 + sqrt(1 - abar_t) eps
    v_t = sqrt(abar_t) eps - sqrt(1 - abar_t) x_0
    L   = E_{x_0, eps, t} mean (v_theta(x_t, t, c, m) - v_t)^2

with x_0 the latents, sampled from the autoencoder's moments, eps ~ N(0, I), abar_t the noise schedule of
`models/diffusion.py`, v_theta the shot decoder, c the shot tokens and m the motion scope. The mean is over all latent
numbers. All timesteps have weight 1 in v, which is weight 1 / (1 - abar_t) on the error of the clean latents, since

    v_theta - v_t = -(x_theta - x_0) / sqrt(1 - abar_t),    x_theta = sqrt(abar_t) x_t - sqrt(1 - abar_t) v_theta

For classifier-free guidance, the conditions (text and picture together) are dropped with probability `dropout` before
the shot encoder. So c becomes the tokens that play uses for the unconditional prediction. The clip keeps its motion
scope.

A shot decoder that continues shots also gets the end of the shot before (`training.data.windows.continued`), dropped
with the same probability by a draw of its own, and noised as play would spoil it, with L the last latent frame:

    a ~ U(0, ENDING_NOISE);    L' = L + a eps

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels, L shot tokens, N text tokens,
P patches, D width of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from models.checkpoint import SHOT_ENCODER, Checkpoint
from models.checkpoint_writer import copy_rest, save_config, save_shot_decoder, save_shot_encoder, within
from models.config import Base, Continues, ModelConfig, inside_id
from models.diffusion import Guidance, draw, noised, v_loss
from models.engine import TILE
from models.engine_options import TIMESTEPS
from models.frames import decode_latents
from models.prompt_batch import TensorBatch
from models.shot_decoder import ShotDecoder, denoise, ending
from models.shot_encoder import ShotEncoder
from models.tiny_frames import TinyFrames, is_present
from training.config import ValidationSettings
from training.data.encoding import moments_of
from training.data.feature_cache import FeatureCache
from training.data.order import Examples, Position, generator, spread, stratified
from training.data.turns import RecordedTurn
from training.data.windows import continued
from training.phase import ALONE, Phase, Share
from training.pictures import Comparison, save_comparisons

NOISE_LEVELS = (99, 299, 499, 699, 899)
"""Timesteps at which the loss on held-out clips is measured."""
ENDING_NOISE = 0.3
"""Greatest noise on the end of the shot before, in standard deviations of the latents."""


@dataclass(frozen=True, eq=False)
class NoisedShot:
    """Example: latents of a clip and the noise to add."""

    latents_TCHW: Tensor
    noise_TCHW: Tensor
    timestep: int
    scope_px: float
    conditions: tuple[Tensor, ...]
    """Text states [N, D] and patch states [P, D], or shot tokens [L, D]."""
    before_CHW: Tensor | None = None
    """The `ending` of the shot before, zeros for a new shot; None if the shot decoder does not continue shots."""


@dataclass(frozen=True, eq=False)
class NoisedShots(TensorBatch):
    """Collated examples."""

    latents_BTCHW: Tensor
    noise_BTCHW: Tensor
    timesteps_B: Tensor
    scope_B: Tensor
    conditions: tuple[Tensor, ...]
    before_BCHW: Tensor | None = None

    @classmethod
    def of(cls, examples: Sequence[NoisedShot]) -> Self:
        """Collate examples."""
        befores = [example.before_CHW for example in examples if example.before_CHW is not None]
        return cls(
            torch.stack([example.latents_TCHW for example in examples]),
            torch.stack([example.noise_TCHW for example in examples]),
            torch.tensor([example.timestep for example in examples]),
            torch.tensor([example.scope_px for example in examples]),
            tuple(torch.stack(each) for each in zip(*(example.conditions for example in examples), strict=True)),
            torch.stack(befores) if befores else None,
        )


class ShotExamples:
    """Examples of a split's clips, from a feature cache."""

    def __init__(
        self,
        turns: Sequence[RecordedTurn],
        cache: FeatureCache,
        absent: Mapping[str, Tensor],
        *,
        dropout: float = 0.0,
        seed: int = 0,
        continues: Continues = "no",
    ) -> None:
        """Store the arguments; nothing is read yet.

        Args:
            cache: feature cache with `latents` and the conditions.
            absent: unconditional value of each feature that is a condition.
            dropout: probability that the conditions of an example are dropped, and that the shot before is.
            continues: as in the configuration of the shot decoder.
        """
        self.turns, self.cache, self.absent, self.dropout, self.seed = turns, cache, absent, dropout, seed
        self.continued = () if continues == "no" else continued(turns, continues)

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, position: Position) -> NoisedShot:
        """Return a training example; its random numbers are functions of seed and position."""
        drawn = generator(self.seed, position)
        timestep = int(TIMESTEPS * stratified(position, drawn))
        dropped = bool(torch.rand((), generator=drawn) < self.dropout)
        example = self._example(position.item, drawn, timestep, dropped=dropped)
        if example.before_CHW is None:
            return example
        kept, noise = torch.rand((), generator=drawn) >= self.dropout, ENDING_NOISE * torch.rand((), generator=drawn)
        spoilt_CHW = noise * torch.randn(example.before_CHW.shape, generator=drawn)
        spoilt_CHW[-1] = 0  # the mask
        mask_1HW = kept * example.before_CHW[-1:]
        return replace(example, before_CHW=mask_1HW * (example.before_CHW + spoilt_CHW))

    def at_noise_level(self, item: int, timestep: int) -> NoisedShot:
        """Return a validation example: all conditions, and noise that depends on the item alone."""
        return self._example(item, generator(0, Position(0, item)), timestep, dropped=False)

    def conditions(self, item: int) -> tuple[Tensor, ...]:
        """Return the conditions of a clip."""
        return tuple(self.cache.get(name, self.turns[item].clip_id) for name in self.absent)

    def before(self, item: int) -> Tensor | None:
        """Return the `ending` of the shot before a clip; zeros for a new shot, None without `continues`."""
        if not self.continued:
            return None
        turn = self.continued[item] or self.turns[item]
        ending_CHW = ending(moments_of(self.cache.get("latents", turn.clip_id)).mean_BTCHW)[0]
        return ending_CHW if self.continued[item] else torch.zeros_like(ending_CHW)

    def _example(self, item: int, drawn: torch.Generator, timestep: int, *, dropped: bool) -> NoisedShot:
        turn = self.turns[item]
        latents_TCHW = moments_of(self.cache.get("latents", turn.clip_id)).sample(drawn)[0]
        noise_TCHW = torch.randn(latents_TCHW.shape, generator=drawn)
        conditions = tuple(self.absent.values()) if dropped else self.conditions(item)
        scope_px = turn.sample.motion.scope_px
        return NoisedShot(latents_TCHW, noise_TCHW, timestep, scope_px, conditions, self.before(item))


class HeldOut(Protocol):
    """Examples of held-out clips."""

    def __len__(self) -> int: ...

    def at_noise_level(self, item: int, timestep: int) -> Any:
        """Return a validation example, always with the same noise."""
        ...


def loss_by_noise_level(
    phase: Phase, network: nn.Module, device: torch.device, share: Share, held_out: HeldOut, most: int
) -> dict[str, float]:
    """Return the loss at each noise level on at most `most` held-out clips; empty if there are none."""
    if not len(held_out):
        return {}

    def losses_of(item: int) -> Tensor:
        batch = phase.collate([held_out.at_noise_level(item, timestep) for timestep in NOISE_LEVELS])
        losses_B: Tensor = network(batch.to(device))["loss"].float()
        return losses_B

    means = share.values(spread(len(held_out), most), losses_of).cpu().mean(dim=0).tolist()
    by_level = {f"loss_{timestep:03d}": mean for timestep, mean in zip(NOISE_LEVELS, means, strict=True)}
    return {"loss": sum(means) / len(means), **by_level}


def preview_decoder(checkpoint: Checkpoint, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return the decoder of the drawn clips of validation: the tiny one if the checkpoint has it."""
    if is_present(checkpoint):
        return TinyFrames.of(checkpoint, device).decode
    autoencoder = checkpoint.autoencoder(device)
    if device.type == "cuda":  # training already fills most of the GPU's memory
        autoencoder.enable_tiling(**TILE)
        autoencoder.enable_slicing()
    return partial(decode_latents, autoencoder)


class ShotNetworks(nn.Module):
    """Shot encoder and shot decoder with their denoising loss; without the encoder, conditions are shot tokens."""

    def __init__(self, decoder: ShotDecoder, encoder: ShotEncoder | None, *, motion_scope: bool) -> None:
        super().__init__()
        self.decoder, self.encoder, self.motion_scope = decoder, encoder, motion_scope

    @property
    def units(self) -> tuple[str, ...]:
        """FSDP2 units; encoder and decoder are separate ones because validation calls them separately."""
        return ("CogVideoXBlock", "ShotDecoder", *(["ShotEncoder"] if self.encoder else []))

    def forward(self, batch: NoisedShots) -> dict[str, Tensor]:
        """Return the denoising loss of each example [B]."""
        noised_BTCHW = noised(batch.latents_BTCHW, batch.noise_BTCHW, batch.timesteps_B)
        scope_B = batch.scope_B if self.motion_scope else None
        tokens_BLD = self.shot_tokens(batch.conditions)
        predicted_BTCHW = denoise(self.decoder, noised_BTCHW, tokens_BLD, batch.timesteps_B, scope_B, batch.before_BCHW)
        return {"loss": v_loss(predicted_BTCHW, batch.latents_BTCHW, batch.noise_BTCHW, batch.timesteps_B)}

    def shot_tokens(self, conditions: tuple[Tensor, ...]) -> Tensor:
        """Return shot tokens [B, L, D]."""
        conditions = tuple(each.float() for each in conditions)  # stored in float16 at full size
        tokens_BLD: Tensor = self.encoder(*conditions) if self.encoder else conditions[0]
        return tokens_BLD

    def draw(
        self,
        conditions: tuple[Tensor, ...],
        absent: tuple[Tensor, ...],
        scope_px: float,
        *,
        seed: int,
        steps: int,
        guidance: float,
        before_CHW: Tensor | None = None,
    ) -> Tensor:
        """Sample the latents of one clip [1, T, C, H, W], guided from the conditions `absent` towards `conditions`."""
        conditional_BLD, unconditional_BLD = (
            self.shot_tokens(tuple(each[None] for each in some)) for some in (conditions, absent)
        )
        return draw(
            self.decoder,
            conditional_BLD.float(),
            unconditional_BLD.float(),
            torch.tensor([scope_px]) if self.motion_scope else None,
            seed=seed,
            steps=steps,
            guidance=Guidance("constant", guidance),
            before_BCHW=None if before_CHW is None else before_CHW[None],
        )


@dataclass(eq=False)
class ShotPhase:
    """Warm-up, joint training or adaptation, as built by `training/phases/assembly.py`."""

    name: str
    network: ShotNetworks
    examples: Examples
    shown: ShotExamples
    """Training clips, of which some are drawn in validation."""
    held_out: ShotExamples
    """Clips of the split `val`; may be empty."""
    validation: ValidationSettings
    checkpoint: Checkpoint
    config: ModelConfig
    """Configuration of the resulting checkpoint."""
    whole: bool = False
    """True if the base of the shot decoder is trained too."""
    varied: bool = False

    @property
    def units(self) -> tuple[str, ...]:
        """FSDP2 units."""
        return self.network.units

    def size_of(self, _example: NoisedShot) -> int:
        """Return 1: all examples are of one size."""
        return 1

    def collate(self, examples: Sequence[NoisedShot]) -> NoisedShots:
        """Collate examples."""
        return NoisedShots.of(examples)

    def validate(
        self, network: nn.Module, device: torch.device, pictures: Path | None, share: Share = ALONE
    ) -> dict[str, float]:
        """Return the loss at each noise level on held-out clips; save sampled clips next to their references."""
        found = loss_by_noise_level(self, network, device, share, self.held_out, self.validation.clips)
        if self.validation.pictures:
            drawn = self._drawn(network, device, share)
            if pictures:
                save_comparisons(pictures, drawn)
        return found

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a complete checkpoint: trained parts, and the rest of the starting checkpoint."""
        config = self.config
        replaced = save_shot_decoder(folder, self.network.decoder, within(state, "decoder."), whole=self.whole)
        if self.network.encoder:
            replaced.add(SHOT_ENCODER)
            save_shot_encoder(folder, within(state, "encoder."))
        if self.whole:
            config = config.replaced(bases={**config.bases, "transformer": Base(id=inside_id("transformer"))})
        save_config(folder, config)
        copy_rest(self.checkpoint, folder, replaced)

    def _drawn(self, network: nn.Module, device: torch.device, share: Share) -> list[Comparison]:
        inner = network.module if isinstance(network, DistributedDataParallel) else network
        assert isinstance(inner, ShotNetworks)
        decode = preview_decoder(self.checkpoint, device)

        def drawn_beside_truth(clip: tuple[ShotExamples, int]) -> Tensor:
            examples, item = clip
            turn = examples.turns[item]
            moments, before_CHW = moments_of(examples.cache.get("latents", turn.clip_id)), examples.before(item)
            drawn_BTCHW = inner.draw(
                tuple(each.to(device) for each in examples.conditions(item)),
                tuple(each.to(device) for each in examples.absent.values()),
                turn.sample.motion.scope_px,
                seed=item,  # the same noise in every validation
                steps=self.validation.denoising_steps,
                guidance=self.validation.guidance,
                before_CHW=None if before_CHW is None else before_CHW.to(device),
            )
            return decode(torch.cat([moments.mean_BTCHW.to(device), drawn_BTCHW]))

        of_split = {"train": self.shown, "val": self.held_out}
        clips = [
            (split, item) for split, each in of_split.items() for item in spread(len(each), self.validation.pictures)
        ]
        pairs_N2THWC = share.values([(of_split[split], item) for split, item in clips], drawn_beside_truth).cpu()
        found = []
        for (split, item), (truth_THWC, drawn_THWC) in zip(clips, pairs_N2THWC.numpy(), strict=True):
            turn = of_split[split].turns[item]
            found.append(Comparison(f"{split}: {turn.instruction or turn.clip_id}", truth_THWC, drawn_THWC))
        return found
