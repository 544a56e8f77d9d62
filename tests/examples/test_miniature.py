"""World in miniature: stories keep their rules, shards say what the stories say, also after a missed cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from examples.miniature.dataset import (
    CONFIG,
    TRAINED,
    StoryFilm,
    agreement,
    build_datasets,
    films_of,
    films_of_the_world,
    write_cast,
)
from examples.miniature.scripted import CaptionByScript, ScriptedFilm, build_scripted
from examples.miniature.staging import VISIBLE
from examples.miniature.story import ONCE, STAYS, Kind, StoryScene
from examples.miniature.true_motion import moving_in_clips
from examples.miniature.truth import Truths
from examples.world.characters import CAST
from examples.world.film import FPS, pictures_of
from examples.world.passers_by import PasserBy
from examples.world.puppet_motions import COAT_OFF, COAT_ON, EMBRACED, MOTIONS, PLANT, Cue
from examples.world.scenery import PLACES
from examples.world.textures import Picture
from examples.world.truth import SOURCE, SceneTruth, Truth, truth_about
from pipeline.core.errors import UserError
from pipeline.core.records import Caption
from pipeline.core.store import Dataset
from prompts.tags import TAGS, WhatReply, format_what
from prompts.what_replies import parse_what
from training.config import WindowSettings
from training.data.shards import open_shards
from training.data.turns import Catalog, RecordedTurn, read_texts, read_turns
from training.data.windows import Windows, continued

Pair = tuple[str, str]
SEEN, UNSEEN, ANY = films_of("stories", 3), films_of("unseen", 1, "unseen"), films_of("any-pairs", 1, "any")
SCENE = StoryScene(Cue("Mika", "wave", 2), "meadow")
KINDS: tuple[Kind, ...] = ("character x motion", "character x place", "motion x place")


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


def consecutive(films: tuple[StoryFilm, ...]) -> list[tuple[StoryScene, StoryScene]]:
    """Scenes of a story, each with the one after it."""
    return [pair for film in films for pair in pairwise(film.scenes) if pair[0].story == pair[1].story]


def small(scene: StoryScene) -> list[Picture]:
    """Every third frame of a scene at half the size of the clips."""
    pictures = list(pictures_of([scene.drawn("scene")]))[::3]
    return [cv2.resize(each[:, 50:590], (96, 64), interpolation=cv2.INTER_AREA) for each in pictures]


def test_every_unseen_scene_has_one_pair_that_the_other_stories_lack() -> None:
    seen = [set.union(*kind) for kind in zip(*map(pairs_of, scenes_of(SEEN)), strict=True)]
    for scene in scenes_of(UNSEEN):
        (kind,) = scene.held_out
        at = KINDS.index(kind)
        assert pairs_of(scene)[at] - seen[at]
    assert {scene.held_out for scene in scenes_of(SEEN)} == {()}
    assert {scene.held_out for scene in scenes_of(UNSEEN)} == {(kind,) for kind in KINDS}
    assert {(), *((kind,) for kind in KINDS)} < {scene.held_out for scene in scenes_of(ANY)}


@pytest.mark.nightly
def test_the_model_of_the_package_learns_all_pairs() -> None:
    films = films_of_the_world()
    learned = [pairs_of(scene) for name in TRAINED for scene in scenes_of(films[name])]
    for found, one, other in zip(
        (set.union(*kind) for kind in zip(*learned, strict=True)), (CAST, CAST, MOTIONS), (MOTIONS, PLACES, PLACES),
        strict=True,
    ):  # fmt: skip
        assert found == {(first, second) for first in one for second in other}


def test_stories_show_everything_and_often_stay() -> None:
    scenes = scenes_of(SEEN)
    assert {scene.place for scene in scenes} == set(PLACES)
    assert {(scene.cue.motion, scene.cue.level) for scene in scenes} == {
        (name, level) for name, motion in MOTIONS.items() for level in motion.steps
    }
    assert {name for scene in scenes for name in scene.characters} == set(CAST)
    assert all(after.stays == (before.place == after.place) for before, after in consecutive(SEEN))
    for film in (*SEEN, *UNSEEN, *ANY):
        assert sum(scene.stays for scene in film.scenes) == 7 * STAYS
        assert sum(scene.clips for scene in film.scenes) == 7 * 28
        assert sum(MOTIONS[scene.cue.motion].once for scene in film.scenes) == 7 * ONCE


def test_time_coats_and_flags_last_until_a_turn_changes_them() -> None:
    for film in SEEN:
        assert not film.scenes[0].cue.coats
    for before, after in consecutive(SEEN):
        assert after.time_named == (before.night != after.night)
        changed = {COAT_ON: before.cue.coats | {before.cue.actor}, COAT_OFF: before.cue.coats - {before.cue.actor}}
        assert after.cue.coats == changed.get(before.cue.motion, before.cue.coats)
        if after.stays and before.flag is not None:
            assert after.flag == before.flag
    planted = Counter((scene.story, scene.place) for scene in scenes_of(SEEN) if scene.cue.motion == PLANT)
    assert set(planted.values()) == {1}, "a place has one flag"
    assert {(scene.story, scene.place) for scene in scenes_of(SEEN) if scene.flag is not None} <= planted.keys()
    flags = Counter(Counter(story for story, _ in planted).values())
    assert flags[2] + flags[3] >= 18, "of 21 stories"
    more = {(scene.story, scene.place) for scene in scenes_of(films_of("stories", 6)) if scene.cue.motion == PLANT}
    assert Counter(Counter(story for story, _ in more).values())[3] >= 3, "of 42 stories"


def test_a_scene_that_stays_begins_where_the_last_one_ended() -> None:
    moved = []
    for before, after in consecutive(SEEN):
        if after.stays:
            ended, first = before.ended, after.cue.draw(0)
            assert after.cue.look(0)[0] == ended.left
            assert after.surroundings == ended.surroundings
            moved += [abs(each.x - ended.positions[each.name]) for each in first if each.name in ended.positions]
    assert np.mean(np.array(moved) < 1) > 0.65, "only who would be in the way is elsewhere"


def test_everybody_is_in_the_picture_and_nobody_behind_another() -> None:
    for scene in scenes_of(SEEN):
        for drawing in range(0, scene.frames // 3, 4):
            left, xs = scene.cue.look(3 * drawing)[0], [each.x for each in scene.cue.draw(drawing)]
            assert all(VISIBLE[0] + 25 < x - left < VISIBLE[1] - 25 for x in xs), scene
            assert len(xs) == 1 or abs(xs[0] - xs[1]) >= EMBRACED - 0.1, scene


def test_whoever_comes_in_alone_stands_near_the_middle_by_chance() -> None:
    alone = [scene.cue for scene in scenes_of(SEEN) if not scene.stays and len(scene.characters) == 1]
    offsets = [cue.draw(0)[0].x - cue.look(0)[0] - sum(VISIBLE) / 2 for cue in alone]
    assert len(offsets) > 20
    assert max(map(abs, offsets)) < 70, "of the 108 on either side that the picture has room for"
    assert np.std(offsets) > 10


def test_of_two_who_were_not_there_together_the_caption_names_the_left_one_first() -> None:
    pairs = [scene.cue for scene in scenes_of(SEEN) if not scene.stays and len(scene.characters) == 2]
    assert len(pairs) > 20
    for cue in pairs:
        actor, companion = cue.actor, cue.companion
        xs = {sprite.name: sprite.x for sprite in cue.draw(0)}
        assert xs[actor] < xs[str(companion)]


def test_passers_by_come_from_the_seed_and_no_truth_names_them() -> None:
    again = films_of("stories", 1)[0]
    assert again == SEEN[0]
    found = [one for scene in scenes_of(SEEN) for one in scene.drawn("").draw(0) if isinstance(one, PasserBy)]
    assert len(found) > 100
    assert len({one.x for one in found}) > 50
    for scene in SEEN[0].scenes[:20]:
        truth = truth_about([scene.drawn("")], FPS)
        assert truth.scenes[0].characters == scene.characters
        assert {each.name for each in truth.frames[0].characters} == set(scene.characters)


def test_a_caption_is_one_that_a_captioner_may_give() -> None:
    for scene in scenes_of(SEEN):
        caption = scene.caption("clip", scene.cue.level)
        reply = WhatReply(**{tag: getattr(caption, tag) for tag in TAGS})
        assert parse_what(format_what(reply)) == reply


@pytest.mark.slow
def test_characters_places_nights_and_coats_differ_at_the_size_of_the_model() -> None:
    base = SCENE
    scenes = [
        *(replace(base, cue=replace(base.cue, actor=name)) for name in CAST),
        *(replace(base, cue=replace(base.cue, actor=name, coats=frozenset(CAST))) for name in CAST if name != "Mika"),
        *(replace(base, place=place) for place in PLACES if place != "meadow"),
        replace(base, night=True),
        replace(base, flag=100.0),
        replace(base, cue=replace(base.cue, coats=frozenset({"Mika"}))),
    ]
    firsts = [small(scene)[0].astype(int) for scene in scenes]
    for one, other in combinations(firsts, 2):
        assert np.count_nonzero(np.abs(one - other).max(axis=2) > 40) > 40


def test_the_same_script_gives_the_same_pictures_and_other_levels_go_faster() -> None:
    slow, fast = (StoryScene(Cue("Kuro", "dance", level), "shrine") for level in (2, 4))
    assert all(np.array_equal(*both) for both in zip(small(slow), small(slow), strict=True))
    changes = [np.mean([np.abs(b.astype(int) - a).mean() for a, b in pairwise(small(scene))]) for scene in (slow, fast)]
    assert changes[1] > 1.5 * changes[0]


def few(film: StoryFilm, scenes: int) -> StoryFilm:
    """A film of the first scenes of two stories."""
    return replace(film, scenes=(*film.scenes[:scenes], *film.scenes[18 : 18 + scenes // 2]))


FEW = {"dataset": [few(SEEN[0], 10)], "unseen": [few(UNSEEN[0], 4)]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both datasets of a few scenes."""
    out = tmp_path_factory.mktemp("world")
    build_datasets(out, FEW)
    return out


def turns_of(data: Path, *splits: str) -> list[RecordedTurn]:
    return [turn for split in splits for turn in read_texts(open_shards(data, split))]  # type: ignore[arg-type]


@pytest.mark.slow
def test_shards_say_what_the_script_says(world: Path) -> None:
    truths, turns = Truths.read(world), turns_of(world / "dataset", "train", "val")
    told = sum(scene.clips for film in FEW["dataset"] for scene in film.scenes)
    assert told - 1 <= len(turns) <= told, "the detector takes one run past houses for a cut"
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
    known = [set.union(*kind) for kind in zip(*map(pairs_of, scenes_of(SEEN)), strict=True)]
    for turn in turns_of(world / "dataset", "train", "val"):
        assert not any(pairs - seen for pairs, seen in zip(pairs_of_turn(turn), known, strict=True))
    for turn in turns_of(world / "unseen", "val"):
        assert any(pairs - seen for pairs, seen in zip(pairs_of_turn(turn), known, strict=True))


@pytest.mark.slow
def test_the_optical_flow_measures_the_levels_of_the_script(world: Path) -> None:
    kept, right = agreement(Dataset(world / "dataset"), FEW["dataset"])
    assert right >= 0.9 * kept


@pytest.mark.slow
def test_a_window_has_turns_of_one_story(world: Path) -> None:
    truths, turns = Truths.read(world), turns_of(world / "unseen", "val")
    windows = Windows(turns, WindowSettings())
    stories = [{truths.of(turn.sample).story for turn in windows.longest(item).turns} for item in range(len(windows))]
    assert {len(each) for each in stories} == {1}
    assert {len(windows.longest(item).turns) for item in range(len(windows))} >= {1, 2, 3, 4}


@pytest.mark.slow
def test_shots_continue_within_a_scene_and_in_scenes_that_stay(world: Path) -> None:
    truths, turns = Truths.read(world), Catalog.read(open_shards(world / "dataset", "train")).turns
    last = -1, -1
    for turn, before in zip(turns, continued(turns, "place"), strict=True):
        facts = truths.of(turn.sample)
        goes_on, follows = last == (facts.story, facts.scene), last == (facts.story, facts.scene - 1)
        assert (before is not None) == (goes_on or (facts.stays and follows)), "scenes between may be in `val`"
        last = facts.story, facts.scene
    assert sum(before is not None for before in continued(turns, "place")) > len(turns) / 3


@pytest.mark.slow
def test_the_world_knows_what_moves_in_a_clip(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.miniature.true_motion.films_of_the_world", lambda: FEW)
    turns, clips = list(read_turns(open_shards(world / "unseen", "val")))[:3], CONFIG.clips
    masks = moving_in_clips(world, "unseen", [turn.clip_id for turn in turns])
    for turn, moving_THW in zip(turns, masks, strict=True):
        frames_THWC = turn.frames(clips.height, clips.width, clips.frames).numpy().astype(int)
        changed_THW = (np.abs(np.diff(frames_THWC, axis=0)) > 40).any(axis=-1)
        assert moving_THW.shape == frames_THWC.shape[:3]
        assert (moving_THW[1:] | moving_THW[:-1])[changed_THW].mean() > 0.9


@pytest.mark.slow
def test_data_that_are_made_stay_as_they_are(world: Path) -> None:
    def written() -> dict[Path, int]:
        made = (*world.glob("films/*.mp4"), *world.glob("*/shards/**/*.tar"), *world.glob("cast/*/*"))
        return {path: path.stat().st_mtime_ns for path in made}

    before = written()
    build_datasets(world, FEW)
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
