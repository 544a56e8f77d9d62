"""Facts of the stories: what implies what, and what a window tells."""

from __future__ import annotations

from dataclasses import replace

from examples.miniature.dataset import films_of
from examples.miniature.facts import MOST, Story, evidence, implications, turns_of
from examples.miniature.story import Scriptwriter, StoryScene
from examples.world.puppet_motions import COAT_OFF, PLANT, Cue

WAVES = StoryScene(Cue("Mika", "wave", 2), "meadow")
COAT = frozenset({"Mika"})
SCENES = [scene for film in films_of("facts", 8) for scene in film.scenes]


def accidents(scenes: list[StoryScene]) -> set[str]:
    return {str(each).split(" =")[0] for each in implications(scenes) if each.share > MOST and not each.is_meant}


def test_the_stories_imply_nothing_that_is_not_meant() -> None:
    assert accidents(SCENES) == set()


def test_an_accident_is_found_and_a_rule_of_the_world_is_not() -> None:
    dressed = [
        replace(scene, cue=replace(scene.cue, coats=scene.cue.coats | {scene.cue.actor}))
        if scene.cue.motion == PLANT
        else scene
        for scene in SCENES
    ]
    assert accidents(dressed) == {f"P(actor's coat on | motion {PLANT})"}
    undressing = [each for each in implications(SCENES) if each.given == ("motion", COAT_OFF)]
    assert {each.share for each in undressing if each.fact == ("actor's coat", "on")} == {1.0}


def test_a_window_tells_what_it_shows_or_what_it_begins_with() -> None:
    elsewhere = replace(WAVES, place="beach", cue=replace(WAVES.cue, actor="Haru"))
    later = replace(WAVES, flag=100.0, cue=replace(WAVES.cue, coats=COAT))
    story: Story = [WAVES, *[elsewhere] * 3, later, elsewhere, *[elsewhere] * 4, later]
    told = evidence([story], 5)
    assert told["raincoat on"] == told["flag"] == [True, False]
    assert evidence([story], 7)["flag"] == [True, True]


def test_five_turns_tell_nearly_all_coats_and_flags() -> None:
    told = evidence(turns_of(SCENES), 5)
    for kinds in (("raincoat on", "raincoat off"), ("flag", "no flag"), ("time of day",)):
        both = [each for kind in kinds for each in told[kind]]
        assert sum(both) >= 0.86 * len(both)


def test_planters_wear_raincoats_or_do_not() -> None:
    writer = Scriptwriter("planters")
    planters = [scene.cue for _ in range(20) for scene in writer.story() if scene.cue.motion == PLANT]
    worn = [cue.actor in cue.coats for cue in planters]
    assert 0.2 < sum(worn) / len(worn) < 0.8
