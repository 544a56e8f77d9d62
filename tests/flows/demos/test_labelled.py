"""The labelled data set: the script says only what a captioner may say, and the shards say what the script says."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from flows.demos.labelled import CONFIG, build_labelled
from flows.demos.scripted import CaptionByScript
from flows.demos.world.art import art_folder
from flows.demos.world.film import FPS
from flows.demos.world.story import PLACES, caption_of, story
from flows.demos.world.truth import truth_about
from pipeline.core.errors import UserError
from pipeline.core.progress import silent
from pipeline.core.store import FilmFolder
from pipeline.publish.shards import read_index
from prompts.tags import TAGS, WhatReply, format_what
from prompts.what_replies import parse_what
from tests.support import records
from training.data.shards import open_shards
from training.data.turns import read_texts


def test_the_script_answers_what_a_captioner_may_answer() -> None:
    truth = truth_about(story(), FPS)
    for scene in truth.scenes:
        caption = caption_of("clip", scene, level=3)
        tags = {tag: getattr(caption, tag) for tag in TAGS}
        assert None not in tags.values()
        assert parse_what(format_what(WhatReply(**tags))) == WhatReply(**tags)
        assert tags["SC"] <= (len(scene.characters) > 1)
        assert caption.EV
        assert PLACES[scene.background] in caption.EV
        assert caption.EV.startswith("night ") == (scene.time_of_day == "night")
        assert {name.lower() for name in caption.characters or ()} == set(scene.characters)


def test_what_happens_in_the_story_happens_more_than_once_and_never_twice_in_a_row_at_one_place() -> None:
    scenes = story()
    assert min(Counter(scene.movement for scene in scenes).values()) > 1
    assert all(before.place != after.place for before, after in pairwise(scenes))


def test_a_clip_over_a_missed_cut_gets_no_caption(tmp_path: Path) -> None:
    truth = truth_about(story(), FPS)
    folder = FilmFolder(tmp_path / "film-00000000")
    inside, over = ((10, 13, 16), (100, 103, 106))
    clips = [
        records.clip(clip_id=f"clip-{frames[0]}", frames=len(frames), source_frames=frames) for frames in (inside, over)
    ]
    folder.write("clips", clips)
    folder.write("screened", [records.verdict(clip.clip_id, level=2) for clip in clips])
    outcome = CaptionByScript(truth, caption_of).run(folder, silent)
    good, bad = outcome.tables["captions"]
    assert good == caption_of("clip-10", truth.scenes[0], level=2)
    assert bad.model_dump()["fault"] == f"it spans several scenes: {truth.scenes[0].name}, {truth.scenes[1].name}"
    assert [failure.record_id for failure in outcome.failures] == ["clip-100"]


def skip_without_art() -> None:
    try:
        art_folder()
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_the_shards_say_what_the_script_says_and_are_made_once(tmp_path: Path) -> None:
    skip_without_art()
    dataset = build_labelled(tmp_path / "one")
    truth = truth_about(story(), FPS)
    turns = {split: list(read_texts(open_shards(dataset.root, split))) for split in ("train", "val")}
    samples = [turn.sample for turns_of_split in turns.values() for turn in turns_of_split]
    assert len(samples) == 2 * len(truth.scenes)
    assert len(turns["val"]) >= 4
    assert {sample.motion.level for sample in samples} == {1, 2, 3, 4, 5}
    for sample in samples:
        middle = (sample.start_seconds + sample.end_seconds) / 2 * truth.fps
        scene = next(scene for scene in truth.scenes if scene.start_frame <= middle < scene.end_frame)
        wanted = caption_of(sample.clip_id, scene, sample.motion.level)
        found = sample.caption.model_dump(exclude={"reviewed"})
        assert found == wanted.model_dump(include=set(found))
        assert sample.frames == CONFIG.clips.frames
    assert set(dataset.record.cast) == {"Eileen", "Lucy", "Sylvie"}
    published = {path: path.stat().st_mtime_ns for path in (dataset.root / "shards").rglob("*.tar")}
    build_labelled(tmp_path / "one")
    assert published == {path: path.stat().st_mtime_ns for path in (dataset.root / "shards").rglob("*.tar")}


@pytest.mark.nightly
def test_another_build_makes_the_same_shards(tmp_path: Path) -> None:
    skip_without_art()
    one, two = (build_labelled(tmp_path / name) for name in ("one", "two"))
    assert read_index(one.root) == read_index(two.root)
