"""Checkpoint of the package: packed and unpacked it is the trained one in half precision, without unused words."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.checkpoint import Checkpoint
from models.shipped import pack, shipped, unpack
from models.tokens import LEGAL_IDS, TURN
from pipeline.core.errors import UserError
from tests.support.networks.tiny_models import mini_checkpoint

INPUT, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
LANGUAGE = "bases/language_model/model.safetensors"


@pytest.fixture(scope="module")
def start() -> Checkpoint:
    return Checkpoint.open(mini_checkpoint())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Checkpoint whose training has changed two rows of the embeddings."""
    folder = shutil.copytree(mini_checkpoint(), tmp_path_factory.mktemp("shipped") / "trained")
    checkpoint = Checkpoint.open(folder)
    path = checkpoint.folder / "bases/language_model/model.safetensors"
    tensors = load_file(path)
    tensors[INPUT][[7, TURN]] += 1
    save_file(tensors, path, metadata={"format": "pt"})
    return checkpoint


@pytest.mark.slow
def test_an_unpacked_checkpoint_is_the_trained_one_in_half_precision(
    start: Checkpoint, trained: Checkpoint, tmp_path: Path
) -> None:
    for _ in range(2):  # the second in the place of the first
        pack(trained, start, tmp_path / "packed")
    unpacked = unpack(tmp_path / "packed", tmp_path / "unpacked")
    assert unpacked.config == trained.config
    for load in (Checkpoint.shot_decoder, Checkpoint.autoencoder, Checkpoint.shot_encoder, Checkpoint.game_model):
        before, after = (load(each).state_dict() for each in (trained, unpacked))
        assert before.keys() == after.keys()
        for name, value in after.items():
            assert value.dtype == torch.float32
            if INPUT not in name and OUTPUT not in name:
                assert torch.equal(value, before[name].half().float()), name
    assert unpacked.tokenizer().get_vocab() == trained.tokenizer().get_vocab()


@pytest.mark.slow
def test_only_words_that_training_used_are_packed(start: Checkpoint, trained: Checkpoint, tmp_path: Path) -> None:
    pack(trained, start, tmp_path / "packed")
    after = load_file(unpack(tmp_path / "packed", tmp_path / "unpacked").folder / LANGUAGE)
    before = load_file(trained.folder / LANGUAGE)
    kept = {name: after[name].any(dim=1).nonzero()[:, 0].tolist() for name in (INPUT, OUTPUT)}
    assert kept == {INPUT: [7, TURN], OUTPUT: sorted({each for legal in LEGAL_IDS for each in legal})}
    for name, rows in kept.items():
        assert torch.equal(after[name][rows], before[name][rows].half())


@pytest.mark.slow
def test_networks_trained_so_far_are_packed_and_a_start_gives_the_others(
    start: Checkpoint, trained: Checkpoint, tmp_path: Path
) -> None:
    begun = {path: path.read_bytes() for path in start.folder.rglob("*.safetensors")}
    pack(trained, start, tmp_path / "packed", ("autoencoder", "language_model"))
    files = {str(path.relative_to(tmp_path / "packed")) for path in (tmp_path / "packed").rglob("*.safetensors")}
    assert files == {
        "vocabulary.safetensors",
        "game_model/resamplers.safetensors",
        "bases/autoencoder/diffusion_pytorch_model.safetensors",
        LANGUAGE,
    }
    whole = unpack(tmp_path / "packed", tmp_path / "whole", start)
    found, wanted = (load_file(each.folder / LANGUAGE)[INPUT] for each in (whole, trained))
    assert torch.equal(found, wanted.half()), "unused words have the start's embeddings"
    assert torch.equal(whole.shot_decoder().proj_out.weight, start.shot_decoder().proj_out.weight)
    some = unpack(tmp_path / "packed", tmp_path / "some", start, ("autoencoder",))
    assert (some.folder / LANGUAGE).read_bytes() == (start.folder / LANGUAGE).read_bytes()
    assert {path: path.read_bytes() for path in start.folder.rglob("*.safetensors")} == begun


def test_a_cache_folder_that_cannot_be_made_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nope")
    with pytest.raises(UserError, match=r"/proc/nope/animegamer cannot be created .*XDG_CACHE_HOME=FOLDER"):
        shipped()


@pytest.mark.slow
def test_the_checkpoint_of_the_package_is_unpacked_once(
    start: Checkpoint, trained: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    packed = tmp_path / "packed"
    with pytest.raises(UserError, match="packed has no checkpoint: install the package again"):
        shipped(packed)
    pack(trained, start, packed)
    opened = shipped(packed)
    assert opened.folder.parent == tmp_path / "cache" / "animegamer"
    times = {path: path.stat().st_mtime_ns for path in opened.folder.rglob("*")}
    assert shipped(packed) == opened
    assert times == {path: path.stat().st_mtime_ns for path in opened.folder.rglob("*")}
    for removed in ("shot_encoder.safetensors", "tokenizer/tokenizer.json"):
        (opened.folder / removed).unlink()
        assert shipped(packed) == opened
        assert (opened.folder / removed).exists(), "a cleaner of caches removed it"
    (packed / "vocabulary.safetensors").write_bytes(b"cut off")
    with pytest.raises(UserError, match=r"vocabulary\.safetensors cannot be read"):
        shipped(packed)
    assert list((tmp_path / "cache" / "animegamer").iterdir()) == [opened.folder]
