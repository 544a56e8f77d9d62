"""Training of GFC: adapters on the attention of FLUX, which draws first frames from their clips' instruction lines.

FLUX learns the way from noise to a picture: at the noise level sigma it sees (1 - sigma) picture + sigma noise and
predicts noise - picture. Noise levels are drawn as in its training, the sigmoid of a normal number. FLUX.1 dev was
distilled with its guidance as an input, which is kept at the number that play gives it. No text is left out: play has
no second pass without text.

Letters of the shapes: B batch, C channels, H and W latent pixels, N text tokens, D their width, L patches of 2 x 2
latent pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from diffusers import FluxPipeline
from torch import Tensor, nn

from models.diffusion import TIMESTEPS
from models.frames import Moments
from training.baselines.adapters import AdapterPhase, spoken, trained_transformer
from training.baselines.folder import BaselineFolder
from training.baselines.pipelines import sizes_of
from training.data.feature_cache import FeatureCache
from training.data.order import Position, generator
from training.data.turns import RecordedTurn


@dataclass(frozen=True, eq=False)
class NoisedPicture:
    """One example: a first frame's latents, the noise to mix in, and what it is drawn from."""

    latents_CHW: Tensor
    noise_CHW: Tensor
    sigma: float
    text_ND: Tensor
    pooled_D: Tensor


@dataclass(frozen=True, eq=False)
class NoisedPictures:
    """Examples put together."""

    latents_BCHW: Tensor
    noise_BCHW: Tensor
    sigma_B: Tensor
    text_BND: Tensor
    pooled_BD: Tensor

    def to(self, device: torch.device) -> Self:
        """The batch on a device."""
        return type(self)(*(each.to(device) for each in vars(self).values()))


class PictureExamples:
    """The first frames of a split as examples, from a feature cache."""

    def __init__(
        self, turns: Sequence[RecordedTurn], cache: FeatureCache, *, shift: float, scale: float, seed: int = 0
    ) -> None:
        """Name the clips.

        Args:
            turns: the clips.
            cache: holds `flux_pictures`, `flux_prompts` and `flux_pooled`.
            shift: taken off the autoencoder's latents.
            scale: times which they are then taken.
            seed: of noise and noise level.
        """
        self.turns, self.cache, self.shift, self.scale, self.seed = turns, cache, shift, scale, seed

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, place: Position) -> NoisedPicture:
        """An example of training."""
        drawn = generator(self.seed, place)
        return self._example(place.item, drawn, float(torch.randn((), generator=drawn).sigmoid()))

    def at_noise_level(self, item: int, timestep: int) -> NoisedPicture:
        """An example of validation, always with the item's own noise."""
        return self._example(item, generator(0, Position(0, item)), (timestep + 1) / TIMESTEPS)

    def _example(self, item: int, drawn: torch.Generator, sigma: float) -> NoisedPicture:
        clip_id = self.turns[item].clip_id
        found_CHW = Moments(*self.cache.get("flux_pictures", clip_id).float()).sample(drawn)
        latents_CHW = (found_CHW - self.shift) * self.scale
        noise_CHW = torch.randn(latents_CHW.shape, generator=drawn)
        text_ND, pooled_D = (self.cache.get(name, clip_id).float() for name in ("flux_prompts", "flux_pooled"))
        return NoisedPicture(latents_CHW, noise_CHW, sigma, text_ND, pooled_D)


class TextToPicture(nn.Module):
    """FLUX's transformer with its objective."""

    def __init__(self, transformer: Any, guidance: float) -> None:
        super().__init__()
        self.transformer, self.guidance = transformer, guidance

    def forward(self, batch: NoisedPictures) -> dict[str, Tensor]:
        """The loss of each example [B]: the squared error of noise - picture."""
        dtype = self.transformer.x_embedder.weight.dtype
        sigma_B111 = batch.sigma_B.view(-1, 1, 1, 1)
        noised_BCHW = (1 - sigma_B111) * batch.latents_BCHW + sigma_B111 * batch.noise_BCHW
        _, _, height, width = noised_BCHW.shape
        device, told = noised_BCHW.device, self.transformer.config.guidance_embeds
        predicted_BLC = self.transformer(
            hidden_states=_patches(noised_BCHW).to(dtype),
            timestep=batch.sigma_B.to(dtype),
            guidance=torch.full_like(batch.sigma_B, self.guidance) if told else None,
            pooled_projections=batch.pooled_BD.to(dtype),
            encoder_hidden_states=batch.text_BND.to(dtype),
            txt_ids=torch.zeros(batch.text_BND.shape[1], 3, device=device, dtype=dtype),
            img_ids=FluxPipeline._prepare_latent_image_ids(1, height // 2, width // 2, device, dtype),
            return_dict=False,
        )[0]
        error_BLC = predicted_BLC.float() - _patches(batch.noise_BCHW - batch.latents_BCHW)
        return {"loss": error_BLC.square().flatten(1).mean(dim=1)}


class GFCPhase(AdapterPhase):
    """First frames from instruction lines."""

    name = "gfc"
    units = ("FluxTransformerBlock", "FluxSingleTransformerBlock")

    def collate(self, examples: Sequence[NoisedPicture]) -> NoisedPictures:
        """Put examples together."""
        return NoisedPictures(
            torch.stack([example.latents_CHW for example in examples]),
            torch.stack([example.noise_CHW for example in examples]),
            torch.tensor([example.sigma for example in examples]),
            torch.stack([example.text_ND for example in examples]),
            torch.stack([example.pooled_D for example in examples]),
        )


def gfc_phase(
    baseline: BaselineFolder,
    train: FeatureCache,
    val: FeatureCache | None = None,
    *,
    seed: int = 0,
    clips: int = 64,
    frozen: torch.dtype = torch.float32,
    gradient_checkpointing: bool = False,
) -> GFCPhase:
    """Put the phase together.

    Args:
        baseline: a `gfc` to start from.
        train: filled features of the clips to train on, from `open_features`.
        val: of those to look at.
        seed: of noise and noise levels.
        clips: how many of `val` are looked at.
        frozen: precision of what is not trained.
        gradient_checkpointing: forward again in the backward pass: slower, less memory.
    """
    picture, sizes = baseline.config.picture, sizes_of(baseline.base("picture"), "vae")
    assert picture is not None
    scaling = {"shift": sizes["shift_factor"], "scale": sizes["scaling_factor"]}
    network = TextToPicture(trained_transformer(baseline, frozen, gradient_checkpointing), picture.guidance)
    examples = PictureExamples(spoken(train), train, **scaling, seed=seed)
    held_out = PictureExamples(spoken(val), val, **scaling) if val else None
    return GFCPhase(network, examples, held_out, clips, baseline)


def _patches(latents_BCHW: Tensor) -> Tensor:
    """Latents as FLUX sees them [B, L, 4 C]."""
    patches_BLC: Tensor = FluxPipeline._pack_latents(latents_BCHW, *latents_BCHW.shape)
    return patches_BLC
