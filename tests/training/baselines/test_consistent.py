"""Consistent self-attention against an independent restatement, and the influence between pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from diffusers.models.attention_processor import Attention
from torch import Tensor

from models.turns import turn_seed
from tests.support.networks.tiny_baselines import brief_baseline
from training.baselines.agents import draw_story
from training.baselines.config import StorySettings
from training.baselines.consistent import ConsistentAttention, PictureGroup, drawn_together, is_consistent, windows
from training.baselines.folder import BaselineFolder

STORY = ["a girl on a beach", "a girl in a bed", "a girl under a tree", "a girl on a roof", "a girl in a train"]
SEEDS = [11, 12, 13, 14, 15]
EAGER = StorySettings(begin=0.0)


def layer() -> Attention:
    torch.manual_seed(0)
    return Attention(query_dim=16, heads=2, dim_head=8)


def window(count: int, *, sampled: float = 0.5, anchors: int = 0, begin: int = 0) -> PictureGroup:
    return PictureGroup(range(count), anchors=anchors, sampled=sampled, begin=begin, seed=7)


def restated(attention: Attention, own_LD: Tensor, seen_KD: Tensor) -> Tensor:
    """Attention of one picture by the formula, head by head."""
    query, key, value = (
        projection(states).detach()
        for projection, states in ((attention.to_q, own_LD), (attention.to_k, seen_KD), (attention.to_v, seen_KD))
    )
    heads = [
        torch.softmax(query[:, part] @ key[:, part].T / math.sqrt(8), dim=-1) @ value[:, part]
        for part in (slice(0, 8), slice(8, 16))
    ]
    return attention.to_out[0](torch.cat(heads, dim=-1)).detach()


@torch.no_grad()
def test_a_picture_attends_to_itself_and_to_sampled_tokens_of_the_others() -> None:
    attention, states_BLD = layer(), torch.randn(6, 10, 16)
    attention.set_processor(ConsistentAttention(window(3)))
    drawn_BLD = attention(states_BLD)
    places = [torch.randperm(10, generator=torch.Generator().manual_seed(turn_seed(7, n, 1)))[:5] for n in range(3)]
    for half in (0, 3):
        for me in range(3):
            others = [states_BLD[half + n][places[n]] for n in range(3) if n != me]
            expected_LD = restated(attention, states_BLD[half + me], torch.cat([states_BLD[half + me], *others]))
            torch.testing.assert_close(drawn_BLD[half + me], expected_LD)
    assert not torch.equal(attention(states_BLD), drawn_BLD)  # the next layer or step sees other tokens


@torch.no_grad()
@pytest.mark.parametrize("off", [{"sampled": 0.0}, {"begin": 1}])
def test_without_samples_it_is_plain_attention(off: dict[str, float]) -> None:
    attention, states_BLD = layer(), torch.randn(4, 10, 16)
    expected_BLD = torch.stack([restated(attention, own_LD, own_LD) for own_LD in states_BLD])
    attention.set_processor(ConsistentAttention(window(2, **off)))
    torch.testing.assert_close(attention(states_BLD), expected_BLD)


@torch.no_grad()
def test_the_halves_of_guidance_do_not_mix() -> None:
    attention, states_BLD = layer(), torch.randn(4, 10, 16)
    changed_BLD = torch.cat([states_BLD[:2], torch.randn(2, 10, 16)])
    drawn = []
    for each_BLD in (states_BLD, changed_BLD):
        attention.set_processor(ConsistentAttention(window(2)))
        drawn.append(attention(each_BLD))
    assert torch.equal(drawn[0][:2], drawn[1][:2])
    assert not torch.allclose(drawn[0][2:], drawn[1][2:])


def test_only_self_attention_of_the_upward_half_is_replaced_and_restored() -> None:
    unet = sdxl().unet
    before = dict(unet.attn_processors)
    with drawn_together(unet, window(2)):
        changed = {name for name, each in unet.attn_processors.items() if isinstance(each, ConsistentAttention)}
        assert changed == {name for name in before if is_consistent(name)}
        assert changed
        assert all(name.startswith("up_blocks") and "attn2" not in name for name in changed)
    assert unet.attn_processors == before


def test_windows_cover_the_story_once_besides_their_anchors() -> None:
    assert windows(3, together=4, anchors=2) == [(0, 1, 2)]
    assert windows(4, together=4, anchors=2) == [(0, 1, 2, 3)]
    assert windows(9, together=4, anchors=2) == [(0, 1, 2, 3), (0, 1, 4, 5), (0, 1, 6, 7), (0, 1, 8)]
    with pytest.raises(ValueError, match="anchors must be fewer than together"):
        StorySettings(together=2, anchors=2)


def sdxl() -> StableDiffusionXLPipeline:
    return BaselineFolder.open(brief_baseline("gsc")).picture()


def drawn(
    pipeline: StableDiffusionXLPipeline, texts: Sequence[str], story: StorySettings, seeds: Sequence[int] = SEEDS
) -> list[np.ndarray]:
    picture = BaselineFolder.open(brief_baseline("gsc")).config.picture
    assert picture is not None
    return [np.asarray(image).astype(int) for image in draw_story(pipeline, texts, seeds, picture, story)]


def same(picture: np.ndarray, other: np.ndarray) -> bool:
    return int(np.abs(picture - other).max()) <= 1


def test_pictures_of_one_story_influence_each_other_and_the_seed_reproduces_them() -> None:
    pipeline = sdxl()
    story = drawn(pipeline, STORY[:3], EAGER)
    again = drawn(pipeline, STORY[:3], EAGER)
    assert all(np.array_equal(one, other) for one, other in zip(story, again, strict=True))
    # another text and other noise in the third picture
    changed = drawn(pipeline, [*STORY[:2], "a locomotive"], EAGER, [11, 12, 99])
    assert not np.array_equal(changed[0], story[0])
    assert not np.array_equal(changed[1], story[1])
    # drawn alone, without a story, it equals plain SDXL
    apart = drawn(pipeline, STORY[:3], StorySettings(sampled=0.0))
    plain = pipeline(
        STORY[0], height=32, width=48, num_inference_steps=2, guidance_scale=3.5,
        generator=torch.Generator().manual_seed(11),
    ).images[0]  # fmt: skip
    assert same(apart[0], np.asarray(plain).astype(int))
    assert not same(apart[0], story[0])


def test_a_story_in_windows_has_one_set_of_anchors() -> None:
    pipeline = sdxl()
    settings = StorySettings(begin=0.0, together=3, anchors=2)
    story = drawn(pipeline, STORY, settings)
    assert len(story) == 5
    # later pictures see the same anchors: with another third picture, the fourth and fifth stay as they are
    changed = drawn(pipeline, [*STORY[:2], "a locomotive", *STORY[3:]], settings, [11, 12, 99, 14, 15])
    assert [same(one, other) for one, other in zip(story, changed, strict=True)] == [True, True, False, True, True]
    # but with another first one they do not
    changed = drawn(pipeline, ["a locomotive", *STORY[1:]], settings)
    assert not any(np.array_equal(one, other) for one, other in zip(story[3:], changed[3:], strict=True))
