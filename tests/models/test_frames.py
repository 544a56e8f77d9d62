"""Frames to scaled latents and back, compared with direct calls of a small random autoencoder."""

import copy
import functools

import pytest
import torch
from diffusers import AutoencoderKLCogVideoX
from torch import Tensor

from models.frames import decode_latents, encode_frames, to_patches

FACTOR = 1.15258426


@functools.cache
def autoencoder() -> AutoencoderKLCogVideoX:
    torch.manual_seed(0)
    return AutoencoderKLCogVideoX(
        block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4, sample_height=16, sample_width=24
    ).eval()


def film(frames: int = 17) -> Tensor:
    return torch.randint(0, 256, (1, frames, 16, 24, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def test_moments_are_the_scaled_ones_of_the_autoencoder():
    with torch.no_grad():
        pictures = (film().double() / 255 * 2 - 1).float().permute(0, 4, 1, 2, 3)
        raw = autoencoder().encode(pictures).latent_dist
    moments = encode_frames(autoencoder(), film())
    mean, variance = moments.mean_BTCHW.permute(0, 2, 1, 3, 4), moments.logvar_BTCHW.exp().permute(0, 2, 1, 3, 4)
    torch.testing.assert_close(mean, FACTOR * raw.mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(variance, FACTOR**2 * raw.logvar.exp(), atol=1e-5, rtol=1e-4)


def test_decoding_undoes_the_scale_and_maps_minus_one_to_one_on_bytes():
    latents = torch.randn(1, 3, 16, 2, 3, generator=torch.Generator().manual_seed(1)) * 3
    with torch.no_grad():
        raw = autoencoder().decode(latents.permute(0, 2, 1, 3, 4) / FACTOR).sample
    expected = ((raw.clamp(-1, 1) * 0.5 + 0.5) * 255).permute(0, 2, 3, 4, 1)
    found = decode_latents(autoencoder(), latents)
    assert (found.float() - expected).abs().max() < 0.51
    assert found.float().std() > 1


def test_the_first_frames_come_early_and_are_those_of_the_whole_shot():
    latents, seen = torch.randn(1, 5, 16, 2, 3, generator=torch.Generator().manual_seed(1)), []
    groups = 0

    def count(*_: object) -> None:
        nonlocal groups
        groups += 1

    def show(frames: Tensor) -> None:
        seen.append((groups, frames))

    with autoencoder().decoder.conv_in.register_forward_hook(count):
        whole = decode_latents(autoencoder(), latents, show)
    ((groups_before, early),) = seen
    assert (groups_before, groups, early.shape[1], whole.shape[1]) == (1, 2, 9, 17)
    assert torch.equal(early, whole[:, :9])
    assert torch.equal(whole, decode_latents(autoencoder(), latents))

    def stop(frames: Tensor) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode_latents(autoencoder(), latents, stop)
    assert torch.equal(whole, decode_latents(autoencoder(), latents)), "nothing is left behind by a stop"


def test_tiled_frames_are_shown_together():
    tiled, seen = copy.deepcopy(autoencoder()), list[Tensor]()
    tiled.enable_tiling(tile_sample_min_height=16, tile_sample_min_width=24)
    whole = decode_latents(tiled, torch.zeros(1, 5, 16, 4, 6), seen.append)
    assert len(seen) == 1
    assert torch.equal(seen[0], whole)


def test_an_autoencoder_of_patches_takes_and_gives_whole_frames():
    torch.manual_seed(0)
    patched = AutoencoderKLCogVideoX(
        in_channels=12, out_channels=12, block_out_channels=(8, 8, 8), layers_per_block=0, norm_num_groups=4,
        down_block_types=("CogVideoXDownBlock3D",) * 3, up_block_types=("CogVideoXUpBlock3D",) * 3,
    ).eval()  # fmt: skip
    patches = to_patches(film(), 12)
    assert patches.shape == (1, 12, 17, 8, 12)
    first = film()[0, 0, :2, :2, 0].flatten()  # red of the first patch
    torch.testing.assert_close((patches[0, :4, 0, 0, 0] + 1) * 127.5, first.float())
    latents = encode_frames(patched, film()).mean_BTCHW
    assert latents.shape == (1, 5, 16, 2, 3)
    with torch.no_grad():
        raw = patched.decode(latents.transpose(1, 2) / FACTOR).sample
    found = decode_latents(patched, latents).float()
    for channel, (row, column, colour) in {0: (0, 0, 0), 1: (0, 1, 0), 6: (1, 0, 1), 11: (1, 1, 2)}.items():
        expected = (raw[:, channel].clamp(-1, 1) + 1) * 127.5
        assert (found[:, :, row::2, column::2, colour] - expected).abs().max() < 0.51


def test_other_numbers_of_frames_are_refused_with_the_remedy():
    for frames in (16, 5):
        with pytest.raises(ValueError, match="repeat the last one"):
            encode_frames(autoencoder(), film(frames))
