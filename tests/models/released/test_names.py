"""Import plan at full size, without data: every published tensor and every one of ours is covered."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from diffusers import CogVideoXTransformer3DModel
from safetensors.torch import load_file
from transformers import MistralConfig, MistralForCausalLM

from models.checkpoint import ADAPTER, DECODER_LORA, DECODER_OWN, RESAMPLERS, SHOT_ENCODER
from models.config import full_config
from models.game_model import GameModel, wrap_language_model
from models.released.names import (
    DECODER_IGNORED,
    LANGUAGE_IGNORED,
    TRANSFORMER,
    DecoderSizes,
    LanguageSizes,
    check_tensors,
    decoder_plan,
    language_plan,
)
from models.released.writer import Writer
from models.shot_decoder import ShotDecoder, add_lora, decoder_options, own_names
from models.shot_encoder import ShotEncoder
from models.weights import adapter_tensors
from tests.support.networks.published_weights import (
    TINY,
    Sizes,
    decoder_shapes,
    language_shapes,
    random_state,
    sibling_shapes,
)


def test_every_published_tensor_is_imported_or_ignored() -> None:
    shapes = {**decoder_shapes(Sizes()), **sibling_shapes()}
    plan = decoder_plan(DecoderSizes())
    faults, counts = check_tensors(plan, shapes, DECODER_IGNORED)
    assert faults == []
    assert len(decoder_shapes(Sizes())) == 813
    assert counts["fixed position table"] == 1
    assert counts["norm that is never applied"] == 2
    assert len({entry.source for entry in plan}) == 813 - 3
    for spelling in ("base_layer", "plain"):
        shapes = language_shapes(Sizes(), spelling)
        faults, counts = check_tensors(language_plan(LanguageSizes()), shapes, LANGUAGE_IGNORED)
        assert faults == []
        assert counts == {"frozen Mistral, loaded from its hub id": 32 * 7, "norms before training": 65}


def test_every_tensor_of_the_full_shot_networks_is_covered() -> None:
    config = full_config()
    with torch.device("meta"):
        stock = CogVideoXTransformer3DModel()
        network = ShotDecoder.from_config(stock.config, **decoder_options(config))
        add_lora(network, config.shot_decoder)
        encoder = ShotEncoder(config.shot_encoder)
    state = network.state_dict()
    plan = decoder_plan(DecoderSizes())
    expected = {
        TRANSFORMER: {
            name: t for name, t in stock.state_dict().items() if not name.startswith("patch_embed.text_proj")
        },
        SHOT_ENCODER: encoder.state_dict(),
        DECODER_LORA: adapter_tensors(network, embeddings=False),
        DECODER_OWN: {name: state[name] for name in own_names(network)},
    }
    for file, tensors in expected.items():
        written = {entry.name: entry.target_shape for entry in plan if entry.file == file}
        assert written == {name: tuple(tensor.shape) for name, tensor in tensors.items()}, file
    assert {entry.file for entry in plan} == set(expected)


def test_every_trained_tensor_of_the_full_game_model_is_covered() -> None:
    with torch.device("meta"):
        base = MistralForCausalLM(MistralConfig(vocab_size=32000))
        network = GameModel(wrap_language_model(base, full_config().game_model), full_config())
    plan = language_plan(LanguageSizes())
    resamplers = {name: tensor for name, tensor in network.state_dict().items() if "_resampler." in name}
    for file, tensors in (
        (ADAPTER, adapter_tensors(network.language_model, embeddings=True)),
        (RESAMPLERS, resamplers),
    ):
        written = {entry.name: entry.target_shape for entry in plan if entry.file == file}
        assert written == {name: tuple(tensor.shape) for name, tensor in tensors.items()}, file
    assert {entry.file for entry in plan} == {ADAPTER, RESAMPLERS}


def test_full_size_is_stored_in_the_precision_of_the_bases(tmp_path: Path) -> None:
    shapes = {**language_shapes(TINY), **decoder_shapes(TINY)}
    plan = [*language_plan(LanguageSizes.of(shapes, TINY.width)), *decoder_plan(DecoderSizes.of(shapes))]
    Writer(tmp_path, full_config(), random_state(shapes, seed=6), shard="300KB").write(plan)
    assert {tensor.dtype for tensor in load_file(tmp_path / ADAPTER).values()} == {torch.bfloat16}
    assert {tensor.dtype for tensor in load_file(tmp_path / RESAMPLERS).values()} == {torch.bfloat16}
    assert {tensor.dtype for tensor in load_file(tmp_path / SHOT_ENCODER).values()} == {torch.float16}
    assert {tensor.dtype for tensor in load_file(tmp_path / DECODER_OWN).values()} == {torch.float16}
    shards = sorted((tmp_path / TRANSFORMER).glob("*.safetensors"))
    assert len(shards) > 3
    assert all(path.stat().st_size < 400_000 for path in shards)
    index = json.loads((tmp_path / TRANSFORMER / "diffusion_pytorch_model.safetensors.index.json").read_text())
    where = {name: path.name for path in shards for name in load_file(path)}
    assert index["weight_map"] == where
    assert set(where) == {entry.name for entry in plan if entry.file == TRANSFORMER}


def test_a_full_file_that_lacks_a_layer_is_refused() -> None:
    shapes = {name: shape for name, shape in decoder_shapes(Sizes()).items() if ".29." not in name}
    faults, _ = check_tensors(decoder_plan(DecoderSizes()), shapes, DECODER_IGNORED)
    assert len(faults) == 26
