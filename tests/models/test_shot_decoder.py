"""Shot decoder compared with its stock transformer; motion scope, adapters, saving, loading, parameters of phases."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusers import CogVideoXPipeline, CogVideoXTransformer3DModel
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.config import ModelConfig, full_config, tiny_config
from models.diffusion import Guidance, draw
from models.shot_decoder import (
    MotionTimestepEmbedding,
    ShotDecoder,
    add_lora,
    decoder_options,
    denoise,
    ending,
    unfreeze_for_adaptation,
    unfreeze_for_joint,
    unfreeze_for_warm_up,
)
from models.shot_encoder import ShotEncoder
from tests.support.networks.tiny_models import shake

SIZES = {
    "num_attention_heads": 2,
    "attention_head_dim": 64,
    "num_layers": 2,
    "time_embed_dim": 32,
    "text_embed_dim": 24,
}
WEIGHTS = "diffusion_pytorch_model.safetensors"


def config(**shot: object) -> ModelConfig:
    tiny = tiny_config()
    return tiny.replaced(shot_decoder={**tiny.shot_decoder.model_dump(), **shot})


def stock(**others: object) -> CogVideoXTransformer3DModel:
    torch.manual_seed(0)
    transformer = CogVideoXTransformer3DModel(**SIZES, **others)
    shake(transformer)
    return transformer.eval()


def made(**shot: object) -> ShotDecoder:
    """Shot decoder with all parameters moved from their initial values."""
    torch.manual_seed(0)
    decoder = ShotDecoder(**SIZES, **decoder_options(config(**shot)))
    shake(decoder)
    return decoder.eval()


def inputs(batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn(batch, 5, 16, 8, 12, generator=generator)
    return latents, torch.randn(batch, 80, 128, generator=generator), torch.tensor([999, 19])[:batch]


@pytest.fixture
def stock_folder(tmp_path: Path) -> Path:
    stock().save_pretrained(tmp_path / "transformer")
    return tmp_path / "transformer"


def test_a_fresh_decoder_computes_the_same_as_the_stock_transformer(stock_folder: Path):
    decoder = ShotDecoder.from_pretrained(stock_folder, **decoder_options(config()))
    base = stock()
    base.patch_embed.text_proj = nn.Identity()  # the shot tokens have the network's width already
    base.patch_embed.max_text_seq_length = 80
    latents, tokens, timesteps = inputs()
    with torch.no_grad():
        expected = base(latents, tokens, timesteps, return_dict=False)[0]
        for scopes in (None, torch.tensor([0.0, 40.0])):  # 0 px too: the published code failed on it
            assert torch.equal(denoise(decoder, latents, tokens, timesteps, scopes), expected)


def test_rotary_positions_are_those_of_the_stock_pipeline(tmp_path: Path):
    size = {"sample_frames": 17, "sample_height": 8, "sample_width": 12}
    base = stock(use_rotary_positional_embeddings=True, **size)
    base.save_pretrained(tmp_path)
    decoder = ShotDecoder.from_pretrained(tmp_path, **decoder_options(config()))
    base.patch_embed.text_proj = nn.Identity()
    pipeline = SimpleNamespace(transformer=base, vae_scale_factor_spatial=8)
    rotary = CogVideoXPipeline._prepare_rotary_positional_embeddings(pipeline, 64, 96, 5, torch.device("cpu"))
    latents, tokens, timesteps = inputs()
    with torch.no_grad():
        expected = base(latents, tokens, timesteps, image_rotary_emb=rotary, return_dict=False)[0]
        without = base(latents, tokens, timesteps, return_dict=False)[0]
        found = denoise(decoder, latents, tokens, timesteps, None)
    assert torch.equal(found, expected)
    assert not torch.allclose(found, without, atol=1e-3), "positions make a difference"


def test_a_stock_folder_loads_whole_and_the_scope_embedding_is_new(stock_folder: Path):
    original = load_file(stock_folder / WEIGHTS)
    for low_cpu_mem_usage in (True, False):
        decoder = ShotDecoder.from_pretrained(
            stock_folder, low_cpu_mem_usage=low_cpu_mem_usage, **decoder_options(config())
        )
        state = decoder.state_dict()
        new = {name for name in state if name not in original}
        assert new == {f"time_embedding.motion.linear_{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")}
        assert all(torch.equal(state[name], original[name]) for name in state if name not in new)
        assert 0.02 < state["time_embedding.motion.linear_1.weight"].std() < 0.08  # uniform in +-1/sqrt(128)
        assert not state["time_embedding.motion.linear_2.weight"].any()
        assert not state["time_embedding.motion.linear_2.bias"].any()


def test_the_shot_before_is_a_zero_part_of_the_first_convolution(stock_folder: Path):
    plain = ShotDecoder.from_pretrained(stock_folder, **decoder_options(config()))
    latents, tokens, timesteps = inputs()
    before = ending(torch.randn(2, 5, 16, 8, 12, generator=torch.Generator().manual_seed(2)))
    for low_cpu_mem_usage in (True, False):
        options = decoder_options(config(continues="place"))
        decoder = ShotDecoder.from_pretrained(stock_folder, low_cpu_mem_usage=low_cpu_mem_usage, **options)
        assert set(decoder.state_dict()) - set(plain.state_dict()) == {"patch_embed.proj.before.weight"}
        with torch.no_grad():
            expected = denoise(plain, latents, tokens, timesteps, None)
            for given in (None, before):
                assert torch.equal(denoise(decoder, latents, tokens, timesteps, None, given), expected)
    projection = decoder.patch_embed.proj
    shake(projection)
    both_NCHW, both_weights = torch.randn(3, 33, 8, 12), torch.cat([projection.weight, projection.before.weight], dim=1)
    wanted = nn.functional.conv2d(both_NCHW, both_weights, projection.bias, projection.stride)
    torch.testing.assert_close(projection(both_NCHW), wanted, atol=1e-5, rtol=1e-4)


def test_a_decoder_that_continues_survives_saving_and_others_stay_as_they_were(tmp_path: Path):
    for continues in ("no", "scene"):
        decoder, folder = made(continues=continues), tmp_path / continues
        decoder.save_pretrained(folder)
        assert ("continues" in (folder / "config.json").read_text()) == (continues != "no")
        assert ("continues" in config(continues=continues).text()) == (continues != "no")
        again = ShotDecoder.from_pretrained(folder)
        assert again.continues == (continues != "no")
        before = ending(inputs()[0])
        found, expected = (denoise(each, *inputs(), None, before) for each in (again, decoder))
        assert torch.equal(found, expected)
        assert torch.equal(expected, denoise(decoder, *inputs(), None)) == (continues == "no")


def test_both_halves_of_the_guidance_continue_the_shot_before():
    decoder, (latents, tokens, _) = made(continues="place"), inputs()
    one, other = (ending(latents[row : row + 1]) for row in (0, 1))
    settings = {"seed": 0, "steps": 2, "guidance": Guidance(scale=3.0)}

    def drawn(rows: slice, before: Tensor) -> Tensor:
        return draw(decoder, tokens[rows], torch.zeros(1, 80, 128), None, before_BCHW=before, **settings)

    assert not torch.allclose(drawn(slice(1), one), drawn(slice(1), other))
    seen: list[Tensor] = []
    decoder.patch_embed.proj.before.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    drawn(slice(2), torch.cat([one, other]))
    frames = seen[0].view(2, 2, 5, 17, 8, 12)
    assert torch.equal(frames[0], frames[1])
    for row, before in enumerate((one, other)):
        assert torch.equal(frames[0, row], before.expand(5, -1, -1, -1))


def test_half_precision_loads_and_computes(stock_folder: Path):
    for dtype in (torch.float16, torch.bfloat16):
        decoder = ShotDecoder.from_pretrained(stock_folder, torch_dtype=dtype, **decoder_options(config()))
        assert {parameter.dtype for parameter in decoder.parameters()} == {dtype}
        velocity = denoise(decoder, *inputs(), torch.tensor([0.5, 40.0]))
        assert velocity.dtype == torch.float32
        assert velocity.isfinite().all()


def test_a_folder_with_a_tensor_too_many_is_refused(stock_folder: Path):
    tensors = load_file(stock_folder / WEIGHTS)
    save_file({**tensors, "ofs_embedding.x": torch.zeros(1)}, stock_folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"ofs_embedding\.x"):
        ShotDecoder.from_pretrained(stock_folder, **decoder_options(config()))


def test_sizes_and_epsilon_survive_saving(tmp_path: Path):
    decoder = made(norm_out_eps=1e-6)
    decoder.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    again = ShotDecoder.from_pretrained(tmp_path)
    for each in (saved, again.config):
        assert (each["sample_frames"], each["sample_height"], each["sample_width"]) == (17, 8, 12)
        assert (each["max_text_seq_length"], each["norm_out_eps"]) == (80, 1e-6)
    assert again.norm_out.norm.eps == 1e-6
    assert again.norm_final.eps == 1e-5
    scopes = torch.tensor([2.5, 15.0])
    assert torch.equal(denoise(again, *inputs(), scopes), denoise(decoder, *inputs(), scopes))


def test_the_stored_table_of_positions_is_used_in_every_call():
    decoder = made()
    assert decoder.patch_embed.pos_embedding.shape == (1, 80 + 5 * 4 * 6, 128)
    assert not decoder.patch_embed.pos_embedding[:, :80].any()
    decoder.patch_embed.pos_embedding.fill_(torch.nan)  # a recomputed table would hide it
    assert denoise(decoder, *inputs(), None).isnan().all()


def test_the_embedded_scope_is_added_like_a_timestep():
    embedding = MotionTimestepEmbedding(16, 8)
    shake(embedding, by=0.5)
    weights = {name: tensor.detach().double().numpy() for name, tensor in embedding.named_parameters()}
    scopes = np.array([0.0, 0.5, 12.3, 40.0])
    angles = scopes[:, None] * 10000 ** (-np.arange(8) / 8)
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    sample = np.random.default_rng(0).normal(size=(4, 16))

    def two_layers(x: np.ndarray, prefix: str) -> np.ndarray:
        hidden = x @ weights[f"{prefix}linear_1.weight"].T + weights[f"{prefix}linear_1.bias"]
        return (
            hidden / (1 + np.exp(-hidden)) @ weights[f"{prefix}linear_2.weight"].T + weights[f"{prefix}linear_2.bias"]
        )

    expected = two_layers(sample, "") + two_layers(waves, "motion.")
    found = embedding(torch.tensor(sample).float(), torch.tensor(scopes).float())
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-4)


def test_a_scope_of_zero_differs_from_no_scope():
    decoder = made()
    zero, none = (denoise(decoder, *inputs(), scopes) for scopes in (torch.zeros(2), None))
    assert zero.isfinite().all()
    assert not torch.allclose(zero, none)


def test_the_scope_is_not_rounded_before_it_is_embedded():
    embedding = MotionTimestepEmbedding(16, 8).to(torch.bfloat16)
    shake(embedding, by=0.5)
    sample = torch.zeros(1, 16, dtype=torch.bfloat16)
    near = [embedding(sample, torch.tensor([scope])) for scope in (39.9, 40.0)]  # one number in bfloat16
    assert not torch.equal(*near)


def test_wrong_shapes_are_refused():
    decoder, (latents, tokens, timesteps) = made(), inputs()
    with pytest.raises(ValueError, match="latents must be"):
        denoise(decoder, latents[:, :4], tokens, timesteps, None)
    with pytest.raises(ValueError, match="shot tokens must be"):
        denoise(decoder, latents, tokens[:, :79], timesteps, None)


@pytest.mark.parametrize("alpha", [1, 8])
def test_an_adapter_is_scaled_by_alpha_over_rank(alpha: int):
    shot = config(lora_rank=8, lora_alpha=alpha).shot_decoder
    adapted, merged = made(), made()
    add_lora(adapted, shot)
    shake_adapters(adapted)
    weights = dict(adapted.named_parameters())
    with torch.no_grad():
        for name, parameter in merged.named_parameters():
            module = name.removesuffix(".weight")
            if f"{module}.lora_A.default.weight" in weights:
                down, up = (weights[f"{module}.lora_{each}.default.weight"] for each in "AB")
                parameter += alpha / 8 * up @ down
        plain, found, expected = (denoise(each, *inputs(), None) for each in (made(), adapted, merged))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    assert (found - plain).abs().max() > 20 * (found - expected).abs().max()


def test_only_attention_projections_have_adapters():
    decoder = made()
    add_lora(decoder, config().shot_decoder)
    adapted = {name.split(".lora_A")[0] for name, _ in decoder.named_parameters() if ".lora_A." in name}
    projections = ("to_q", "to_k", "to_v", "to_out.0")
    assert adapted == {f"transformer_blocks.{i}.attn1.{each}" for i in (0, 1) for each in projections}


def test_gradient_checkpointing_gives_the_same_gradients():
    grads = []
    for checkpointing in (False, True):
        decoder = made().train()
        if checkpointing:
            decoder.enable_gradient_checkpointing()
        denoise(decoder, *inputs(), torch.tensor([1.0, 20.0])).square().mean().backward()
        grads.append({name: parameter.grad for name, parameter in decoder.named_parameters()})
    assert all(grad is not None for grad in grads[0].values())
    for name, grad in grads[0].items():
        torch.testing.assert_close(grads[1][name], grad)


def shake_adapters(decoder: ShotDecoder) -> None:
    for name, module in decoder.named_modules():
        if name.endswith((".lora_A", ".lora_B")):
            shake(module, seed=len(name), by=0.2)


@functools.cache
def full() -> tuple[ShotEncoder, ShotDecoder]:
    config = full_config()
    with torch.device("meta"):
        decoder = ShotDecoder(**decoder_options(config))
        add_lora(decoder, config.shot_decoder)
        return ShotEncoder(config.shot_encoder), decoder


def small() -> tuple[ShotEncoder, ShotDecoder]:
    config = tiny_config()
    decoder = ShotDecoder(num_attention_heads=2, num_layers=2, time_embed_dim=32, **decoder_options(config))
    add_lora(decoder, config.shot_decoder)
    return ShotEncoder(config.shot_encoder), decoder


def count(parameters: list[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def thawed(network: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def test_the_full_counts_of_every_phase():
    encoder, decoder = full()
    assert count(unfreeze_for_warm_up(encoder, decoder)) == 17_973_248
    assert count(thawed(encoder) + thawed(decoder)) == 17_973_248
    assert count(unfreeze_for_joint(encoder, decoder)) == 402_050_048
    assert count(thawed(encoder) + thawed(decoder)) == 402_050_048
    assert count(unfreeze_for_adaptation(decoder)) == 385_323_008
    assert count(thawed(decoder)) == 385_323_008


def test_the_published_count_is_ours_plus_two_parts():
    # its 1,746,779,840 parameters hold the adapters, the shot encoder, the table of positions and an unused LayerNorm
    encoder, decoder = full()
    table, unused_norm = 6976 * 1920, 2 * 1920
    assert decoder.patch_embed.pos_embedding.numel() == table
    ours = count(list(encoder.parameters())) + count(list(decoder.parameters()))
    assert ours + table + unused_norm == 1_746_779_840
    assert sum("lora_" in name for name, _ in decoder.named_parameters()) == 240


def test_later_phases_undo_the_earlier_ones():
    encoder, decoder = small()
    decoder.requires_grad_(True)
    unfreeze_for_joint(encoder, decoder)
    joint = {name for name, parameter in decoder.named_parameters() if parameter.requires_grad}
    unfreeze_for_warm_up(encoder, decoder)
    assert len(thawed(decoder)) == 4
    unfreeze_for_adaptation(decoder)
    assert {name for name, parameter in decoder.named_parameters() if parameter.requires_grad} == joint
    assert "norm_out.linear.weight" not in joint
    assert "patch_embed.proj.weight" not in joint


def test_a_decoder_without_adapters_is_refused():
    decoder = ShotDecoder(num_attention_heads=2, num_layers=1, **decoder_options(tiny_config()))
    with pytest.raises(ValueError, match="add_lora"):
        unfreeze_for_adaptation(decoder)
