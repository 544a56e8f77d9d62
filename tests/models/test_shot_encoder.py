"""Shot encoder and its frozen CLIP and T5, against restatements in plain products; small random networks."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPVisionConfig,
    CLIPVisionModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from models.config import Base, ShotEncoderConfig, Variant
from models.shot_encoder import ImageEncoder, ShotEncoder, TextEncoder, resize_to_square
from pipeline.core.errors import UserError
from tests.support.networks.tiny_models import shake

WORDS = ("<pad>", "</s>", "<unk>", "she", "runs", "very", "fast", "away")
CONFIG = ShotEncoderConfig(text_tokens=6, text_width=16, image_pixels=32, image_patch=8, image_width=24, width=8)
VISION = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
TEXT = T5Config(
    vocab_size=len(WORDS), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu"
)


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


def test_unconditional_tokens_are_those_of_zero_states_and_not_zero():
    encoder = made()
    tokens = encoder.unconditional(3)
    assert torch.equal(tokens, encoder(torch.zeros(3, 3, 6), torch.zeros(3, 4, 5)))
    assert tokens.abs().amin(dim=(0, 1)).min() > 0


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


def tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer like T5's: words, `</s>` at the end, `<pad>` is 0."""
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", padding_side="right"
    )


@functools.cache
def image_encoder() -> ImageEncoder:
    torch.manual_seed(0)
    return ImageEncoder(CLIPVisionModel(CLIPVisionConfig(**VISION)), CONFIG)


@functools.cache
def text_encoder() -> TextEncoder:
    torch.manual_seed(0)
    return TextEncoder(T5EncoderModel(TEXT), tokenizer(), CONFIG)


def pictures(height: int = 60, width: int = 90) -> Tensor:
    shape = (2, height, width, 3)
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def blurred(line: np.ndarray, factor: float) -> np.ndarray:
    """Gaussian blur of sigma (factor - 1) / 2, an odd width of 4 sigma, the line mirrored at its ends."""
    sigma = max((factor - 1) / 2, 0.001)
    width = int(max(4 * sigma, 3))
    reach = (width + 1 - width % 2) // 2
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    padded = np.pad(line, reach, mode="reflect")
    return np.convolve(padded, weights / weights.sum(), mode="valid")


def stretched(line: np.ndarray, size: int) -> np.ndarray:
    """Resize by cubic convolution (Keys, a = -0.75) with aligned first and last positions."""

    def weight(distance: float) -> float:
        d, a = abs(distance), -0.75
        if d <= 1:
            return (a + 2) * d**3 - (a + 3) * d**2 + 1
        return a * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0

    at = np.arange(size) * (len(line) - 1) / (size - 1)
    result = np.zeros(size)
    for i, position in enumerate(at):
        for k in range(int(np.floor(position)) - 1, int(np.floor(position)) + 3):
            result[i] += weight(position - k) * line[np.clip(k, 0, len(line) - 1)]
    return result


@pytest.mark.parametrize(("height", "width"), [(60, 90), (12, 50), (16, 16), (9, 7)])
def test_pictures_are_resized_as_in_the_published_code(height: int, width: int):
    plane = np.random.default_rng(0).random((height, width))
    soft = plane
    if max(height, width) > 16:
        soft = np.apply_along_axis(blurred, 1, np.apply_along_axis(blurred, 0, plane, height / 16), width / 16)
    expected = np.apply_along_axis(stretched, 1, np.apply_along_axis(stretched, 0, soft, 16), 16)
    found = resize_to_square(torch.tensor(plane).float()[None, None], 16)[0, 0]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_patches_are_the_states_before_the_last_layer_without_the_class_token():
    clip, frames = image_encoder().network, pictures()
    mean, std = torch.tensor([0.4815, 0.4578, 0.4082]), torch.tensor([0.2686, 0.2613, 0.2758])
    unit = resize_to_square(frames.permute(0, 3, 1, 2) / 255, 32)
    states = (unit - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    with torch.no_grad():
        states = clip.pre_layrnorm(clip.embeddings(states))
        for layer in clip.encoder.layers[:-1]:
            states = layer(states, None)
    found = image_encoder().patches(frames)
    assert found.shape == (2, CONFIG.image_tokens, 24)
    torch.testing.assert_close(found, states[:, 1:], atol=1e-3, rtol=1e-3)


def test_padding_is_attended_like_words():
    found = text_encoder().states(["she runs"])
    ids = torch.tensor([[3, 4, 1, 0, 0, 0]])
    with torch.no_grad():
        attended = text_encoder().network(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        masked = text_encoder().network(input_ids=ids, attention_mask=(ids != 0).long()).last_hidden_state
    torch.testing.assert_close(found, attended)
    assert not torch.allclose(found[:, :3], masked[:, :3], atol=1e-4)


def test_sizes_that_do_not_fit_are_refused():
    wrong = CONFIG.model_copy(update={"text_width": 32})
    with pytest.raises(UserError, match=r"shot_encoder\.text_width is 32, .* 16"):
        TextEncoder(text_encoder().network, tokenizer(), wrong)
    wrong = CONFIG.model_copy(update={"image_width": 32})
    with pytest.raises(UserError, match=r"shot_encoder\.image_width is 32, .* 24"):
        ImageEncoder(image_encoder().network, wrong)


def test_whole_clip_and_whole_t5_load_from_folders(tmp_path: Path):
    torch.manual_seed(3)
    text_half = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    clip, t5 = CLIPModel(CLIPConfig(vision_config=VISION, text_config=text_half)), T5ForConditionalGeneration(TEXT)
    clip.save_pretrained(tmp_path / "clip")
    t5.save_pretrained(tmp_path / "repo" / "t5")
    tokenizer().save_pretrained(tmp_path / "repo" / "t5")
    text = Base(id=str(tmp_path / "repo"), subfolder="t5")
    image_encoder = ImageEncoder.load(CONFIG, Base(id=str(tmp_path / "clip")))
    text_encoder = TextEncoder.load(CONFIG, text, dtype=torch.bfloat16)
    weights = image_encoder.network.embeddings.patch_embedding.weight
    assert torch.equal(weights, clip.vision_model.embeddings.patch_embedding.weight)
    assert torch.equal(text_encoder.network.shared.weight, t5.shared.weight.bfloat16())
    assert text_encoder.states(["she runs"]).shape == (1, 6, 16)


def test_a_tokenizer_beside_a_text_encoder_is_taken(tmp_path: Path):
    T5EncoderModel(TEXT).save_pretrained(tmp_path / "text_encoder")
    tokenizer().save_pretrained(tmp_path / "tokenizer")
    encoder = TextEncoder.load(CONFIG, Base.of_folder("text_encoder", tmp_path / "text_encoder"))
    one, other = encoder.states(["she runs", "very fast"])
    assert not torch.allclose(one, other, atol=1e-4)
