"""Shot encoder against a restatement in plain matrix products; its variants and unconditional tokens."""

import math

import numpy as np
import pytest
import torch

from models.config import ShotEncoderConfig, Variant
from models.shot_encoder import ShotEncoder
from tests.support.networks.tiny_models import shake


def small(variant: Variant = "mlp") -> ShotEncoderConfig:
    return ShotEncoderConfig(
        variant=variant, text_tokens=3, text_width=6, image_pixels=32, image_patch=16, image_width=5, width=8
    )


def made(variant: Variant = "mlp") -> ShotEncoder:
    encoder = ShotEncoder(small(variant))
    shake(encoder, by=0.5)
    return encoder.eval()


def states(batch: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, 3, 6, generator=generator), torch.randn(batch, 4, 5, generator=generator)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def normed(x: np.ndarray, weights: dict[str, np.ndarray], name: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def mlp(x: np.ndarray, weights: dict[str, np.ndarray], name: str) -> np.ndarray:
    hidden = gelu(x @ weights[f"{name}.0.weight"].T + weights[f"{name}.0.bias"])
    return hidden @ weights[f"{name}.2.weight"].T + weights[f"{name}.2.bias"]


def test_the_method_is_two_mlps_normed_and_joined_text_first():
    encoder = made()
    weights = {name: tensor.detach().double().numpy() for name, tensor in encoder.named_parameters()}
    text, patches = states()
    expected = np.concatenate(
        [
            normed(mlp(text.double().numpy(), weights, "text_proj"), weights, "text_norm"),
            normed(mlp(patches.double().numpy(), weights, "image_proj"), weights, "image_norm"),
        ],
        axis=1,
    )
    np.testing.assert_allclose(encoder(text, patches).detach().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("variant", ["mlp", "linear", "addition", "cross_attention"])
def test_the_number_of_tokens_follows_from_the_variant(variant: Variant):
    encoder = made(variant)
    tokens = encoder(*states())
    assert tokens.shape == (2, small(variant).shot_tokens, 8)
    assert tokens.shape[1] == (7 if variant in ("mlp", "linear") else 4)
    assert encoder.unconditional(2).shape == tokens.shape


@pytest.mark.parametrize("variant", ["mlp", "linear", "addition", "cross_attention"])
def test_text_and_picture_both_matter_in_every_variant(variant: Variant):
    encoder, (text, patches) = made(variant), states()
    tokens = encoder(text, patches)
    assert not torch.allclose(tokens, encoder(text + 1, patches))
    assert not torch.allclose(tokens, encoder(text, patches + 1))


def test_the_less_parameters_ablation_is_one_layer_a_side():
    linear = sum(parameter.numel() for parameter in made("linear").parameters())
    assert linear == (6 * 8 + 8) + (5 * 8 + 8) + 4 * 8


def test_unconditional_tokens_are_those_of_zero_states_and_not_zero():
    encoder = made()
    tokens = encoder.unconditional(3)
    assert torch.equal(tokens, encoder(torch.zeros(3, 3, 6), torch.zeros(3, 4, 5)))
    assert tokens.abs().amin(dim=(0, 1)).min() > 0


def test_half_precision_is_kept():
    encoder = made().to(torch.bfloat16)
    assert encoder.unconditional(1).dtype == torch.bfloat16


def test_a_wrong_number_of_tokens_is_refused():
    text, patches = states()
    with pytest.raises(ValueError, match=r"\(3, 4\).*not \(2, 4\)"):
        made()(text[:, :2], patches)


def test_full_size_has_the_published_shapes():
    with torch.device("meta"):
        encoder = ShotEncoder(ShotEncoderConfig())
        tokens = encoder.unconditional(1)
    assert tokens.shape == (1, 226, 1920)
    shapes = {name: tuple(tensor.shape) for name, tensor in encoder.state_dict().items()}
    assert shapes["text_proj.0.weight"] == (1920, 4096)
    assert shapes["image_proj.0.weight"] == (1920, 768)
    assert shapes["text_proj.2.weight"] == shapes["image_proj.2.weight"] == (1920, 1920)
