"""Training of GC: adapters on the attention of CogVideoX 2B, which draws clips from their instruction lines.

The objective, the noise and the rank are the shot decoder's, so that the two differ in their conditions alone.

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels, N text tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from models.diffusion import noised, v_loss
from training.baselines.adapters import AdapterPhase, spoken, trained_transformer
from training.baselines.encoding import text_states
from training.baselines.folder import BaselineFolder, Device
from training.data.feature_cache import FeatureCache
from training.phases.shot import NoisedShot, NoisedShots, ShotExamples


class TextToVideo(nn.Module):
    """CogVideoX's transformer with its objective."""

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, batch: NoisedShots) -> dict[str, Tensor]:
        """The loss of each example [B]: the squared error of the velocity."""
        dtype = self.transformer.patch_embed.proj.weight.dtype
        noised_BTCHW = noised(batch.latents_BTCHW, batch.noise_BTCHW, batch.timesteps_B)
        (text_BND,) = batch.conditions
        predicted_BTCHW = self.transformer(
            hidden_states=noised_BTCHW.to(dtype),
            encoder_hidden_states=text_BND.to(dtype),
            timestep=batch.timesteps_B,
            return_dict=False,
        )[0]
        return {"loss": v_loss(predicted_BTCHW, batch.latents_BTCHW, batch.noise_BTCHW, batch.timesteps_B)}


class GCPhase(AdapterPhase):
    """Clips from instruction lines."""

    name = "gc"
    units = ("CogVideoXBlock",)

    def collate(self, examples: Sequence[NoisedShot]) -> NoisedShots:
        """Put examples together."""
        return NoisedShots(
            torch.stack([example.latents_TCHW for example in examples]),
            torch.stack([example.noise_TCHW for example in examples]),
            torch.tensor([example.timestep for example in examples]),
            torch.tensor([example.scope_px for example in examples]),
            (torch.stack([example.conditions[0] for example in examples]),),
        )


def gc_phase(
    baseline: BaselineFolder,
    train: FeatureCache,
    val: FeatureCache | None = None,
    *,
    dropout: float = 0.1,
    seed: int = 0,
    clips: int = 64,
    frozen: torch.dtype = torch.float32,
    gradient_checkpointing: bool = False,
    device: Device = "cpu",
) -> GCPhase:
    """Put the phase together.

    Args:
        baseline: a `gc` to start from.
        train: filled features of the clips to train on, from `open_features`.
        val: of those to look at.
        dropout: share of the examples that are drawn from no text, for guidance.
        seed: of noise, timesteps and dropout.
        clips: how many of `val` are looked at.
        frozen: precision of what is not trained.
        gradient_checkpointing: forward again in the backward pass: slower, less memory.
        device: where the text encoder, asked once what no text is, computes.
    """
    tokens = train.features["prompts"].shape[0]
    silence_ND = text_states(baseline.encoders("video", device), [""], tokens)[0].float().cpu()
    network = TextToVideo(trained_transformer(baseline, frozen, gradient_checkpointing))
    absent = {"prompts": silence_ND}
    examples = ShotExamples(spoken(train), train, absent, dropout=dropout, seed=seed)
    held_out = ShotExamples(spoken(val), val, absent) if val else None
    return GCPhase(network, examples, held_out, clips, baseline)
