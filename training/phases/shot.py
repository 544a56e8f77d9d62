"""Phases a and c: shot encoder and shot decoder on noised latents.

| phase | trained | the shot tokens come from |
|---|---|---|
| warm-up | shot encoder, motion scope | the shot encoder |
| joint | shot encoder, adapters and adaLN of the shot decoder, motion scope | the shot encoder |
| adaptation | adapters and adaLN of the shot decoder, motion scope | the game model's predictions |

The objective is the velocity at a random timestep. For guidance, the condition of some examples is left out: text and
picture together before the shot encoder, which gives the same tokens that play uses for no shot. The motion scope is
the clip's own, as measured, and stays.

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels, L shot tokens, N text tokens,
P patches, D width of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from models.checkpoint import (
    SHOT_ENCODER,
    Checkpoint,
    copy_rest,
    save_config,
    save_shot_decoder,
    save_shot_encoder,
    save_transformer,
    within,
)
from models.config import Base, ModelConfig, inside_id
from models.diffusion import TIMESTEPS, Guidance, draw, noised, v_loss
from models.engine import TILE
from models.frames import decode_latents
from models.shot_decoder import ShotDecoder, denoise
from models.shot_encoder import ShotEncoder
from training.config import LookSettings
from training.data.encoding import moments_of
from training.data.feature_cache import FeatureCache
from training.data.order import Position, generator
from training.data.turns import RecordedTurn
from training.pictures import Comparison, save_comparisons

NOISE_LEVELS = (99, 299, 499, 699, 899)
"""Timesteps at which held-out clips are looked at."""


@dataclass(frozen=True, eq=False)
class NoisedShot:
    """One example: a clip's latents and the noise to mix in."""

    latents_TCHW: Tensor
    noise_TCHW: Tensor
    timestep: int
    scope_px: float
    conditions: tuple[Tensor, ...]
    """Text states [N, D] and patch states [P, D], or shot tokens [L, D]."""


@dataclass(frozen=True, eq=False)
class NoisedShots:
    """Examples put together."""

    latents_BTCHW: Tensor
    noise_BTCHW: Tensor
    timesteps_B: Tensor
    scope_B: Tensor
    conditions: tuple[Tensor, ...]

    def to(self, device: torch.device) -> Self:
        """The batch on a device."""
        return type(self)(
            self.latents_BTCHW.to(device),
            self.noise_BTCHW.to(device),
            self.timesteps_B.to(device),
            self.scope_B.to(device),
            tuple(each.to(device) for each in self.conditions),
        )


class ShotExamples:
    """The clips of a split as examples, from a feature cache."""

    def __init__(
        self,
        turns: Sequence[RecordedTurn],
        cache: FeatureCache,
        absent: Mapping[str, Tensor],
        *,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Name the clips.

        Args:
            turns: the clips.
            cache: holds `latents` and the conditions.
            absent: for each feature that is a condition, what stands for none.
            dropout: share of the examples whose conditions are left out.
            seed: of noise, timestep and dropout.
        """
        self.turns, self.cache, self.absent, self.dropout, self.seed = turns, cache, absent, dropout, seed

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, place: Position) -> NoisedShot:
        """An example of training."""
        drawn = generator(self.seed, place)
        timestep = int(torch.randint(TIMESTEPS, (), generator=drawn))
        dropped = bool(torch.rand((), generator=drawn) < self.dropout)
        return self._example(place.item, drawn, timestep, dropped=dropped)

    def at_noise_level(self, item: int, timestep: int) -> NoisedShot:
        """An example of validation: nothing is left out, and the noise is always the item's own."""
        return self._example(item, generator(0, Position(0, item)), timestep, dropped=False)

    def conditions(self, item: int) -> tuple[Tensor, ...]:
        """Conditions that the clip is drawn from."""
        return tuple(self.cache.get(name, self.turns[item].clip_id).float() for name in self.absent)

    def _example(self, item: int, drawn: torch.Generator, timestep: int, *, dropped: bool) -> NoisedShot:
        turn = self.turns[item]
        latents_TCHW = moments_of(self.cache.get("latents", turn.clip_id)).sample(drawn)[0]
        noise_TCHW = torch.randn(latents_TCHW.shape, generator=drawn)
        conditions = tuple(self.absent.values()) if dropped else self.conditions(item)
        return NoisedShot(latents_TCHW, noise_TCHW, timestep, turn.sample.motion.scope_px, conditions)


class ShotNetworks(nn.Module):
    """Shot encoder and shot decoder, or the shot decoder alone where shot tokens are given, with their objective."""

    def __init__(self, decoder: ShotDecoder, encoder: ShotEncoder | None, *, motion_scope: bool) -> None:
        super().__init__()
        self.decoder, self.encoder, self.motion_scope = decoder, encoder, motion_scope

    def forward(self, batch: NoisedShots) -> dict[str, Tensor]:
        """The loss of each example [B]."""
        noised_BTCHW = noised(batch.latents_BTCHW, batch.noise_BTCHW, batch.timesteps_B)
        scope_B = batch.scope_B if self.motion_scope else None
        predicted_BTCHW = denoise(
            self.decoder, noised_BTCHW, self.shot_tokens(batch.conditions), batch.timesteps_B, scope_B
        )
        return {"loss": v_loss(predicted_BTCHW, batch.latents_BTCHW, batch.noise_BTCHW, batch.timesteps_B)}

    def shot_tokens(self, conditions: tuple[Tensor, ...]) -> Tensor:
        """Shot tokens BLD."""
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
    ) -> Tensor:
        """Latents of one clip [1, T, C, H, W], drawn from its conditions and guided away from those of no clip."""
        given_BLD, none_BLD = (self.shot_tokens(tuple(each[None] for each in some)) for some in (conditions, absent))
        return draw(
            self.decoder,
            given_BLD.float(),
            none_BLD.float(),
            torch.tensor([scope_px]) if self.motion_scope else None,
            seed=seed,
            steps=steps,
            guidance=Guidance("constant", guidance),
        )


@dataclass(eq=False)
class ShotPhase:
    """Warm-up, joint training or adaptation; `training/phases/assembly.py` makes them."""

    name: str
    network: ShotNetworks
    examples: ShotExamples
    held_out: ShotExamples
    """Of the split `val`; may be empty."""
    looks: LookSettings
    checkpoint: Checkpoint
    """Where the run started."""
    config: ModelConfig
    """Of the checkpoint that comes out."""
    whole: bool = False
    """The base of the shot decoder is trained, too."""

    @property
    def units(self) -> tuple[str, ...]:
        """Encoder and decoder are units of their own, since validation calls each of them alone."""
        return ("CogVideoXBlock", "ShotDecoder", *(["ShotEncoder"] if self.network.encoder else []))

    def collate(self, examples: Sequence[NoisedShot]) -> NoisedShots:
        """Put examples together."""
        return NoisedShots(
            torch.stack([example.latents_TCHW for example in examples]),
            torch.stack([example.noise_TCHW for example in examples]),
            torch.tensor([example.timestep for example in examples]),
            torch.tensor([example.scope_px for example in examples]),
            tuple(torch.stack(each) for each in zip(*(example.conditions for example in examples), strict=True)),
        )

    def validate(self, network: nn.Module, device: torch.device, looks: Path | None) -> dict[str, float]:
        """Loss at each noise level on held-out clips, and some clips drawn beside what they should be."""
        found = self._loss_by_noise_level(network, device) if len(self.held_out) else {}
        if self.looks.pictures:
            drawn = self._drawn(network, device)
            if looks:
                save_comparisons(looks, drawn)
        return found

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a whole checkpoint: what was trained, and the rest of the one before."""
        decoder, config = within(state, "decoder."), self.config
        replaced = {"shot_decoder"}
        if self.network.encoder:
            replaced.add(SHOT_ENCODER)
            save_shot_encoder(folder, within(state, "encoder."))
        if self.whole:
            replaced.add(inside_id("transformer"))
            config = config.replaced(bases={**config.bases, "transformer": Base(id=inside_id("transformer"))})
            save_transformer(folder, self.network.decoder, decoder)
        save_shot_decoder(folder, self.network.decoder, decoder)
        save_config(folder, config)
        copy_rest(self.checkpoint, folder, replaced)

    def _loss_by_noise_level(self, network: nn.Module, device: torch.device) -> dict[str, float]:
        items = range(min(self.looks.clips, len(self.held_out)))
        rows = []
        for item in items:
            batch = self.collate([self.held_out.at_noise_level(item, timestep) for timestep in NOISE_LEVELS])
            rows.append(network(batch.to(device))["loss"].float().cpu())
        means = torch.stack(rows).mean(dim=0).tolist()
        by_level = {f"loss_{timestep:03d}": mean for timestep, mean in zip(NOISE_LEVELS, means, strict=True)}
        return {"loss": sum(means) / len(means), **by_level}

    def _drawn(self, network: nn.Module, device: torch.device) -> list[Comparison]:
        inner = network.module if isinstance(network, DistributedDataParallel) else network
        assert isinstance(inner, ShotNetworks)
        autoencoder = self.checkpoint.autoencoder(device)
        if device.type == "cuda":  # beside everything that training keeps on the card
            autoencoder.enable_tiling(**TILE)
            autoencoder.enable_slicing()
        found = []
        for examples, split in ((self.examples, "train"), (self.held_out, "val")):
            for item in range(min(self.looks.pictures, len(examples))):
                turn = examples.turns[item]
                moments = moments_of(examples.cache.get("latents", turn.clip_id))
                drawn_BTCHW = inner.draw(
                    tuple(each.to(device) for each in examples.conditions(item)),
                    tuple(each.to(device) for each in examples.absent.values()),
                    turn.sample.motion.scope_px,
                    seed=item,  # always the same noise
                    steps=self.looks.denoising_steps,
                    guidance=self.looks.guidance,
                )
                latents_BTCHW = torch.cat([moments.mean_BTCHW.to(device), drawn_BTCHW])
                truth_THWC, drawn_THWC = decode_latents(autoencoder, latents_BTCHW).cpu()
                caption = f"{split}: {turn.instruction or turn.clip_id}"
                found.append(Comparison(caption, truth_THWC.numpy(), drawn_THWC.numpy()))
        return found
