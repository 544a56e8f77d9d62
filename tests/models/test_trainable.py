"""Trainable parameters of each phase: names at a small size, exact counts at full size."""

import functools

import pytest
import torch
from torch import nn

from models.config import full_config, tiny_config
from models.shot_decoder import ShotDecoder, add_lora, decoder_options
from models.shot_encoder import ShotEncoder
from models.trainable import for_adaptation, for_joint, for_warm_up


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
    assert count(for_warm_up(encoder, decoder)) == 17_973_248
    assert count(thawed(encoder) + thawed(decoder)) == 17_973_248
    assert count(for_joint(encoder, decoder)) == 402_050_048
    assert count(thawed(encoder) + thawed(decoder)) == 402_050_048
    assert count(for_adaptation(decoder)) == 385_323_008
    assert count(thawed(decoder)) == 385_323_008


def test_the_published_count_is_ours_plus_two_parts():
    # its 1,746,779,840 parameters hold the adapters, the shot encoder, the table of positions and an unused LayerNorm
    encoder, decoder = full()
    table, unused_norm = 6976 * 1920, 2 * 1920
    assert decoder.patch_embed.pos_embedding.numel() == table
    ours = count(list(encoder.parameters())) + count(list(decoder.parameters()))
    assert ours + table + unused_norm == 1_746_779_840
    assert sum("lora_" in name for name, _ in decoder.named_parameters()) == 240


def test_the_warm_up_trains_only_the_motion_scope_of_the_decoder():
    encoder, decoder = small()
    for_warm_up(encoder, decoder)
    names = {name for name, parameter in decoder.named_parameters() if parameter.requires_grad}
    assert len(names) == 4
    assert all(name.startswith("time_embedding.motion.") for name in names)
    assert len(thawed(encoder)) == len(list(encoder.parameters()))


def test_later_phases_undo_the_earlier_ones():
    encoder, decoder = small()
    decoder.requires_grad_(True)
    for_joint(encoder, decoder)
    joint = {name for name, parameter in decoder.named_parameters() if parameter.requires_grad}
    for_warm_up(encoder, decoder)
    assert len(thawed(decoder)) == 4
    for_adaptation(decoder)
    assert {name for name, parameter in decoder.named_parameters() if parameter.requires_grad} == joint
    assert "norm_out.linear.weight" not in joint
    assert "patch_embed.proj.weight" not in joint


def test_every_trained_parameter_is_listed_once():
    encoder, decoder = small()
    listed = for_joint(encoder, decoder)
    assert len({id(parameter) for parameter in listed}) == len(listed)
    assert {id(parameter) for parameter in listed} == {id(each) for each in thawed(encoder) + thawed(decoder)}


def test_a_decoder_without_adapters_is_refused():
    decoder = ShotDecoder(num_attention_heads=2, num_layers=1, **decoder_options(tiny_config()))
    with pytest.raises(ValueError, match="add_lora"):
        for_adaptation(decoder)
