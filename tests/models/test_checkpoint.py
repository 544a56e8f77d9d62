"""Checkpoints on disk: exact round trips, loading by plain peft and diffusers, and errors for damage."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import CogVideoXTransformer3DModel
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import MistralForCausalLM

from models.checkpoint import ADAPTER, DECODER_LORA, DECODER_OWN, ENCODERS, RESAMPLERS, SHOT_ENCODER, Checkpoint
from models.checkpoint_writer import save_game_model, save_shot_decoder, save_shot_encoder, writing
from models.config import CONFIG, Base, LevelScale, ModelConfig, inside_id, tiny_config
from models.tokens import VOCABULARY, PastTurn, State, TokenPrompt, write_prompt
from models.untrained import new_checkpoint
from pipeline.core.errors import UserError
from tests.support.networks.tiny_models import change_image_encoder, copy_of_tiny, shake, tiny_checkpoint


@pytest.mark.slow
def test_the_same_seed_writes_the_same_checkpoint_and_another_seed_another(tmp_path: Path) -> None:
    same = new_checkpoint(tmp_path / "same", tiny_config(), seed=1)
    other = new_checkpoint(tmp_path / "other", tiny_config(), seed=2)
    first = Checkpoint.open(tiny_checkpoint())
    assert same.identity() == first.identity() != other.identity()
    names = sorted(path.relative_to(first.folder) for path in first.folder.rglob("*.safetensors"))
    assert len(names) == 10
    for name in names:
        assert (same.folder / name).read_bytes() == (first.folder / name).read_bytes(), name


@pytest.mark.slow
def test_networks_that_were_never_trained_are_known_by_their_adapters(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    assert checkpoint.untrained() == ["game model", "shot decoder"]
    tensors = load_file(checkpoint.folder / DECODER_LORA)
    tensors[min(name for name in tensors if "lora_B" in name)][0, 0] = 0.1
    save_file(tensors, checkpoint.folder / DECODER_LORA)
    assert checkpoint.untrained() == ["game model"]


def test_what_the_page_says_is_no_part_of_the_identity_and_what_is_played_is(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    identity, path = checkpoint.identity(), checkpoint.folder / CONFIG
    levels = LevelScale(edges=(1.0, 2.0, 3.0, 4.0), width=96, height=64)
    said = {"about": "A small world.", "other_words": {"sea": "beach"}, "together": {"Qiqi": ("run",)}}
    for changes, same in (
        (said, True),
        ({"levels": levels}, True),
        ({"level_values": (1.0, 2.0, 3.0, 4.0, 5.0)}, False),
    ):
        path.write_text(checkpoint.config.replaced(**changes).text(), encoding="utf-8")
        assert (Checkpoint.open(checkpoint.folder).identity() == identity) is same, changes


def test_an_encoder_inside_is_an_ingredient_of_a_training_and_not_of_a_game(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    identity, before = checkpoint.identity(), checkpoint.as_start()
    change_image_encoder(checkpoint.folder)
    after = checkpoint.as_start()
    assert checkpoint.identity() == identity == before["start"] == after["start"]
    assert before["encoder"] != after["encoder"]
    for encoder in ENCODERS:
        shutil.rmtree(checkpoint.folder / inside_id(encoder))
    assert checkpoint.as_start() == {"start": identity}


def test_saved_tensors_are_loaded_to_the_bit(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    game_model, encoder, decoder = checkpoint.game_model(), checkpoint.shot_encoder(), checkpoint.shot_decoder()
    for network in (game_model, encoder, decoder):
        shake(network)
    # the frozen bases are not saved and must not be shaken: load first, then compare our parameters
    save_game_model(checkpoint.folder, game_model)
    save_shot_encoder(checkpoint.folder, encoder.state_dict())
    save_shot_decoder(checkpoint.folder, decoder)
    again = {**checkpoint.game_model().state_dict(), **checkpoint.shot_decoder().state_dict()}
    again |= checkpoint.shot_encoder().state_dict()
    shaken = {**game_model.state_dict(), **decoder.state_dict(), **encoder.state_dict()}
    ours = [name for name in again if torch.equal(again[name], shaken[name])]
    theirs = set(again) - set(ours)
    assert sum("lora" in name for name in ours) == 4 * 7 * 2 + 4 * 4 * 2
    assert not any(
        part in name
        for name in theirs
        for part in (
            "lora",
            "modules_to_save",
            "embed_tokens",
            "lm_head",
            "resampler",
            "text_proj",
            "norm1.linear",
            "motion",
        )
    )


@pytest.mark.slow
def test_a_loaded_network_plays_what_the_saved_one_played(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    model = checkpoint.game_model()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2)
    prompt = _prompt(checkpoint)
    before = model.predict(prompt)
    save_game_model(checkpoint.folder, model)
    after = checkpoint.game_model().predict(prompt)
    assert torch.equal(before.shot_tokens_LD, after.shot_tokens_LD)
    assert before.state == after.state
    assert not torch.equal(
        before.shot_tokens_LD, Checkpoint.open(tiny_checkpoint()).game_model().predict(prompt).shot_tokens_LD
    )


def test_plain_peft_and_diffusers_load_the_adapters(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    game_model, decoder = checkpoint.game_model(), checkpoint.shot_decoder()
    for name, parameter in [*game_model.named_parameters(), *decoder.named_parameters()]:
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    save_game_model(checkpoint.folder, game_model)
    save_shot_decoder(checkpoint.folder, decoder)
    ids = torch.arange(1, 30)[None]
    base = MistralForCausalLM.from_pretrained(checkpoint.folder / "bases/language_model")
    base.resize_token_embeddings(VOCABULARY, mean_resizing=False)
    plain = PeftModel.from_pretrained(base, str(checkpoint.folder / "game_model")).eval()
    with torch.no_grad():
        expected = game_model.language_model(input_ids=ids).logits
        torch.testing.assert_close(plain(input_ids=ids).logits, expected)
    stock = CogVideoXTransformer3DModel.from_pretrained(checkpoint.folder / "bases/transformer")
    stock.load_lora_adapter(str(checkpoint.folder / "shot_decoder"), prefix=None, weight_name=Path(DECODER_LORA).name)
    ours, theirs = decoder.state_dict(), stock.state_dict()
    adapters = [name for name in ours if "lora" in name]
    assert len(adapters) == 4 * 4 * 2
    assert all(torch.equal(ours[name], theirs[name.replace(".default.", ".default_0.")]) for name in adapters) or all(
        torch.equal(ours[name], theirs[name]) for name in adapters
    )


def _without_a_tensor(path: Path) -> None:
    tensors = load_file(path)
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, path)


def _with_a_stranger(path: Path) -> None:
    save_file({**load_file(path), "stranger": torch.ones(1)}, path)


def _of_another_shape(path: Path) -> None:
    tensors = load_file(path)
    name = sorted(tensors)[0]
    save_file({**tensors, name: tensors[name][:-1].contiguous()}, path)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (ADAPTER, _without_a_tensor),
        (RESAMPLERS, _truncated),
        (DECODER_LORA, _without_a_tensor),
        (DECODER_OWN, _with_a_stranger),
        *((SHOT_ENCODER, damage) for damage in (_without_a_tensor, _with_a_stranger, _of_another_shape, Path.unlink)),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    checkpoint = Checkpoint.open(copy_of_tiny(tmp_path / "checkpoint"))
    damage(checkpoint.folder / name)
    load = checkpoint.game_model if "game" in name else checkpoint.shot_decoder
    load = checkpoint.shot_encoder if name == SHOT_ENCODER else load
    with pytest.raises(UserError, match=name):
        load()


def test_a_missing_base_is_named_with_the_remedy(tmp_path: Path) -> None:
    config = tiny_config()
    bases = {**config.bases, "language_model": Base(id=str(tmp_path / "nothing-here"))}
    with pytest.raises(UserError, match="nothing-here cannot be loaded"):
        new_checkpoint(tmp_path / "new", config.replaced(bases=bases))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_checkpoint_and_a_broken_configuration_have_different_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a checkpoint"):
        Checkpoint.open(tmp_path)
    values = json.loads((tiny_checkpoint() / CONFIG).read_text())
    values["shot_decoder"]["frames"] = 16
    values["colour"] = "red"
    (tmp_path / CONFIG).write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"(?s)shot_decoder: .*8n \+ 1.*colour"):
        Checkpoint.open(tmp_path)


def test_a_transformer_of_another_width_is_refused_when_written_and_when_loaded(tmp_path: Path) -> None:
    tiny, message = tiny_config(), r"transformer of width 128, but shot_encoder\.width is 64: name a transformer"
    base = Base(id=str(tiny_checkpoint() / inside_id("transformer")))
    sizes = tiny.shot_encoder.model_copy(update={"width": 64})
    config = tiny.replaced(shot_encoder=sizes, bases={**tiny.bases, "transformer": base})
    with pytest.raises(UserError, match=message):
        new_checkpoint(tmp_path / "new", config)
    with pytest.raises(UserError, match=message):
        Checkpoint(tiny_checkpoint(), config).shot_decoder()


def test_failed_writing_leaves_no_files_and_never_overwrites(tmp_path: Path) -> None:
    def interrupted() -> None:
        with writing(tmp_path / "checkpoint") as part:
            (part / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(UserError, match="exists already"), writing(tmp_path / "taken"):
        pass
    assert (tmp_path / "taken" / "file").read_text() == "mine"


def test_the_current_folder_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for named in (Path(), tmp_path / "here", Path("../here")):
        with pytest.raises(UserError, match=r"cannot be replaced: name a new folder .*NAME"), writing(named):
            raise AssertionError("the work began")
    with writing(Path("new")) as part:
        (part / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with writing(tmp_path / "link") as part:
        (part / "file").touch()
    assert [(path / "file").exists() for path in (Path("new"), tmp_path / "empty")] == [True, True]


def test_a_full_disk_is_named_and_leaves_no_files(tmp_path: Path) -> None:
    checkpoint, limits = Checkpoint.open(tiny_checkpoint()), resource.getrlimit(resource.RLIMIT_FSIZE)
    state = checkpoint.shot_encoder().state_dict()

    def written() -> None:
        with writing(tmp_path / "result") as part:
            save_shot_encoder(part, state)

    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"result cannot be written .*File too large.*; free space"):
            written()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []
    written()


def _prompt(checkpoint: Checkpoint) -> TokenPrompt:
    shape = checkpoint.config.shot_encoder
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randn(shape.shot_tokens, shape.width, generator=generator)
    past = [PastTurn("Character: Ann; Motion: slowly walk.", tokens, State(2, 0, 1, -1))]
    return write_prompt(checkpoint.tokenizer(), past, "Ann runs home", shape.shot_tokens, checkpoint.config.conventions)


@pytest.mark.parametrize("name", [CONFIG, SHOT_ENCODER, "bases/language_model/model.safetensors"])
def test_a_device_or_a_pipe_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    path = copy_of_tiny(tmp_path / "checkpoint") / name
    for make in (lambda: path.symlink_to("/dev/zero"), lambda: os.mkfifo(path)):
        path.unlink()
        make()
        with pytest.raises(UserError, match=f"{name}: a device or a pipe, not a file"):
            Checkpoint.open(tmp_path / "checkpoint")
    if name == CONFIG:
        with pytest.raises(UserError, match="not a file"):
            ModelConfig.read(tmp_path / "checkpoint")


@pytest.mark.parametrize("key", ["shot_decoder.lora_rank", "game_model.lora_rank", "shot_encoder.text_width"])
def test_a_size_that_no_network_has_is_named(tmp_path: Path, key: str) -> None:
    path = copy_of_tiny(tmp_path / "checkpoint") / CONFIG
    values = json.loads(path.read_text())
    section, name = key.split(".")
    values[section][name] = 10**9
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=rf"{key}: Input should be less than or equal to"):
        Checkpoint.open(path.parent)
