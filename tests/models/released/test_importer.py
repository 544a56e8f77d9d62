"""Import of the published weights: equal outputs, and the resulting checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from diffusers import CogVideoXTransformer3DModel
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional
from transformers import MistralConfig, MistralForCausalLM

from models.checkpoint import (
    ADAPTER,
    DECODER_LORA,
    DECODER_OWN,
    RESAMPLERS,
    SHOT_ENCODER,
    Checkpoint,
    precision_of,
)
from models.checkpoint_writer import save_game_model, save_shot_decoder
from models.config import CONFIG, PUBLISHED_VALUES, RELEASED_CONVENTIONS
from models.released.importer import import_weights
from models.released.names import (
    TRANSFORMER,
)
from models.shot_decoder import denoise
from tests.support.networks.published_weights import (
    DIT,
    LLM,
    TINY,
    decoder_shapes,
    decoder_state,
    language_shapes,
    random_state,
    shot_tokens,
    sibling_shapes,
    velocity,
    write_release,
)

pytestmark = pytest.mark.slow  # whole checkpoints, written and read back

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def language() -> State:
    return random_state(language_shapes(TINY), seed=2)


@pytest.fixture(scope="module")
def decoder() -> State:
    state = decoder_state(TINY, seed=1)
    for leaf in ("weight", "bias"):  # small enough for the epsilon of the next norm to matter
        state[f"{DIT}transformer.final_layernorm.{leaf}"] *= 1e-3
    return state


@pytest.fixture(scope="module")
def download(tmp_path_factory: pytest.TempPathFactory, language: State, decoder: State) -> Path:
    return write_release(tmp_path_factory.mktemp("hub"), language, decoder)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, download: Path, language: State) -> Checkpoint:
    folder = tmp_path_factory.mktemp("imported") / "checkpoint"
    import_weights(download, folder)
    mistral(language).save_pretrained(str(folder / "bases/language_model"))
    return Checkpoint.open(folder)


def test_shot_encoder_computes_what_the_published_one_does(imported: Checkpoint, decoder: State) -> None:
    text, image = noise(2, 16, 64), noise(2, 64, 64)
    torch.testing.assert_close(imported.shot_encoder()(text, image), shot_tokens(decoder, text, image))
    zeros = shot_tokens(decoder, torch.zeros(1, 16, 64), torch.zeros(1, 64, 64))
    torch.testing.assert_close(imported.shot_encoder().unconditional(1), zeros)


@torch.no_grad()
def test_shot_decoder_computes_what_the_published_one_does(imported: Checkpoint, decoder: State) -> None:
    latents, tokens, steps, scopes = noise(2, 5, 16, 8, 12), noise(2, 80, 128), torch.tensor([999, 400]), [0.0, 17.3]
    network = imported.shot_decoder()
    ours = denoise(network, latents, tokens, steps, torch.tensor(scopes))
    theirs = velocity(TINY, decoder, latents, tokens, steps, torch.tensor(scopes))
    assert (ours - theirs).abs().max() < 1e-4
    assert theirs.abs().mean() > 0.1
    assert network.norm_out.norm.eps == 1e-6
    assert network.transformer_blocks[0].attn1.to_q.scaling == {"default": 1 / TINY.rank}


def test_an_import_knows_nothing_of_shots_that_continue(imported: Checkpoint) -> None:
    assert "continues" not in (imported.folder / CONFIG).read_text()
    assert imported.config.shot_decoder.continues == "no"
    assert not imported.shot_decoder().continues


def test_plain_diffusers_reads_transformer_adapters_and_their_scale(imported: Checkpoint) -> None:
    stock = CogVideoXTransformer3DModel.from_pretrained(imported.folder / TRANSFORMER)
    lora = imported.folder / DECODER_LORA
    stock.load_lora_adapter(str(lora.parent), weight_name=lora.name, prefix=None)
    ours = imported.shot_decoder()
    for name in ("to_q", "to_k", "to_v"):
        theirs, own = (getattr(network.transformer_blocks[1].attn1, name) for network in (stock, ours))
        states = noise(3, 128)
        torch.testing.assert_close(theirs(states), own(states))
        assert list(theirs.scaling.values()) == [1 / TINY.rank]


@torch.no_grad()
def test_game_model_computes_what_the_published_one_does(imported: Checkpoint, language: State) -> None:
    """Against stock peft filled with the published names, and the resamplers restated."""
    ours = imported.game_model()
    ids = torch.randint(0, 32284, (2, 11), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(ours.language_model(ids).logits, reference(language)(ids).logits, rtol=0, atol=1e-4)
    for side, width in (("input", TINY.width), ("output", TINY.language)):
        x, name = noise(4, width), f"{side}_resampler.proj"
        hidden = functional.gelu(x @ language[f"{name}.0.weight"].T + language[f"{name}.0.bias"])
        expected = hidden @ language[f"{name}.2.weight"].T + language[f"{name}.2.bias"]
        torch.testing.assert_close(getattr(ours, f"{side}_resampler")(x), expected)


def test_the_older_spelling_gives_the_same_checkpoint(
    tmp_path: Path, imported: Checkpoint, language: State, decoder: State
) -> None:
    import_weights(write_release(tmp_path / "hub", plain(language), decoder), tmp_path / "checkpoint")
    for name in (CONFIG, ADAPTER, RESAMPLERS, SHOT_ENCODER, DECODER_LORA, DECODER_OWN):
        assert (tmp_path / "checkpoint" / name).read_bytes() == (imported.folder / name).read_bytes(), name


def test_adapter_file_equals_the_one_written_by_peft(tmp_path: Path, imported: Checkpoint, language: State) -> None:
    reference(language).save_pretrained(str(tmp_path), save_embedding_layers=True)
    theirs, ours = load_file(tmp_path / "adapter_model.safetensors"), load_file(imported.folder / ADAPTER)
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


@torch.no_grad()
def test_decoder_without_adapters(tmp_path: Path, language: State) -> None:
    """Merged, the projections have plain names; the adapters added to them change nothing yet."""
    state = decoder_state(TINY, seed=5, adapters=False)
    report = import_weights(write_release(tmp_path / "hub", language, state), tmp_path / "checkpoint")
    latents, tokens, step, scope = noise(1, 5, 16, 8, 12), noise(1, 80, 128), torch.tensor([500]), torch.tensor([3.0])
    network = Checkpoint.open(tmp_path / "checkpoint").shot_decoder()
    ours = denoise(network, latents, tokens, step, scope)
    assert (ours - velocity(TINY, state, latents, tokens, step, scope)).abs().max() < 1e-4
    assert report.config.shot_decoder.lora_alpha == report.config.shot_decoder.lora_rank
    assert network.transformer_blocks[0].attn1.to_q.lora_A["default"].weight.abs().min() > 0


def test_saving_what_was_loaded_changes_no_byte_of_a_tensor(tmp_path: Path, imported: Checkpoint) -> None:
    """Training continues from an imported checkpoint as from one of ours."""
    save_game_model(tmp_path, imported.game_model())
    save_shot_decoder(tmp_path, imported.shot_decoder())
    for file in (ADAPTER, RESAMPLERS, DECODER_LORA, DECODER_OWN):
        before, after = load_file(imported.folder / file), load_file(tmp_path / file)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before), file
    ours, theirs = (adapter_fields(folder / DECODER_LORA) for folder in (imported.folder, tmp_path))
    assert ours == theirs


def test_configuration_is_the_released_one(imported: Checkpoint) -> None:
    config = imported.config
    assert config.conventions == RELEASED_CONVENTIONS
    assert config.level_values == PUBLISHED_VALUES["decoder script"]
    assert (config.game_model.window_turns, config.game_model.lora_rank, config.game_model.lora_alpha) == (1, 4, 4)
    assert (config.shot_decoder.lora_rank, config.shot_decoder.lora_alpha) == (8, 1)
    assert config.shot_decoder.norm_out_eps == 1e-6
    written = json.loads((imported.folder / CONFIG).read_text())
    assert (written["sampling"]["steps"], written["sampling"]["guidance"]) == (50, 6.0)
    assert config.characters == ()
    assert imported.tokenizer().convert_tokens_to_ids("<TURN>") == 32282
    assert precision_of("transformer", "cpu") == torch.float32


def test_report_levels_and_progress(tmp_path: Path, download: Path) -> None:
    calls: list[tuple[int, int]] = []
    report = import_weights(
        download, tmp_path / "new", levels="app", progress=lambda done, total: calls.append((done, total))
    )
    assert report.config.level_values == PUBLISHED_VALUES["app"]
    assert report.taken + sum(report.ignored.values()) == len(
        {**language_shapes(TINY), **decoder_shapes(TINY), **sibling_shapes()}
    )
    assert "frozen T5" in str(report)
    assert [done for done, _ in calls] == list(range(1, calls[-1][1] + 1))


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def plain(language: State) -> State:
    """Spelling of peft 0.4."""
    return {name.replace(".base_layer", ""): tensor for name, tensor in language.items()}


def mistral_shape(vocabulary: int) -> MistralConfig:
    return MistralConfig(
        vocab_size=vocabulary,
        hidden_size=TINY.language,
        intermediate_size=TINY.feed_forward,
        num_hidden_layers=TINY.language_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
    )


def mistral(language: State) -> MistralForCausalLM:
    """Base of the published weights: 32,000 tokens, norms before training."""
    base = MistralForCausalLM(mistral_shape(32000))
    frozen = {
        name.removeprefix(LLM).replace(".base_layer", "").replace(".original_module", ""): tensor
        for name, tensor in language.items()
        if name.startswith(LLM) and (".base_layer" in name or ".original_module" in name)
    }
    report = base.load_state_dict(frozen, strict=False)
    assert set(report.missing_keys) == {"model.embed_tokens.weight", "lm_head.weight"}
    assert report.unexpected_keys == []
    return base


def reference(language: State) -> PeftModel:
    """Stock peft around stock Mistral, every published tensor in its place."""
    adapters = LoraConfig(
        r=TINY.language_rank,
        lora_alpha=TINY.language_rank,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        modules_to_save=["input_layernorm", "post_attention_layernorm", "norm"],
    )
    network = get_peft_model(MistralForCausalLM(mistral_shape(TINY.vocabulary)), adapters)
    assert isinstance(network, PeftModel)
    state = {name.removeprefix("llm."): tensor for name, tensor in language.items() if name.startswith("llm.")}
    network.load_state_dict(state)
    return network.eval()


def adapter_fields(path: Path) -> dict[str, object]:
    with safe_open(path, framework="pt") as file:
        fields: dict[str, object] = json.loads(file.metadata()["lora_adapter_metadata"])
    fields["target_modules"] = sorted(fields["target_modules"])  # type: ignore[call-overload]
    return fields
