"""Networks of pictures and texts: CLIP in the files of the real one, faults with a remedy, and appearance."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from examples.world.shapes import ShapeClip, paint
from pipeline.core.errors import UserError
from tests.support.networks.random_dreamsim import save_random_dreamsim
from tests.support.networks.small_clip import save_small_clip, save_small_open_clip
from training.evaluation.metrics.appearance import Appearance
from training.evaluation.metrics.networks import load_clip, load_dreamsim, squares

MEADOW = paint(ShapeClip("Ruby", "float up", "meadow", 3))[..., ::-1]
DESERT = paint(ShapeClip("Sunny", "float up", "desert", 3))[..., ::-1]


def test_clip_embeds_pictures_of_any_size_and_texts_of_any_length(tmp_path: Path) -> None:
    clip = load_clip(str(save_small_clip(tmp_path / "clip")))
    pictures_ND = clip.embed([MEADOW[0], DESERT[0], MEADOW[0], MEADOW[0][:40, :20]])
    texts_ND = clip.embed_texts(["Ruby runs", "Ruby runs " * 100])
    np.testing.assert_allclose(np.linalg.norm(np.concatenate([pictures_ND, texts_ND]), axis=1), 1, rtol=1e-5)
    assert pictures_ND[0] @ pictures_ND[2] == pytest.approx(1)
    assert pictures_ND[0] @ pictures_ND[1] < 0.9999
    np.testing.assert_allclose(clip.embed_texts(["Ruby runs"])[0], texts_ND[0], atol=1e-5)


def test_the_identity_of_a_network_is_that_of_its_weights(tmp_path: Path) -> None:
    one, other = (load_clip(str(save_small_clip(tmp_path / str(seed), seed))) for seed in (1, 2))
    assert one.identity == load_clip(str(tmp_path / "1")).identity
    assert one.identity != other.identity


def test_random_weights_are_known_by_the_norms_that_training_changes(tmp_path: Path) -> None:
    folder = save_small_clip(tmp_path / "clip")
    assert load_clip(str(folder)).is_untrained
    tensors = load_file(folder / "model.safetensors")
    tensors["vision_model.post_layernorm.weight"][0] = 0.9
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert not load_clip(str(folder)).is_untrained


def test_an_incomplete_clip_is_refused(tmp_path: Path) -> None:
    file = save_small_clip(tmp_path / "clip") / "model.safetensors"
    tensors = load_file(file)
    tensors.pop("text_projection.weight")
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(UserError, match=r"text_projection\.weight is missing .*--clip"):
        load_clip(str(tmp_path / "clip"))


def test_a_folder_without_a_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--clip"):
        load_clip(str(tmp_path))


def test_an_absent_open_clip_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", None)  # importing it fails, as where it is not installed
    with pytest.raises(UserError, match="open_clip is not installed; `make install-evaluate`"):
        load_clip("open-clip:laion/CLIP-ViT-B-32-laion2B-s34B-b79K")


def test_an_absent_dreamsim_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dreamsim", None)
    with pytest.raises(UserError, match="DreamSim is not installed; `make install-evaluate`"):
        load_dreamsim(tmp_path)


def test_an_incomplete_folder_of_dreamsim_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no ensemble_lora/adapter_config\.json; fetch the weights once with"):
        load_dreamsim(tmp_path)


def test_open_clip_is_loaded_from_a_folder(tmp_path: Path) -> None:
    clip = load_clip(f"open-clip:{save_small_open_clip(tmp_path / 'clip')}")
    pictures_ND, texts_ND = clip.embed([MEADOW[0], DESERT[0], MEADOW[0]]), clip.embed_texts(["Ruby runs " * 100])
    assert pictures_ND.shape[1] == texts_ND.shape[1] == 16
    assert pictures_ND[0] @ pictures_ND[2] == pytest.approx(1)
    assert clip.is_untrained
    with pytest.raises(UserError, match="cannot be loaded by open_clip"):
        load_clip(f"open-clip:{tmp_path}")


@pytest.mark.nightly
def test_dreamsim_is_loaded_from_a_folder_and_gives_the_similarity_of_the_package(tmp_path: Path) -> None:
    dreamsim = load_dreamsim(save_random_dreamsim(tmp_path / "dreamsim"))
    pictures_ND = dreamsim.embed([MEADOW[0], DESERT[0]])
    pixels_NCHW = squares([MEADOW[0], DESERT[0]], 224).float() / 255
    distance = float(dreamsim.network(pixels_NCHW[:1], pixels_NCHW[1:]))
    assert pictures_ND[0] @ pictures_ND[1] == pytest.approx(1 - distance, abs=1e-5)
    assert dreamsim.is_untrained


def test_appearances_are_equal_for_equal_pictures_and_tell_places_apart() -> None:
    appearances = Appearance().embed([MEADOW[0], MEADOW[0], MEADOW[8], DESERT[0]])
    similar = appearances @ appearances[0]
    assert similar[1] == pytest.approx(1)
    assert similar[3] < similar[2] < 1
    assert similar[3] < 0.5
