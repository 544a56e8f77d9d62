"""Inference engine: one turn of a game, from an instruction to frames, with the networks of a checkpoint.

The game model reads the window of past turns and the instruction, and predicts shot tokens, motion level and the
changes of the character values. The shot decoder draws the shot in latent space, conditioned on the shot tokens and
the motion scope of that level; the autoencoder decodes the latents to frames.

Shapes: T frames, H and W pixels, C colours (RGB) or latent channels, L shot tokens of width D, B batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Self

import torch
from diffusers import AutoencoderKLCogVideoX
from torch import Tensor, nn
from transformers import LlamaTokenizer

from models.acceleration import arrange, check_compiler, compile_blocks, formats_of, is_compiled, store_as_int8
from models.checkpoint import Checkpoint
from models.config import ModelConfig
from models.diffusion import Guidance, draw
from models.engine_options import EngineOptions, PartProgress, unwatched
from models.frames import decode_latents
from models.game_model import GameModel
from models.shot_decoder import ShotDecoder, ending
from models.shot_encoder import ShotEncoder
from models.tiny_frames import TinyFrames
from models.tokens import PastTurn, write_prompt
from models.turns import Frames, GameState, Show, Turn, stays, unseen
from pipeline.core.errors import UserError

TILE = {"tile_sample_min_height": 240, "tile_sample_min_width": 360}
"""Tile size of CogVideoX's autoencoder in pixels. diffusers uses half of the frame's size. For other frame sizes this
may not fit its overlaps, and the decoded frame then has another size."""


class Engine:
    """Networks of a checkpoint, ready to play. Stateless: it keeps nothing from one turn to the next.

    Args:
        shot_encoder: used once, for the unconditional shot tokens of guidance.
        options: device and speed; the networks are already on that device, unless they are offloaded.
    """

    def __init__(
        self,
        config: ModelConfig,
        tokenizer: LlamaTokenizer,
        game_model: GameModel,
        shot_encoder: ShotEncoder,
        shot_decoder: ShotDecoder,
        frame_decoder: AutoencoderKLCogVideoX | TinyFrames,
        options: EngineOptions,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.game_model = game_model
        self.shot_decoder = shot_decoder
        self.frame_decoder = frame_decoder
        self.device = device_of(options.device)
        self.sampling = options.sampling_of(config)
        if is_compiled(options, self.device):
            compile_blocks(shot_decoder, frame_decoder)
        if (options.tiled or options.offload) and not isinstance(frame_decoder, TinyFrames):
            frame_decoder.enable_tiling(**TILE)
        self._offloaded: dict[nn.Module, OffloadedNetwork] = {}
        if options.offload:
            networks = (game_model, shot_decoder, frame_decoder)
            self._offloaded = {each: OffloadedNetwork(each, self.device) for each in networks}
        with torch.no_grad():
            self._unconditional_BLD = shot_encoder.unconditional(1).float().to(self.device)

    @classmethod
    def load(cls, folder: Path | str, options: EngineOptions = EngineOptions()) -> Self:
        """Load the networks of a checkpoint.

        Raises:
            UserError: a missing or incomplete checkpoint, `steps` that do not divide 1000, an unknown device, or a
                missing compiler or package.
        """
        device = device_of(options.device)
        if is_compiled(options, device):
            check_compiler(device)
        checkpoint = Checkpoint.open(folder)
        options.sampling_of(checkpoint.config)
        load_device, formats = "cpu" if options.offload else device, formats_of(options, device)
        frame_decoder: AutoencoderKLCogVideoX | TinyFrames
        if options.frames == "tiny":
            frame_decoder = TinyFrames.of(checkpoint, load_device, formats["autoencoder"])
        else:
            frame_decoder = checkpoint.autoencoder(load_device, formats["autoencoder"])
            if device.type == "cpu":
                arrange(frame_decoder, frame_decoder.dtype)
        # Adapters are merged: one matrix product per projection instead of three; only training needs them apart.
        game_model = checkpoint.game_model(load_device, formats["language_model"])
        game_model.merge_adapters()
        if options.precision == "int8":
            store_as_int8(game_model)
        decoder = checkpoint.shot_decoder(load_device, formats["transformer"])
        decoder.fuse_lora()
        encoder = checkpoint.shot_encoder(device)
        tokenizer = checkpoint.tokenizer()
        return cls(checkpoint.config, tokenizer, game_model, encoder, decoder, frame_decoder, options)

    @property
    def autoencoder(self) -> AutoencoderKLCogVideoX:
        """The autoencoder, which also encodes frames. ValueError if the engine has the tiny decoder instead."""
        if isinstance(self.frame_decoder, TinyFrames):
            raise ValueError("this engine decodes frames by the tiny decoder: load it without --frames tiny")
        return self.frame_decoder

    @property
    def guidance(self) -> Guidance:
        """Guidance of the sampling, by the checkpoint's convention."""
        return Guidance(self.config.conventions.guidance, self.sampling.guidance, self.sampling.guided)

    @property
    def window_turns(self) -> int:
        """Number of turns in the context of a prediction, the one to predict included."""
        return self.config.game_model.window_turns

    @torch.no_grad()
    def next_turn(
        self, state: GameState, instruction: str, seed: int, progress: PartProgress = unwatched, show: Show = unseen
    ) -> tuple[Turn, GameState]:
        """Make the turn after `state`.

        Args:
            seed: of this turn; see `turn_seed`. The only source of randomness.
            progress: called at every part and denoising step; an exception from it ends the turn without side effects.
            show: called with the first frames as soon as they are decoded; an exception from it does the same.

        Raises:
            UserError: the instruction is empty or too long.
        """
        started, seconds = time.perf_counter(), dict[str, float]()
        # 1. Predict shot tokens and state from the past turns in the window and the instruction.
        tokens, conventions = self.config.shot_encoder.shot_tokens, self.config.conventions
        prompt = write_prompt(self.tokenizer, state.window, instruction, tokens, conventions)
        progress("game model", 0, 1)
        with self._timed(self.game_model, "game model", seconds):
            prediction = self.game_model.predict(prompt)
        progress("game model", 1, 1)
        # 2. Draw the latents of the shot, conditioned on the shot tokens and the motion scope of the predicted level.
        #    As long as the place stays, a decoder that can do so continues the last shot.
        scope_px = self.config.scope_of(prediction.state.level)
        last = state.last if state.last and stays(state.last.instruction, instruction) else None
        progress("denoising", 0, self.sampling.steps)
        with self._timed(self.shot_decoder, "denoising", seconds):
            latents_BTCHW = draw(
                self.shot_decoder,
                prediction.shot_tokens_LD[None].to(self.device, torch.float32),
                self._unconditional_BLD,
                torch.tensor([scope_px]) if self.config.shot_decoder.motion_scope else None,
                seed=seed,
                steps=self.sampling.steps,
                guidance=self.guidance,
                sampler=self.sampling.sampler,
                progress=partial(progress, "denoising"),
                before_BCHW=last.ending_CHW[None].to(self.device, torch.float32) if last else None,
            )
            continuing = self.config.shot_decoder.continues != "no"
            ending_CHW = ending(latents_BTCHW)[0].cpu() if continuing else None
        # 3. Decode the latents to frames, and show the first group of them while the others are decoded. The decoder
        #    packs 8n + 1 frames, and only `shown_frames` are shown.
        first_frame_seconds = 0.0

        def show_first(frames_BTHWC: Tensor) -> None:
            nonlocal first_frame_seconds
            frames_THWC = self._shown(frames_BTHWC)
            first_frame_seconds = time.perf_counter() - started
            show(frames_THWC)

        progress("frames", 0, 1)
        with self._timed(self.frame_decoder, "frames", seconds):
            if isinstance(self.frame_decoder, TinyFrames):
                frames_BTHWC = self.frame_decoder.decode(latents_BTCHW)
                show_first(frames_BTHWC)
            else:
                frames_BTHWC = decode_latents(self.frame_decoder, latents_BTCHW, show_first)
        progress("frames", 1, 1)
        # 4. Append the turn to the window: the next prediction reads its own shot tokens, not the frames.
        shot_tokens_LD = prediction.shot_tokens_LD.cpu()
        after = state.after(PastTurn(instruction, shot_tokens_LD, prediction.state), self.window_turns, ending_CHW)
        turn = Turn(
            number=after.turns,
            instruction=instruction,
            state=prediction.state,
            scope_px=scope_px,
            values=after.values,
            frames_THWC=self._shown(frames_BTHWC),
            shot_tokens_LD=shot_tokens_LD,
            ending_CHW=ending_CHW,
            continues=last is not None,
            seconds=seconds,
            first_frame_seconds=first_frame_seconds,
            device=name_of(self.device),
        )
        return turn, after

    def _shown(self, frames_BTHWC: Tensor) -> Frames:
        return frames_BTHWC[0, : self.config.shown_frames].cpu().numpy()

    @contextmanager
    def _timed(self, network: nn.Module, part: str, seconds: dict[str, float]) -> Iterator[None]:
        """Keep a network on the device for one part of the turn, and store the part's duration in `seconds`."""
        started = time.perf_counter()
        offloaded = self._offloaded.get(network)
        with offloaded.on_device() if offloaded else nullcontext():
            yield
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # else queued kernels would count towards the next part
        seconds[part] = time.perf_counter() - started


def device_of(name: str | None) -> torch.device:
    """Device of a name; for None the first GPU, else the CPU. UserError when the device does not exist."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"no device {name!r} here: give `cpu`, or `cuda` if PyTorch sees a GPU") from error
    return device


def name_of(device: torch.device) -> str:
    """Return the name of a device for people: a GPU's model, or threads and instructions of a CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} CPU threads ({torch.backends.cpu.get_cpu_capability()})"


class OffloadedNetwork:
    """Network in main memory that is copied to a device for use.

    Args:
        network: on the CPU, in the precision it computes in.
        device: the device it is copied to.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self.device = device
        self._tensors: list[tuple[Tensor, Tensor]] = []
        for tensor in (*network.parameters(), *network.buffers()):
            if device.type == "cuda":
                tensor.data = tensor.data.pin_memory(device)
            self._tensors.append((tensor, tensor.data))

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Keep the network on the device inside the block."""
        try:
            for tensor, original in self._tensors:
                tensor.data = original.to(self.device, non_blocking=True)
            yield
        finally:
            for tensor, original in self._tensors:
                tensor.data = original
