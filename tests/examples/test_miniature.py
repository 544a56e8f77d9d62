"""World in miniature: stories keep their rules, shards say what the stories say, also after a missed cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from examples.miniature.dataset import CONFIG, StoryFilm, agreement, build_datasets, films_of_the_world, write_cast
from examples.miniature.scripted import CaptionByScript, ScriptedFilm, build_scripted
from examples.miniature.story import STORY_SECONDS, StoryScene
from examples.miniature.truth import Truths
from examples.world.film import FPS, pictures_of
from examples.world.puppet_motions import COAT_OFF, COAT_ON, MOTIONS, PLANT, Cue
from examples.world.characters import CAST
from examples.world.scenery import PLACES
from examples.world.textures import Picture
from examples.world.truth import SOURCE, SceneTruth, Truth, truth_about
from pipeline.core.errors import UserError
from pipeline.core.records import Caption
from pipeline.core.store import Dataset
from prompts.tags import TAGS, WhatReply, format_what
from prompts.what_replies import parse_what
from training.data.shards import open_shards
from training.data.turns import RecordedTurn, read_texts

Pair = tuple[str, str]
SEEN, UNSEEN, MORE_UNSEEN, MORE = films_of_the_world().values()
SCENE = StoryScene(Cue("Mika", "wave", 2), "meadow", night=False, flagged=False, time_named=False, story=0)


def pairs_in(
    actor: str, characters: tuple[str, ...], motion: str, place: str
) -> tuple[set[Pair], set[Pair], set[Pair]]:
    """Pairs of character and motion, character and place, motion and place."""
    return {(actor, motion)}, {(name, place) for name in characters}, {(motion, place)}


def pairs_of(scene: StoryScene) -> tuple[set[Pair], set[Pair], set[Pair]]:
    return pairs_in(scene.cue.actor, scene.characters, scene.cue.motion, scene.place)


def pairs_of_turn(turn: RecordedTurn) -> tuple[set[Pair], set[Pair], set[Pair]]:
    caption = turn.sample.caption
    assert caption.actor
    assert caption.characters
    assert caption.MD
    assert caption.EV
    place = caption.EV.removeprefix("night ").removeprefix("daytime ")
    return pairs_in(caption.actor, caption.characters, caption.MD, place)


def scenes_of(films: tuple[StoryFilm, ...]) -> list[StoryScene]:
    return [scene for film in films for scene in film.scenes]


def small(scene: StoryScene) -> list[Picture]:
    """Every third frame of a scene at the size of the model."""
    pictures = list(pictures_of([scene.drawn("scene")]))[::3]
    return [cv2.resize(each[:, 25:295], (96, 64), interpolation=cv2.INTER_AREA) for each in pictures]


@pytest.mark.parametrize("films", [UNSEEN, MORE_UNSEEN], ids=["unseen", "more-unseen"])
def test_every_unseen_scene_has_one_pair_that_training_lacks(films: tuple[StoryFilm, ...]) -> None:
    seen = [set.union(*kind) for kind in zip(*map(pairs_of, scenes_of(SEEN + MORE)), strict=True)]
    found = [
        [sorted(pairs - known) for pairs, known in zip(pairs_of(scene), seen, strict=True)]
        for scene in scenes_of(films)
    ]
    assert {sum(map(len, lacking)) for lacking in found} == {1}
    assert all(sum(bool(lacking[kind]) for lacking in found) >= 20 for kind in range(3))
    assert {actor for actor, motion in seen[0] if motion == "fly on a broom"} == {"Mika"}
    assert {actor for actor, motion in seen[0] if motion == "swing a sword"} == {"Haru"}


def test_the_recogniser_learns_nearly_all_pairs_that_it_is_asked_about() -> None:
    for asked, learned in zip(
        *(zip(*map(pairs_of, scenes_of(films)), strict=True) for films in (UNSEEN, MORE_UNSEEN)), strict=True
    ):
        found, known = set.union(*asked), set.union(*learned)
        assert len(found & known) >= 0.95 * len(found)


def test_stories_show_everything_and_change_place_in_every_scene() -> None:
    scenes = scenes_of(SEEN)
    assert {scene.place for scene in scenes} == set(PLACES)
    assert {(scene.cue.motion, scene.cue.level) for scene in scenes} == {
        (name, level) for name, motion in MOTIONS.items() for level in motion.steps
    }
    assert {name for scene in scenes for name in scene.characters} == set(CAST)
    for film in SEEN:
        assert all(before.place != after.place for before, after in pairwise(film.scenes))
        assert sum(scene.clips for scene in film.scenes) == 7 * 28
        assert sum(scene.drawn("").length for scene in film.scenes) == 7 * STORY_SECONDS * FPS


def test_time_coats_and_flags_last_until_a_turn_changes_them() -> None:
    for before, after in pairwise(scenes_of(SEEN)):
        if before.story != after.story:
            assert after.time_named
            assert not after.cue.coats
            assert not after.flagged
            continue
        assert after.time_named == (before.night != after.night)
        changed = {COAT_ON: before.cue.coats | {before.cue.actor}, COAT_OFF: before.cue.coats - {before.cue.actor}}
        assert after.cue.coats == changed.get(before.cue.motion, before.cue.coats)
    for film in SEEN:
        planted = {(scene.story, scene.place) for scene in film.scenes if scene.cue.motion == PLANT}
        assert {(scene.story, scene.place) for scene in film.scenes if scene.flagged} <= planted
    assert sum(scene.flagged for scene in scenes_of(SEEN)) > 50


def test_a_caption_is_one_that_a_captioner_may_give() -> None:
    for scene in scenes_of(SEEN):
        caption = scene.caption("clip", scene.cue.level)
        reply = WhatReply(**{tag: getattr(caption, tag) for tag in TAGS})
        assert parse_what(format_what(reply)) == reply


@pytest.mark.slow
def test_characters_places_nights_and_coats_differ_at_the_size_of_the_model() -> None:
    base = StoryScene(Cue("Mika", "wave", 2), "meadow", False, False, False, 0)
    scenes = [
        *(replace(base, cue=replace(base.cue, actor=name)) for name in CAST),
        *(replace(base, place=place) for place in PLACES if place != "meadow"),
        replace(base, night=True),
        replace(base, flagged=True),
        replace(base, cue=replace(base.cue, coats=frozenset({"Mika"}))),
    ]
    firsts = [small(scene)[0].astype(int) for scene in scenes]
    for one, other in combinations(firsts, 2):
        assert np.count_nonzero(np.abs(one - other).max(axis=2) > 40) > 40


def test_the_same_script_gives_the_same_pictures_and_other_levels_go_faster() -> None:
    slow, fast = (StoryScene(Cue("Kuro", "dance", level), "shrine", False, False, False, 0) for level in (2, 4))
    assert all(np.array_equal(*both) for both in zip(small(slow), small(slow), strict=True))
    changes = [np.mean([np.abs(b.astype(int) - a).mean() for a, b in pairwise(small(scene))]) for scene in (slow, fast)]
    assert changes[1] > 1.5 * changes[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both datasets of a few scenes."""
    out = tmp_path_factory.mktemp("world")
    seen, unseen = (replace(films[0], scenes=films[0].scenes[:12]) for films in (SEEN, UNSEEN))
    build_datasets(out, {"dataset": [seen], "unseen": [replace(unseen, scenes=unseen.scenes[:4])]})
    return out


def turns_of(data: Path, *splits: str) -> list[RecordedTurn]:
    return [turn for split in splits for turn in read_texts(open_shards(data, split))]  # type: ignore[arg-type]


@pytest.mark.slow
def test_shards_say_what_the_script_says(world: Path) -> None:
    truths, turns = Truths.read(world), turns_of(world / "dataset", "train", "val")
    assert len(turns) == sum(scene.clips for scene in SEEN[0].scenes[:12])
    assert {turn.sample.split for turn in turns} == {"train", "val"}
    for turn in [*turns, *turns_of(world / "unseen", "val")]:
        facts, caption = truths.of(turn.sample), turn.sample.caption
        assert caption.source == SOURCE
        assert (caption.MD, caption.actor, caption.characters) == (facts.motion, facts.actor, facts.characters)
        assert facts.state == (caption.SC, caption.ET, caption.ST)
        assert (caption.EV or "").endswith(facts.place)
        assert turn.sample.frames == CONFIG.clips.frames
        assert facts.start_seconds < turn.sample.start_seconds < turn.sample.end_seconds < facts.end_seconds


@pytest.mark.slow
def test_no_held_out_pair_is_in_the_shards_of_the_dataset(world: Path) -> None:
    unseen = [set.union(*kind) for kind in zip(*map(pairs_of, scenes_of(UNSEEN)), strict=True)]
    allowed = [set.union(*kind) for kind in zip(*map(pairs_of, scenes_of(SEEN + MORE)), strict=True)]
    held_out = [pairs - known for pairs, known in zip(unseen, allowed, strict=True)]
    for turn in turns_of(world / "dataset", "train", "val"):
        assert not any(pairs & lacking for pairs, lacking in zip(pairs_of_turn(turn), held_out, strict=True))
    for turn in turns_of(world / "unseen", "val"):
        assert any(pairs & lacking for pairs, lacking in zip(pairs_of_turn(turn), held_out, strict=True))


@pytest.mark.slow
def test_the_optical_flow_measures_the_levels_of_the_script(world: Path) -> None:
    kept, right = agreement(Dataset(world / "dataset"), [replace(SEEN[0], scenes=SEEN[0].scenes[:12])])
    assert right >= 0.9 * kept


@pytest.mark.slow
def test_data_that_are_made_stay_as_they_are(world: Path) -> None:
    def written() -> dict[Path, int]:
        made = (*world.glob("films/*.mp4"), *world.glob("*/shards/**/*.tar"), *world.glob("cast/*/*"))
        return {path: path.stat().st_mtime_ns for path in made}

    before = written()
    seen, unseen = (replace(films[0], scenes=films[0].scenes[:12]) for films in (SEEN, UNSEEN))
    build_datasets(world, {"dataset": [seen], "unseen": [replace(unseen, scenes=unseen.scenes[:4])]})
    assert before == written()
    assert len(before) >= 2 + 3 + len(CAST)


def truth() -> Truth:
    return truth_about([SCENE.drawn("first")], FPS)


def captioned(clip_id: str, _: SceneTruth, level: int) -> Caption:
    return SCENE.caption(clip_id, level)


def captioned_later(clip_id: str, scene: SceneTruth, level: int) -> Caption:
    return captioned(clip_id, scene, level).model_copy(update={"ST": 1 if level == 5 else -1})


def test_another_script_gives_captions_anew_and_the_same_does_not() -> None:
    first, same, later = (
        CaptionByScript(truth(), script).ingredients() for script in (captioned, captioned, captioned_later)
    )
    assert first == same
    assert first["script"] != later["script"]


def test_a_film_that_cannot_be_read_is_refused_with_its_reason(tmp_path: Path) -> None:
    (broken := tmp_path / "broken.mp4").write_bytes(b"no film")
    cast = write_cast(tmp_path / "cast")
    with pytest.raises(UserError, match=r"broken\.mp4: .+"):
        build_scripted(tmp_path / "data", [ScriptedFilm(broken, truth(), captioned)], CONFIG, cast)
