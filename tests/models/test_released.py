"""Import of the published weights: every tensor accounted for, equal outputs, and clear refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
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
    save_game_model,
    save_shot_decoder,
)
from models.config import PUBLISHED_VALUES, RELEASED_CONVENTIONS, full_config
from models.game_model import GameModel, wrap_language_model
from models.released import import_weights
from models.released_files import find_files, open_tensors
from models.released_names import (
    DECODER_IGNORED,
    LANGUAGE_IGNORED,
    TRANSFORMER,
    account,
    decoder_plan,
    language_plan,
)
from models.released_sizes import DecoderSizes, LanguageSizes
from models.released_writer import Writer
from models.shot_decoder import ShotDecoder, add_lora, decoder_options, denoise, own_names
from models.shot_encoder import ShotEncoder
from models.weights import CheckpointError, adapter_tensors
from tests.published_weights import (
    ADALN,
    DIT,
    LLM,
    TINY,
    Sizes,
    decoder_shapes,
    decoder_state,
    language_shapes,
    positions,
    random_state,
    shot_tokens,
    sibling_shapes,
    velocity,
    write_release,
)

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def language() -> State:
    return random_state(language_shapes(TINY), seed=2)


@pytest.fixture(scope="module")
def decoder() -> State:
    state = decoder_state(TINY, seed=1)
    for leaf in ("weight", "bias"):  # small enough for the epsilon of the norm after it to be heard
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


# ---- full size, without data ------------------------------------------------------------------------------------


def test_every_published_tensor_is_accounted_for() -> None:
    shapes = {**decoder_shapes(Sizes()), **sibling_shapes()}
    plan = decoder_plan(DecoderSizes())
    faults, aside = account(plan, shapes, DECODER_IGNORED)
    assert faults == []
    assert len(decoder_shapes(Sizes())) == 813
    assert aside["fixed position table"] == 1
    assert aside["norm that is never applied"] == 2
    assert len({entry.source for entry in plan}) == 813 - 3
    for spelling in ("base_layer", "plain"):
        shapes = language_shapes(Sizes(), spelling)
        faults, aside = account(language_plan(LanguageSizes()), shapes, LANGUAGE_IGNORED)
        assert faults == []
        assert aside == {"frozen Mistral, loaded from its hub id": 32 * 7, "norms before training": 65}


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


def test_full_size_is_stored_in_the_precision_of_the_bases(tmp_path: Path, language: State, decoder: State) -> None:
    plan = [*language_plan(language_sizes()), *decoder_plan(decoder_sizes())]
    Writer(tmp_path, full_config(), {**language, **decoder}, shard="300KB").write(plan)
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


# ---- equal outputs ----------------------------------------------------------------------------------------------


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


def test_released_adapters_count_a_sixty_fourth(tmp_path: Path) -> None:
    config = full_config()
    shot_decoder = config.shot_decoder.model_copy(update={"lora_alpha": 1})
    with torch.device("meta"):
        network = ShotDecoder(num_layers=1)
        add_lora(network, shot_decoder)
    assert network.transformer_blocks[0].attn1.to_out[0].scaling == {"default": 1 / 64}


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
    assert Checkpoint.open(tmp_path / "checkpoint").identity() == imported.identity()


def test_adapter_file_is_the_one_peft_writes(tmp_path: Path, imported: Checkpoint, language: State) -> None:
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
    """Training goes on from an imported checkpoint as from one of ours."""
    save_game_model(tmp_path, imported.game_model())
    save_shot_decoder(tmp_path, imported.shot_decoder())
    for file in (ADAPTER, RESAMPLERS, DECODER_LORA, DECODER_OWN):
        before, after = load_file(imported.folder / file), load_file(tmp_path / file)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before), file
    ours, theirs = (adapter_fields(folder / DECODER_LORA) for folder in (imported.folder, tmp_path))
    assert ours == theirs


# ---- the checkpoint's configuration and the report --------------------------------------------------------------


def test_configuration_is_the_released_one(imported: Checkpoint) -> None:
    config = imported.config
    assert config.conventions == RELEASED_CONVENTIONS
    assert config.level_values == PUBLISHED_VALUES["decoder script"]
    assert (config.game_model.window_turns, config.game_model.lora_rank, config.game_model.lora_alpha) == (1, 4, 4)
    assert (config.shot_decoder.lora_rank, config.shot_decoder.lora_alpha) == (8, 1)
    assert config.shot_decoder.norm_out_eps == 1e-6
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


# ---- refusals ---------------------------------------------------------------------------------------------------


def test_all_faults_are_told_together_and_nothing_is_written(tmp_path: Path, language: State, decoder: State) -> None:
    wrong_language, wrong_decoder = dict(language), dict(decoder)
    del wrong_language[f"{LLM}model.norm.modules_to_save.default.weight"]
    wrong_language["face_resampler.proj.0.weight"] = torch.zeros(2, 2)
    wrong_decoder[f"{DIT}transformer.layers.1.attention.dense.matrix_B.0"] = torch.zeros(128, 7)
    del wrong_decoder[f"{ADALN}adaLN_modulations.2.1.bias"]
    source = write_release(tmp_path / "hub", wrong_language, wrong_decoder)
    with pytest.raises(CheckpointError) as caught:
        import_weights(source, tmp_path / "new")
    message = str(caught.value)
    assert "4 faults" in message
    assert f"pytorch_model.bin: missing: {LLM}model.norm.modules_to_save.default.weight [32]" in message
    assert "unknown: face_resampler.proj.0.weight [2, 2]" in message
    assert "layers.1.attention.dense.matrix_B.0 [128, 7], expected [128, 8]" in message
    assert f"missing: {ADALN}adaLN_modulations.2.1.bias [1536]" in message
    assert [path.name for path in tmp_path.iterdir()] == ["hub"]


def test_a_full_file_that_lacks_a_layer_is_refused() -> None:
    shapes = {name: shape for name, shape in decoder_shapes(Sizes()).items() if ".29." not in name}
    faults, _ = account(decoder_plan(DecoderSizes()), shapes, DECODER_IGNORED)
    assert len(faults) == 26


def cut_short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def left_by_git(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\nsize 29000000000\n")


def without_tensors(path: Path) -> None:
    torch.save({"module": {"weights": "elsewhere"}}, path)


def other_positions(path: Path) -> None:
    state = torch.load(path, weights_only=False)  # noqa: TID251  a file this test has written
    state["module"][f"{DIT}mixins.pos_embed.pos_embedding"] = positions(replace(TINY, grid=(5, 6, 4)))
    torch.save(state, path)


def not_finite(path: Path) -> None:
    state = torch.load(path, weights_only=False)  # noqa: TID251  a file this test has written
    state["module"][f"{DIT}flow_embed.2.bias"][3] = float("inf")
    torch.save(state, path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_short, "not a whole PyTorch file"),
        (left_by_git, "pointer left by git"),
        (without_tensors, "no plain table of tensors"),
        (other_positions, "not the table of CogVideoX 2B"),
        (not_finite, r"flow_embed\.2\.bias has values that are not finite"),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: Path, language: State, decoder: State, damage: Callable[[Path], None], message: str
) -> None:
    source = write_release(tmp_path / "hub", language, decoder)
    damage(source / "VDM_Decoder-Qiqi/10000/mp_rank_00_model_states.pt")
    with pytest.raises(CheckpointError, match=message):
        import_weights(source, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["hub"]


class Touch:
    """Pickled, this makes a file when it is read by a careless reader."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    torch.save({"module": {}, "callback": Touch(tmp_path / "was run")}, tmp_path / "weights.pt")
    with pytest.raises(CheckpointError, match="would run its code: refused"):
        open_tensors(tmp_path / "weights.pt")
    assert not (tmp_path / "was run").exists()


def test_stopping_leaves_nothing(tmp_path: Path, download: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_weights(download, tmp_path / "new", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_taken_target_is_left_alone(tmp_path: Path, download: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(CheckpointError, match="exists already"):
        import_weights(download, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_which_files_belong_together(tmp_path: Path) -> None:
    tiny: State = {"weight": torch.zeros(1)}
    with pytest.raises(CheckpointError, match="holds no published weights"):
        find_files(tmp_path)
    write_release(tmp_path, tiny, tiny, "Qiqi")
    language, decoder = find_files(tmp_path)
    assert language == tmp_path / "MLLM-Qiqi/pytorch_model.bin"
    assert decoder == tmp_path / "VDM_Decoder-Qiqi/10000/mp_rank_00_model_states.pt"
    write_release(tmp_path, tiny, tiny, "Sosuke")
    with pytest.raises(CheckpointError, match="which character, one of Qiqi, Sosuke"):
        find_files(tmp_path)
    assert find_files(tmp_path, "Sosuke")[0] == tmp_path / "MLLM-Sosuke/pytorch_model.bin"
    with pytest.raises(CheckpointError, match="no weights of 'Ponyo', only of: Qiqi, Sosuke"):
        find_files(tmp_path, "Ponyo")
    (tmp_path / "MLLM-Sosuke/pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match=r"MLLM-Sosuke/pytorch_model.bin is missing"):
        find_files(tmp_path, "Sosuke")
    decoder.unlink()
    with pytest.raises(CheckpointError, match=r"VDM_Decoder-Qiqi/10000/mp_rank_00_model_states.pt is missing"):
        find_files(tmp_path, "Qiqi")


def test_files_without_their_folders(tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "mp_rank_00_model_states.pt"):
        (tmp_path / name).touch()
    assert find_files(tmp_path) == (tmp_path / "pytorch_model.bin", tmp_path / "mp_rank_00_model_states.pt")


# ---- makers -----------------------------------------------------------------------------------------------------


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def language_sizes() -> LanguageSizes:
    return LanguageSizes.of(language_shapes(TINY), TINY.width)


def decoder_sizes() -> DecoderSizes:
    return DecoderSizes.of(decoder_shapes(TINY))


def plain(language: State) -> State:
    """The spelling of peft 0.4."""
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
    """The base that the published weights were trained on: 32,000 tokens, norms before training."""
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
