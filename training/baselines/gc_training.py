"""Training of GC: adapters on the attention of CogVideoX 2B, text-to-video from instruction lines.

At `mini` the transformer is trained whole instead. Loss, noise and rank are the shot decoder's, so that the two differ
only in their conditions. With the notation of `training/phases/shot.py` and c the T5 states of the instruction (those
of the empty text with probability `dropout`):

    L = E_{x_0, eps, t} mean (v_theta(x_t, t, c) - v_t)^2,    v_t = sqrt(abar_t) eps - sqrt(1 - abar_t) x_0

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels, N text tokens, D their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from models.diffusion import noised, v_loss
from training.baselines.adapters import AdapterPhase, instructed, trained_transformer
from training.baselines.encoding import text_states
from training.baselines.folder import BaselineFolder, Device
from training.data.feature_cache import FeatureCache
from training.data.mixture import by_data_set
from training.data.order import part_seed
from training.data.turns import has_padded
from training.phases.shot import NoisedShot, NoisedShots, ShotExamples


class TextToVideo(nn.Module):
    """Transformer of CogVideoX with its denoising loss."""

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(self, batch: NoisedShots) -> dict[str, Tensor]:
        """Return the loss of each example [B]: mean squared error of the velocity."""
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
    """Training phase of GC: clips from instruction lines."""

    name = "gc"
    units = ("CogVideoXBlock",)

    def collate(self, examples: Sequence[NoisedShot]) -> NoisedShots:
        """Collate examples."""
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
    """Return the training phase of GC.

    Args:
        baseline: a `gc` to start from.
        train: filled features of the training clips, from `open_features`.
        val: filled features of the validation clips.
        dropout: share of examples with the empty text, for guidance.
        seed: seed of noise, timesteps and dropout.
        clips: maximum number of clips of `val` in validation.
        frozen: dtype of frozen weights.
        gradient_checkpointing: forward again in the backward pass: slower, less memory.
        device: device of the text encoder, which encodes the empty text once.
    """
    tokens = train.features["prompts"].shape[0]
    empty_text_ND = text_states(baseline.encoders("video", device), [""], tokens)[0].float().cpu()
    network = TextToVideo(trained_transformer(baseline, frozen, gradient_checkpointing))
    absent = {"prompts": empty_text_ND}
    examples = by_data_set(
        train.catalog,
        lambda turns, number: ShotExamples(
            instructed(turns), train, absent, dropout=dropout, seed=part_seed(seed, number)
        ),
    )
    held_out = ShotExamples(instructed(val.catalog.turns), val, absent) if val else None
    video = baseline.config.video
    padded = has_padded(instructed(train.catalog.turns), video.frames)
    config = baseline.config.model_copy(update={"video": video.model_copy(update={"still_last_frame": padded})})
    return GCPhase(network, examples, held_out, clips, BaselineFolder(baseline.folder, config))
