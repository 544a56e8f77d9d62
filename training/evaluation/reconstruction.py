"""Reconstruction of real clips from their own shot tokens, as in the paper's ablation of the tokenizer.

    first frame, motion text -> shot encoder -> shot tokens -> shot decoder, with the clip's motion scope -> frames

The game model takes no part, so a result of phase a is enough.

Shapes: T frames, H and W pixels, C colours (RGB) or latent channels, L shot tokens of width D, B batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from models.checkpoint import Checkpoint
from models.diffusion import Guidance, draw
from models.engine import TILE, OffloadedNetwork, device_of
from models.engine_options import EngineOptions
from models.frames import decode_latents
from models.turns import GameState, Turn
from training.data.encoding import frame_to_see, motion_text
from training.data.shards import open_shards
from training.data.turns import PackedTurn, read_turns
from training.evaluation.benchmark import Panel


def real_clips(source: str, panels: Iterable[Panel]) -> dict[str, PackedTurn]:
    """Return the clips of a dataset's split `val` that are the truth of panels, by id. UserError for a bad shard."""
    wanted = {panel.clip_id for panel in panels if panel.clip_id}
    films = {clip_id.rsplit("-", 1)[0] for clip_id in wanted}
    shards = [shard for shard in open_shards(source, "val") if shard.entry.film_id in films]
    return {clip.clip_id: clip for clip in read_turns(shards) if clip.clip_id in wanted}


class Reconstructor:
    """Shot encoder and shot decoder of a checkpoint, with the frozen networks around them."""

    def __init__(self, checkpoint: Checkpoint, options: EngineOptions) -> None:
        """Load the networks.

        Raises:
            UserError: the checkpoint is incomplete, a setting is out of range, or there is no such device.
        """
        self.config, self.device = checkpoint.config, device_of(options.device)
        self.sampling = options.sampling_of(checkpoint.config)
        where = torch.device("cpu") if options.offload else self.device
        self.image_encoder = checkpoint.image_encoder(where)
        self.text_encoder = checkpoint.text_encoder(where)
        self.shot_encoder = checkpoint.shot_encoder(self.device, torch.float32)
        self.shot_decoder = checkpoint.shot_decoder(where)
        self.shot_decoder.fuse_lora()
        self.autoencoder = checkpoint.autoencoder(where)
        self._offloaded: dict[nn.Module, OffloadedNetwork] = {}
        if options.offload:
            self.autoencoder.enable_tiling(**TILE)
            networks = (self.image_encoder, self.text_encoder, self.shot_decoder, self.autoencoder)
            self._offloaded = {each: OffloadedNetwork(each, self.device) for each in networks}
        with torch.no_grad():
            self._unconditional_BLD = self.shot_encoder.unconditional(1)

    @classmethod
    def load(cls, folder: Path, options: EngineOptions = EngineOptions()) -> Self:
        """Load the networks of the checkpoint in a folder; errors as in the constructor."""
        return cls(Checkpoint.open(folder), options)

    @torch.no_grad()
    def tokens(self, clip: PackedTurn) -> Tensor:
        """Return the shot tokens [L, D] of a clip, from the frame that training encoded and the motion text.

        Raises:
            UserError: the clip cannot be decoded, or its shape does not fit the checkpoint.
        """
        shot = self.config.shot_decoder
        frame = frame_to_see(clip.clip_id, shot.frames, self.config.encoded_frame)
        frame_1HWC = clip.frames(shot.height, shot.width, shot.frames)[frame][None]
        with self._on_device(self.image_encoder):
            patches_BPD = self.image_encoder.patches(frame_1HWC)
        with self._on_device(self.text_encoder):
            text_BND = self.text_encoder.states([motion_text(clip.turn)])
        tokens_BLD: Tensor = self.shot_encoder(text_BND, patches_BPD)
        return tokens_BLD[0]

    @torch.no_grad()
    def turn(self, state: GameState, instruction: str, clip: PackedTurn, seed: int) -> Turn:
        """Draw a clip again from its own shot tokens and motion scope, as the turn after `state`.

        The turn has the clip's own state, since nothing predicts one. UserError as `tokens`.
        """
        seconds: dict[str, float] = {}
        with self._timed("tokens", seconds):
            tokens_LD = self.tokens(clip)
        scope_px = clip.turn.sample.motion.scope_px
        with self._timed("denoising", seconds), self._on_device(self.shot_decoder):
            latents_BTCHW = draw(
                self.shot_decoder,
                tokens_LD[None],
                self._unconditional_BLD,
                torch.tensor([scope_px]) if self.config.shot_decoder.motion_scope else None,
                seed=seed,
                steps=self.sampling.steps,
                guidance=Guidance(self.config.conventions.guidance, self.sampling.guidance, self.sampling.guided),
                sampler=self.sampling.sampler,
            )
        with self._timed("frames", seconds), self._on_device(self.autoencoder):
            frames_THWC = decode_latents(self.autoencoder, latents_BTCHW)[0, : self.config.shown_frames].cpu().numpy()
        return Turn(
            number=state.turns + 1,
            instruction=instruction,
            state=clip.turn.state,
            scope_px=scope_px,
            values=state.values.after(clip.turn.state),
            frames_THWC=frames_THWC,
            shot_tokens_LD=tokens_LD.cpu(),
            seconds=seconds,
        )

    @contextmanager
    def _on_device(self, network: nn.Module) -> Iterator[None]:
        offloaded = self._offloaded.get(network)
        with offloaded.on_device() if offloaded else nullcontext():
            yield

    @contextmanager
    def _timed(self, part: str, seconds: dict[str, float]) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds[part] = time.perf_counter() - started
