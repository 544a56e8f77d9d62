"""Datasets that cannot be trained on: refused at launch, before a checkpoint is made or a clip encoded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.core.config import ShardSettings
from pipeline.core.errors import UserError
from pipeline.publish.shards import write_shards
from prompts.tags import instruction
from tests.support.datasets.made_dataset import MODEL, make_dataset
from tests.support.networks.small_run import small_dataset, small_recipe, small_run
from training.baselines.run import train_baseline
from training.config import WindowSettings
from training.data.checks import by_rules_alone, check_captions, check_instructions, check_windows
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn


@pytest.fixture(scope="module")
def turns() -> tuple[RecordedTurn, ...]:
    """Nine turns; four have a past turn, and one has two."""
    return Catalog.read(open_shards(small_dataset(), "train")).turns


def test_captions_of_rules_only_are_refused_by_every_part(tmp_path: Path) -> None:
    source = tmp_path / "data"
    write_shards(make_dataset(source, scenes=4, captioner="rules"), ShardSettings(val_share=0))
    run = small_run(tmp_path / "run", small_recipe(), source)
    for part in (run.features, run.shot, run.game, run.adapt, lambda: train_baseline("gc", run.run_folder, run.recipe)):
        with pytest.raises(UserError, match=r"captions by rules only.*`captions\.captioner`"):
            part()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["catalogs"]


def test_every_dataset_of_a_mixture_is_checked(tmp_path: Path) -> None:
    poor = make_dataset(tmp_path / "poor", films=1, scenes=4, captioner="rules", names=("poor.mkv",))
    write_shards(poor, ShardSettings(val_share=0))
    run = small_run(tmp_path / "run", small_recipe(), [str(small_dataset()), str(poor.root)])
    for part in (run.features, lambda: train_baseline("gc", run.run_folder, run.recipe)):
        with pytest.raises(UserError, match="poor has captions by rules only"):
            part()
    short = make_dataset(tmp_path / "short", films=1, scenes=4, clips=1, captioner=MODEL, names=("short.mkv",))
    write_shards(short, ShardSettings(val_share=0))
    recipe = small_recipe(game={"windows": {"across_scenes": False, "most_turns": 2}})
    with pytest.raises(UserError, match="short has too few neighbours for windows: 0 of 3 turns"):
        small_run(tmp_path / "run", recipe, [str(small_dataset()), str(short.root)]).features()


def test_captions_by_rules_are_learned_from_once_a_review_has_added_a_subject(turns: tuple[RecordedTurn, ...]) -> None:
    def with_caption(turn: RecordedTurn, **words: object) -> RecordedTurn:
        caption = turn.sample.caption.model_copy(update={"source": "rules", **words})
        return turn.model_copy(update={"sample": turn.sample.model_copy(update={"caption": caption})})

    poor = [with_caption(turn, S=None, actor=None, characters=None) for turn in turns]
    with pytest.raises(UserError, match=r"captions by rules only.*or label its clips with `animegamer review here`"):
        check_captions(poor, "here")
    with pytest.raises(UserError, match=r"^here, split val, has captions by rules only"):
        check_captions(poor, "here", "split val")
    labelled = [*poor[1:], with_caption(turns[0], actor="Hana", reviewed=("actor",))]
    check_captions(labelled, "here")
    assert by_rules_alone(labelled) == len(turns) - 1


def test_a_dataset_without_captions_is_refused(turns: tuple[RecordedTurn, ...]) -> None:
    silent = [turn.model_copy(update={"instruction": ""}) for turn in turns]
    with pytest.raises(UserError, match="here has no captions to learn from"):
        check_captions(silent, "here")
    check_captions([*silent[1:], turns[0]], "here")


def test_too_few_neighbours_are_refused_with_the_length_that_fits(
    turns: tuple[RecordedTurn, ...], tmp_path: Path
) -> None:
    check_windows(turns, WindowSettings(most_turns=3), "here")
    remedy = r"0 of 9 turns have 3 past turns in a row\. Set game\.windows\.most_turns = 3 .*most_gap \(now 1\)"
    with pytest.raises(UserError, match=remedy):
        check_windows(turns, WindowSettings(most_turns=5), "here")
    with pytest.raises(UserError, match=remedy):
        small_run(tmp_path / "run", small_recipe(game={"windows": {"most_turns": 4}})).features()


def test_a_length_that_few_turns_reach_is_refused(turns: tuple[RecordedTurn, ...]) -> None:
    def alone(at: int) -> RecordedTurn:
        sample = turns[0].sample.model_copy(update={"film_id": "another", "index": 2 * at, "scene": at})
        return turns[0].model_copy(update={"sample": sample})

    crowd = [*turns, *(alone(at) for at in range(11))]
    check_windows(crowd, WindowSettings(most_turns=3), "here")  # one of 20
    with pytest.raises(UserError, match="1 of 21 turns have 2 past turns"):
        check_windows([*crowd, alone(11)], WindowSettings(most_turns=3), "here")


def test_an_instruction_that_fits_into_no_prompt_is_named_with_its_clip(turns: tuple[RecordedTurn, ...]) -> None:
    def named(count: int, sentence: str | None = None) -> RecordedTurn:
        names = tuple(f"竈門炭治郎{number}" for number in range(count))
        caption = turns[1].sample.caption.model_copy(update={"characters": names, "actor": None, "sentence": sentence})
        line = instruction(names, caption.S, caption.MD, caption.EV, caption.MA)
        sample = turns[1].sample.model_copy(update={"caption": caption})
        return turns[1].model_copy(update={"sample": sample, "instruction": line})

    check_instructions([*turns, named(8)], "here")
    for too_long in (named(20), named(1, sentence=f"{'竈' * 100} runs.")):
        with pytest.raises(UserError, match=rf"here, clip {turns[1].clip_id}: .* at most 200 fit: shorten it, with "):
            check_instructions([*turns, too_long], "here")


def test_clips_of_other_frames_are_refused_before_a_checkpoint_is_made(tmp_path: Path) -> None:
    recipe = small_recipe(model={"shot_decoder": {"frames": 9}})
    with pytest.raises(UserError, match=r"has clips of 16 frames, but this model takes 8 or 9: set `clips\.frames`"):
        small_run(tmp_path / "run", recipe).features()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["catalogs"]


def test_another_schema_is_named(tmp_path: Path) -> None:
    source = shutil.copytree(small_dataset(), tmp_path / "data")
    index = source / "shards" / "index.json"
    index.write_text(json.dumps(json.loads(index.read_bytes()) | {"schema": 2}))
    with pytest.raises(UserError, match="is of another schema; this version reads schema 6: run `animegamer build`"):
        small_run(tmp_path / "run", small_recipe(), source).features()
