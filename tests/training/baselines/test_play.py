"""Play of the baselines: three instructions each, after saving and loading, and their adapters in plain diffusers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import CogVideoXPipeline, FluxPipeline
from safetensors.torch import load_file, save_file

from models.diffusion import make_scheduler
from models.game import Agent
from models.tokens import State
from models.turns import Values, turn_seed
from pipeline.core.errors import UserError
from tests.support.networks.tiny_baselines import FRAMES, HEIGHT, WIDTH, brief_baseline
from tests.support.networks.tiny_models import shake
from training.baselines.agents import GC, GFC, GSC, load_baseline
from training.baselines.config import CONFIG, BaselineConfig, BaselineKind, full
from training.baselines.folder import BaselineFolder
from training.baselines.pipelines import ADALN, LORA, keep_positions, save_adapters
from training.baselines.router import NEUTRAL, SceneDescription, StoryTurn

STORY = ["Qiqi runs over the waves", "Qiqi meets Ponyo", "Qiqi falls asleep"]
KINDS: tuple[BaselineKind, ...] = ("gc", "gfc", "gsc")
FIRST_FAST = ["gc", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gfc", "gsc"))]


def test_in_half_precision_no_network_keeps_a_wider_adaln() -> None:
    transformer = BaselineFolder.open(brief_baseline("gc")).video("cuda").transformer
    parts = {name: parameter.dtype for name, parameter in transformer.named_parameters() if ".lora_" not in name}
    assert set(parts.values()) == {torch.float16}


class Script:
    """Router with fixed answers that records the length of the story in each call."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def route(self, story: Sequence[StoryTurn], instruction: str) -> SceneDescription:
        self.lengths.append(len(story))
        return SceneDescription(f"a drawing: {instruction}", State(level=5, social=1, entertainment=0, stamina=1))


@pytest.mark.parametrize("kind", FIRST_FAST)
def test_a_story_is_played(kind: BaselineKind) -> None:
    agent: Agent = load_baseline(brief_baseline(kind), seed=3)
    turns = list(agent.play(STORY))
    assert [turn.number for turn in turns] == [1, 2, 3]
    assert [turn.instruction for turn in turns] == STORY
    for turn in turns:
        assert turn.frames_THWC.shape == (FRAMES, HEIGHT, WIDTH, 3)
        assert turn.frames_THWC.dtype == np.uint8
        assert len(turn.shot_tokens_LD) == 0
        assert turn.state == NEUTRAL
        assert turn.scope_px == 10.0
    assert turns[2].values == Values(stamina=35, social=50, entertainment=50)
    assert set(turns[0].seconds) == {"router", "video"} | ({"picture"} if kind != "gc" else set())
    assert not np.array_equal(turns[0].frames_THWC, turns[1].frames_THWC)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind if kind == "gc" else pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS]
)
def test_the_same_seed_plays_the_same_game(kind: BaselineKind) -> None:
    def played(seed: int, instructions: Sequence[str | list[str]]) -> list[np.ndarray]:
        game = load_baseline(brief_baseline(kind), seed=seed)
        return [turn.frames_THWC for together in instructions for turn in game.play(together)]

    turns = played(3, [STORY])
    again = played(3, [STORY] if kind == "gsc" else STORY)  # turn by turn where possible
    assert all(np.array_equal(one, other) for one, other in zip(turns, again, strict=True))
    assert not np.array_equal(turns[0], played(4, [STORY])[0])


@pytest.mark.slow
def test_the_router_determines_the_scene_and_the_values() -> None:
    script = Script()
    routed = GC.load(brief_baseline("gc"), router=script, seed=3)
    turns = list(routed.play(STORY[:2]))
    assert script.lengths == [0, 1]
    assert turns[1].values == Values(stamina=60, social=60, entertainment=50)
    assert turns[1].scope_px == 40.0
    assert set(turns[1].seconds) == {"router", "video"}
    plain = next(GC.load(brief_baseline("gc"), seed=3).play("a drawing: " + STORY[0]))
    assert np.array_equal(plain.frames_THWC, turns[0].frames_THWC)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gfc", "gsc"])
def test_a_picture_shows_the_scene_and_its_video_follows_the_instruction(
    kind: BaselineKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = load_baseline(brief_baseline(kind), router=Script(), seed=3)
    prompts: dict[str, list[str]] = {"picture": [], "video": []}
    for part, pipeline in agent.pipelines.items():
        encode = pipeline.encode_prompt

        def recorded(*given: Any, _part: str = part, _encode: Any = encode, **options: Any) -> Any:
            prompts[_part].append(options.get("prompt") or given[0])
            return _encode(*given, **options)

        monkeypatch.setattr(pipeline, "encode_prompt", recorded)
    next(agent.play(STORY[:1]))
    assert np.ravel(prompts["picture"]).tolist() == [f"a drawing: {STORY[0]}"]
    assert prompts["video"] == [STORY[0]]


@pytest.mark.slow
def test_a_whole_story_is_routed_before_it_is_drawn() -> None:
    script = Script()
    next(GSC.load(brief_baseline("gsc"), router=script).play(STORY))
    assert script.lengths == [0, 1, 2]


@pytest.mark.slow
def test_a_failed_turn_leaves_the_game_as_it_was() -> None:
    game = GC.load(brief_baseline("gc"))
    turns = game.play([STORY[0], "  "])
    next(turns)
    with pytest.raises(UserError, match="the instruction is empty"):
        next(turns)
    assert len(game.story) == 1
    assert game.values == Values(stamina=45)


def shaken(kind: BaselineKind, folder: Path) -> BaselineFolder:
    """Baseline whose adapters have an effect."""
    baseline = BaselineFolder.open(shutil.copytree(brief_baseline(kind), folder))
    transformer = baseline.transformer()
    adapters = torch.nn.ParameterList([each for each in transformer.parameters() if each.requires_grad])
    shake(adapters, by=0.3)
    save_adapters(folder, transformer, adaln=kind == "gc")
    return baseline


def close(frames_THWC: np.ndarray, other_THWC: np.ndarray) -> bool:
    """Return True if equal up to the rounding of fused adapters."""
    return int(np.abs(frames_THWC.astype(int) - other_THWC).max()) <= 2


@pytest.mark.slow
def test_adapters_change_the_shot_and_plain_diffusers_draws_the_same(tmp_path: Path) -> None:
    baseline = shaken("gc", tmp_path / "gc")
    ours = next(GC.load(baseline.folder, seed=3).play(STORY)).frames_THWC
    untrained = next(GC.load(brief_baseline("gc"), seed=3).play(STORY)).frames_THWC
    assert not close(ours, untrained)
    plain = CogVideoXPipeline.from_pretrained(str(baseline.folder / "bases/video"))
    plain.load_lora_weights(str(baseline.folder))
    plain.transformer.load_state_dict(load_file(baseline.folder / ADALN), strict=False)
    plain.scheduler = make_scheduler()
    frames_THWC = plain(
        STORY[0],
        height=HEIGHT,
        width=WIDTH,
        num_frames=FRAMES,
        num_inference_steps=2,
        guidance_scale=6.0,
        max_sequence_length=32,
        generator=torch.Generator().manual_seed(turn_seed(3, 1)),
        output_type="np",
    ).frames[0]
    assert close(ours, (frames_THWC * 255).round().astype(np.uint8))


@pytest.mark.slow
def test_adapters_change_the_first_frame_and_plain_diffusers_loads_them(tmp_path: Path) -> None:
    baseline = shaken("gfc", tmp_path / "gfc")
    asked = {"prompt": STORY[0], "height": HEIGHT, "width": WIDTH, "num_inference_steps": 2, "max_sequence_length": 16}

    def drawn(pipeline: FluxPipeline) -> np.ndarray:
        return np.asarray(pipeline(**asked, generator=torch.Generator().manual_seed(0)).images[0])

    ours = drawn(baseline.picture())
    plain = FluxPipeline.from_pretrained(str(baseline.folder / "bases/picture"))
    assert not close(drawn(plain), ours)
    plain.load_lora_weights(str(baseline.folder))
    assert close(drawn(plain), ours)


@pytest.mark.slow
def test_a_shorter_shot_keeps_the_learned_positions_of_its_frames(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(brief_baseline("gfc"), tmp_path / "gfc"))
    weights = next((folder / "bases/video/transformer").glob("*.safetensors"))
    tensors = load_file(weights)
    learned = torch.randn_like(tensors["patch_embed.pos_embedding"])
    save_file({**tensors, "patch_embed.pos_embedding": learned}, weights, metadata={"format": "pt"})
    transformer = BaselineFolder.open(folder).video().transformer
    embedding, text, patches = transformer.patch_embed, 32, (HEIGHT // 16) * (WIDTH // 16)
    assert learned.shape[1] == text + 13 * patches  # 49 frames, 13 in latent space; the shots have 9 and 3
    states_BND, latents_BTCHW = torch.randn(1, text, 32), torch.randn(1, 3, 32, HEIGHT // 8, WIDTH // 8)
    tokens_BLD = embedding(states_BND, latents_BTCHW)
    pictures_LD = embedding.proj(latents_BTCHW[0]).flatten(2).transpose(1, 2).flatten(0, 1)
    without_LD = torch.cat([embedding.text_proj(states_BND)[0], pictures_LD])
    torch.testing.assert_close(tokens_BLD[0], without_LD + learned[0, : text + 3 * patches].float())
    with pytest.raises(UserError, match="positions for 9 frames, not for 17"):
        keep_positions(transformer, 17)


@pytest.mark.slow
def test_a_pipeline_that_lacks_a_tensor_or_is_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(brief_baseline("gfc"), tmp_path / "gfc"))
    weights = next((folder / "bases/picture/transformer").glob("*.safetensors"))
    tensors = load_file(weights)
    tensors.pop("proj_out.weight")
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"proj_out\.weight is missing.*baseline\.json"):
        GFC.load(folder)
    shutil.rmtree(folder / "bases/picture")
    shutil.copytree(folder / "bases/video", folder / "bases/picture")
    with pytest.raises(UserError, match="it is a CogVideoXImageToVideoPipeline, where a FluxPipeline is needed"):
        GFC.load(folder)


@pytest.mark.slow
def test_adapters_of_another_rank_or_not_whole_are_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(brief_baseline("gc"), tmp_path / "gc"))
    tensors = load_file(folder / LORA)
    save_file(dict(list(tensors.items())[1:]), folder / LORA)
    with pytest.raises(UserError, match=r"does not fit its baseline\.json: transformer\..* is missing"):
        GC.load(folder)
    save_file(tensors, folder / LORA)
    config = BaselineFolder.open(folder).config
    wider = config.model_copy(update={"video": config.video.model_copy(update={"lora_rank": 4})})
    (folder / CONFIG).write_text(wider.model_dump_json())
    with pytest.raises(UserError, match="has another shape"):
        GC.load(folder)


def test_a_folder_that_is_not_a_baseline_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a baseline: baseline\.json cannot be read"):
        GC.load(tmp_path)
    with pytest.raises(UserError, match="is a baseline of kind gc, not gsc"):
        GSC.load(brief_baseline("gc"))
    with pytest.raises(UserError, match="no device 'nonsense' here"):
        GC.load(brief_baseline("gc"), device="nonsense")


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_baselines_are_complete_and_read_back(kind: BaselineKind) -> None:
    config = full(kind)
    assert BaselineConfig.model_validate_json(config.model_dump_json()) == config
    assert config.trained_part == {"gc": "video", "gfc": "picture", "gsc": None}[kind]
    with pytest.raises(ValueError, match=f"{kind} (needs|has no) `picture`"):
        BaselineConfig.model_validate(
            {**config.model_dump(), "picture": None if config.picture else full("gfc").picture}
        )
