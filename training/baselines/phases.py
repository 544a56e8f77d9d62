"""Training phases of the baselines GC and GFC: adapters on a frozen transformer, or at `mini` GC's whole transformer.

GC is CogVideoX 2B, text-to-video from instruction lines. Loss, noise and rank are the shot decoder's, so that the two
differ only in their conditions. With the notation of `training/phases/shot.py` and c the T5 states of the instruction
(with probability `dropout`, of the empty text):

    L = E_{x_0, eps, t} mean (v_theta(x_t, t, c) - v_t)^2,    v_t = sqrt(abar_t) eps - sqrt(1 - abar_t) x_0

GFC is FLUX, first frames from the instruction lines of their clips. The objective is rectified flow from the picture
latents x_0 to noise eps:

    x_sigma = (1 - sigma) x_0 + sigma eps,    eps ~ N(0, I),    sigma = 1 / (1 + exp(-n)),    n ~ N(0, 1)
    L       = E_{x_0, eps, sigma} mean (u_theta(x_sigma, sigma, c, g) - (eps - x_0))^2

with u_theta the transformer, c the T5 and CLIP states of the instruction, and g the guidance. sigma is distributed as
in FLUX's training, and each example of a step draws it from another band of equal probability. FLUX.1 dev was distilled
with its guidance as an input, so g is fixed to the value used in play. The text is never dropped, because play has no
unconditional pass.

Letters of the shapes: B batch, T latent frames, C channels, H and W latent pixels, N text tokens, D their width, L
patches of 2 x 2 latent pixels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from diffusers import FluxPipeline
from torch import Tensor, nn

from models.checkpoint_writer import within
from models.diffusion import noised, v_loss
from models.engine_options import TIMESTEPS
from models.frames import Moments
from models.prompt_batch import TensorBatch
from models.shot_decoder import rotary_positions
from training.baselines.encoding import text_states
from training.baselines.folder import BaselineFolder, Device, save_trained
from training.baselines.pipelines import sizes_of
from training.data.feature_cache import FeatureCache
from training.data.mixture import by_dataset
from training.data.order import Examples, Position, generator, part_seed, stratified
from training.data.turns import RecordedTurn, has_padded
from training.phase import ALONE, Share
from training.phases.shot import HeldOut, NoisedShot, NoisedShots, ShotExamples, loss_by_noise_level


@dataclass(eq=False)
class AdapterPhase(ABC):
    """Training phase of a baseline's adapters."""

    network: nn.Module
    """Network with the transformer as its member `transformer`."""
    examples: Examples
    held_out: HeldOut | None
    """Clips of the split `val`, if there are any."""
    clips: int
    """Maximum number of held-out clips in validation."""
    start: BaselineFolder
    name: ClassVar[str]
    units: ClassVar[Sequence[str]]
    varied: ClassVar[bool] = False

    def size_of(self, _example: Any) -> int:
        """Return 1: all examples are of one size."""
        return 1

    @abstractmethod
    def collate(self, examples: Sequence[Any]) -> Any:
        """Collate examples."""

    def validate(
        self, network: nn.Module, device: torch.device, _pictures: Path | None, share: Share = ALONE
    ) -> dict[str, float]:
        """Return the loss at each noise level on held-out clips; empty if there are none."""
        return loss_by_noise_level(self, network, device, share, self.held_out, self.clips) if self.held_out else {}

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a playable baseline with the adapters in `state`."""
        transformer = self.network.get_submodule("transformer")
        save_trained(folder, self.start, transformer, within(state, "transformer."))


def instructed(turns: Iterable[RecordedTurn]) -> tuple[RecordedTurn, ...]:
    """Return the turns that have an instruction."""
    return tuple(turn for turn in turns if turn.instruction)


def trained_transformer(baseline: BaselineFolder, frozen: torch.dtype, gradient_checkpointing: bool) -> Any:
    """Load the transformer of a baseline for training, its frozen weights in the dtype `frozen`."""
    transformer = baseline.transformer(dtype=frozen)
    if gradient_checkpointing:
        transformer.enable_gradient_checkpointing()
    return transformer


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
            image_rotary_emb=rotary_positions(self.transformer, noised_BTCHW.device),
            return_dict=False,
        )[0]
        return {"loss": v_loss(predicted_BTCHW, batch.latents_BTCHW, batch.noise_BTCHW, batch.timesteps_B)}


class GCPhase(AdapterPhase):
    """Training phase of GC: clips from instruction lines."""

    name = "gc"
    units = ("CogVideoXBlock",)

    def collate(self, examples: Sequence[NoisedShot]) -> NoisedShots:
        """Collate examples."""
        return NoisedShots.of(examples)


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
        train: filled features of the training clips, from `open_features`.
        dropout: share of examples with the empty text, for guidance.
        device: device of the text encoder, which encodes the empty text once.
    """
    tokens = train.features["prompts"].shape[0]
    empty_text_ND = text_states(baseline.encoders("video", device), [""], tokens)[0].float().cpu()
    network = TextToVideo(trained_transformer(baseline, frozen, gradient_checkpointing))
    absent = {"prompts": empty_text_ND}
    examples = by_dataset(
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


@dataclass(frozen=True, eq=False)
class NoisedPicture:
    """Example: latents of a first frame, the noise to add, the noise level and the text states."""

    latents_CHW: Tensor
    noise_CHW: Tensor
    sigma: float
    text_ND: Tensor
    pooled_D: Tensor


@dataclass(frozen=True, eq=False)
class NoisedPictures(TensorBatch):
    """Collated examples."""

    latents_BCHW: Tensor
    noise_BCHW: Tensor
    sigma_B: Tensor
    text_BND: Tensor
    pooled_BD: Tensor


class PictureExamples:
    """Examples of a split's first frames, from a feature cache."""

    def __init__(
        self, turns: Sequence[RecordedTurn], cache: FeatureCache, *, shift: float, scale: float, seed: int = 0
    ) -> None:
        """Store the arguments; nothing is read yet.

        Args:
            cache: feature cache with `flux_pictures`, `flux_prompts` and `flux_pooled`.
            shift: subtracted from the autoencoder's latents.
            scale: factor of the shifted latents.
        """
        self.turns, self.cache, self.shift, self.scale, self.seed = turns, cache, shift, scale, seed

    def __len__(self) -> int:
        return len(self.turns)

    def __getitem__(self, position: Position) -> NoisedPicture:
        """Return a training example; its random numbers are functions of seed and position."""
        drawn = generator(self.seed, position)
        normal = torch.special.ndtri(torch.tensor(stratified(position, drawn), dtype=torch.float64))
        return self._example(position.item, drawn, float(normal.sigmoid()))

    def at_noise_level(self, item: int, timestep: int) -> NoisedPicture:
        """Return a validation example with noise that depends on the item alone."""
        return self._example(item, generator(0, Position(0, item)), (timestep + 1) / TIMESTEPS)

    def _example(self, item: int, drawn: torch.Generator, sigma: float) -> NoisedPicture:
        clip_id = self.turns[item].clip_id
        found_CHW = Moments(*self.cache.get("flux_pictures", clip_id).float()).sample(drawn)
        latents_CHW = (found_CHW - self.shift) * self.scale
        noise_CHW = torch.randn(latents_CHW.shape, generator=drawn)
        text_ND, pooled_D = (self.cache.get(name, clip_id) for name in ("flux_prompts", "flux_pooled"))
        return NoisedPicture(latents_CHW, noise_CHW, sigma, text_ND, pooled_D)


class TextToPicture(nn.Module):
    """Transformer of FLUX with its rectified-flow loss."""

    def __init__(self, transformer: Any, guidance: float) -> None:
        super().__init__()
        self.transformer, self.guidance = transformer, guidance

    def forward(self, batch: NoisedPictures) -> dict[str, Tensor]:
        """Return the loss of each example [B]: mean squared error of noise - picture."""
        # 1. Mix picture and noise by the noise level.
        dtype = self.transformer.x_embedder.weight.dtype
        sigma_B111 = batch.sigma_B.view(-1, 1, 1, 1)
        noised_BCHW = (1 - sigma_B111) * batch.latents_BCHW + sigma_B111 * batch.noise_BCHW
        # 2. Predict the velocity of each patch, told its position and the guidance of play.
        _, _, height, width = noised_BCHW.shape
        device, has_guidance = noised_BCHW.device, self.transformer.config.guidance_embeds
        predicted_BLC = self.transformer(
            hidden_states=_patches(noised_BCHW).to(dtype),
            timestep=batch.sigma_B.to(dtype),
            guidance=torch.full_like(batch.sigma_B, self.guidance) if has_guidance else None,
            pooled_projections=batch.pooled_BD.to(dtype),
            encoder_hidden_states=batch.text_BND.to(dtype),
            txt_ids=torch.zeros(batch.text_BND.shape[1], 3, device=device, dtype=dtype),
            img_ids=FluxPipeline._prepare_latent_image_ids(1, height // 2, width // 2, device, dtype),
            return_dict=False,
        )[0]
        # 3. Compare it with the velocity from picture to noise.
        error_BLC = predicted_BLC.float() - _patches(batch.noise_BCHW - batch.latents_BCHW)
        return {"loss": error_BLC.square().flatten(1).mean(dim=1)}


class GFCPhase(AdapterPhase):
    """Training phase of GFC: first frames from instruction lines."""

    name = "gfc"
    units = ("FluxTransformerBlock", "FluxSingleTransformerBlock")

    def collate(self, examples: Sequence[NoisedPicture]) -> NoisedPictures:
        """Collate examples."""
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
    """Return the training phase of GFC; arguments as in `gc_phase`."""
    picture, sizes = baseline.config.picture, sizes_of(baseline.base("picture"), "vae")
    assert picture is not None
    scaling = {"shift": sizes["shift_factor"], "scale": sizes["scaling_factor"]}
    network = TextToPicture(trained_transformer(baseline, frozen, gradient_checkpointing), picture.guidance)
    examples = by_dataset(
        train.catalog,
        lambda turns, number: PictureExamples(instructed(turns), train, **scaling, seed=part_seed(seed, number)),
    )
    held_out = PictureExamples(instructed(val.catalog.turns), val, **scaling) if val else None
    return GFCPhase(network, examples, held_out, clips, baseline)


def _patches(latents_BCHW: Tensor) -> Tensor:
    """Pack latents into FLUX's patches [B, L, 4 C]."""
    patches_BLC: Tensor = FluxPipeline._pack_latents(latents_BCHW, *latents_BCHW.shape)
    return patches_BLC
