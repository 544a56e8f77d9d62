"""Tiny decoder of frames: the public names and shapes, causal frames one by one, and files that do not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from models.checkpoint import Checkpoint
from models.engine import Engine
from models.engine_options import EngineOptions
from models.tiny_frames import FILE, TinyFrames, is_present
from models.turns import GameState
from pipeline.core.errors import UserError
from tests.support.networks.tiny_models import brief_checkpoint


def public() -> dict[str, Tensor]:
    """Random numbers under the names and in the shapes of `taecvx`, with a part of its encoder."""
    generator, shapes = torch.Generator().manual_seed(0), dict[str, tuple[int, ...]]()
    shapes |= {"encoder.0.weight": (64, 3, 3, 3), "decoder.1.weight": (256, 16, 3, 3), "decoder.1.bias": (256,)}
    for first, width in ((3, 256), (9, 128), (15, 64)):
        for block in range(first, first + 3):
            for layer, inputs in ((0, 2 * width), (2, width), (4, width)):
                shapes[f"decoder.{block}.conv.{layer}.weight"] = (width, inputs, 3, 3)
                shapes[f"decoder.{block}.conv.{layer}.bias"] = (width,)
    shapes |= {"decoder.7.conv.weight": (512, 256, 1, 1), "decoder.8.weight": (128, 256, 3, 3)}
    shapes |= {"decoder.13.conv.weight": (256, 128, 1, 1), "decoder.14.weight": (64, 128, 3, 3)}
    shapes |= {"decoder.19.conv.weight": (128, 64, 1, 1), "decoder.20.weight": (64, 64, 3, 3)}
    shapes |= {"decoder.22.weight": (3, 64, 3, 3), "decoder.22.bias": (3,)}
    scale = {name: 0.8 / max(1, torch.Size(shape[1:]).numel()) ** 0.5 for name, shape in shapes.items()}
    return {name: scale[name] * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def with_public_latents(folder: Path) -> Checkpoint:
    """Copy of a checkpoint whose autoencoder lies outside, as the published one does."""
    shutil.copytree(brief_checkpoint(), folder)
    config = Checkpoint.open(folder).config
    outside = folder.parent / "autoencoder"
    shutil.move(folder / "bases" / "autoencoder", outside)
    bases = {**config.bases, "autoencoder": {"id": str(outside)}}
    (folder / "config.json").write_text(config.replaced(bases=bases).text())
    return Checkpoint.open(folder)


def one_by_one(tensors: dict[str, Tensor], latents_TCHW: Tensor) -> Tensor:
    """Frames decoded in a stream, each block remembering its last input: another way to the same numbers."""
    memory: dict[int, Tensor] = {}

    def convolved(name: str, x_CHW: Tensor) -> Tensor:
        weight = tensors[f"{name}.weight"]
        return functional.conv2d(x_CHW[None], weight, tensors.get(f"{name}.bias"), padding=weight.shape[-1] // 2)[0]

    def after(block: int, x_CHW: Tensor) -> list[Tensor]:
        if block == 23:
            return [x_CHW]
        if block == 0:
            return after(1, 3 * torch.tanh(x_CHW / 3))
        if block in (2, 21):
            return after(block + 1, x_CHW.relu())
        if block in (6, 12, 18):
            return after(block + 1, x_CHW.repeat_interleave(2, 1).repeat_interleave(2, 2))
        if block in (7, 13, 19):
            grown = convolved(f"decoder.{block}.conv", x_CHW)
            parts = [grown[-len(x_CHW) :]] if block == 7 else grown.chunk(2)
            return [frame for part in parts for frame in after(block + 1, part)]
        if f"decoder.{block}.conv.0.weight" in tensors:
            inner = torch.cat([x_CHW, memory.get(block, torch.zeros_like(x_CHW))])
            memory[block] = x_CHW
            for layer in (0, 2, 4):
                inner = convolved(f"decoder.{block}.conv.{layer}", inner if layer == 0 else inner.relu())
            return after(block + 1, (inner + x_CHW).relu())
        return after(block + 1, convolved(f"decoder.{block}", x_CHW))

    frames = [frame for latents_CHW in latents_TCHW for frame in after(0, latents_CHW)]
    return (torch.stack(frames)[3:].clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)


def test_frames_are_those_of_a_stream_of_the_public_network(tmp_path: Path) -> None:
    checkpoint, tensors = with_public_latents(tmp_path / "model"), public()
    assert not is_present(checkpoint)
    save_file(tensors, checkpoint.folder / FILE)
    assert is_present(checkpoint)
    latents = 2 * torch.randn(1, 3, 16, 4, 6, generator=torch.Generator().manual_seed(1))
    found = TinyFrames.of(checkpoint).decode(latents)
    assert found.shape == (1, 9, 32, 48, 3)
    expected = one_by_one(tensors, latents[0])
    assert (found[0].int() - expected.int()).abs().max() <= 1
    assert expected.float().std() > 5


def test_a_turn_is_decoded_by_it(tmp_path: Path) -> None:
    checkpoint = with_public_latents(tmp_path / "model")
    save_file(public(), checkpoint.folder / FILE)
    shown = []
    turns = []
    for frames in ("full", "tiny"):
        engine = Engine.load(checkpoint.folder, EngineOptions("cpu", steps=1, guidance=1.0, frames=frames))  # type: ignore[arg-type]
        turns.append(engine.next_turn(GameState(), "Mika walks", seed=1, show=shown.append)[0])
    assert turns[0].frames_THWC.shape == turns[1].frames_THWC.shape
    assert (turns[0].frames_THWC != turns[1].frames_THWC).any()
    assert len(shown) == 2
    assert isinstance(engine.frame_decoder, TinyFrames)  # the autoencoder is not even loaded
    with pytest.raises(ValueError, match="load it without --frames tiny"):
        _ = engine.autoencoder


def test_missing_damaged_and_unfit_files_are_named(tmp_path: Path) -> None:
    checkpoint = with_public_latents(tmp_path / "model")
    with pytest.raises(UserError, match=r"taecvx.safetensors does not exist: put that file .* there, or leave out"):
        TinyFrames.of(checkpoint)
    tensors = public()
    for change in ({"decoder.22.bias": torch.zeros(12)}, {"decoder.9.conv.0.weight": torch.zeros(256, 256, 3, 3)}):
        save_file({**tensors, **change}, checkpoint.folder / FILE)
        with pytest.raises(UserError, match=rf"is not taecvx \(see {next(iter(change))}\): download it again"):
            TinyFrames.of(checkpoint)
    (checkpoint.folder / FILE).write_bytes(b"<html>")
    with pytest.raises(UserError, match=r"taecvx.safetensors cannot be read"):
        TinyFrames.of(checkpoint)
    with pytest.raises(UserError, match=r"has an autoencoder of its own, and taecvx.safetensors is for CogVideoX's"):
        Engine.load(brief_checkpoint(), EngineOptions("cpu", frames="tiny"))
