"""Story of the demo's film: 40 seconds composed of anime art, and the true captions of its clips.

Three characters, seven places, five movements; places recur with other characters, and one scene is at night, so that
knowledge of one scene transfers to another. Every scene gives two clips with the same instruction, and every kind of
scene occurs more than once. All tags are known from the script except the manner, which follows from the measured
motion level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from flows.demos.world.acting import dance, hug, look_around, talk_in_turn, walk
from flows.demos.world.motions import pan
from flows.demos.world.paintings import WORLD_HEIGHT, WORLD_WIDTH, Painting
from flows.demos.world.scene import Draw, Movement, Scene
from flows.demos.world.truth import SOURCE, SceneTruth
from pipeline.captions.rules_captioner import ADVERBS
from pipeline.core.records import Caption

SCENE_FRAMES = 104
"""Film frames of a scene: two clips of 17 frames at 8 fps, and the margins."""
PLACES = {
    "bg cave": "cave",
    "bg club": "courtyard",
    "bg lecturehall": "lecture hall",
    "bg meadow": "roadside",
    "bg panorama": "town square",
    "bg uni": "park",
    "bg whitehouse": "garden",
}
"""Background name to environment tag."""


@dataclass(frozen=True)
class _Deed:
    """Tags of a movement."""

    motion: str
    social: Literal[0, 1] = 0
    entertainment: Literal[0, 1] = 0
    stamina: Literal[-1, 1] = -1


_DEEDS: dict[Movement, _Deed] = {
    "none": _Deed("look around"),
    "talks": _Deed("talk to each other", social=1),
    "walks": _Deed("walk by"),
    "dances": _Deed("dance", entertainment=1),
    "hugs": _Deed("hug each other", social=1, stamina=1),
}
_TRAVEL = _Deed("pass by", entertainment=1)
"""Tags of a camera move over a place without characters."""


def story() -> tuple[Scene, ...]:
    """Return the scenes of the film."""
    sylvie, eileen, lucy = "sylvie", "eileen", "lucy"
    return (
        _scene("none", "bg lecturehall", sylvie),
        _scene("walks", "bg uni", eileen),
        _scene("talks", "bg club", eileen, sylvie),
        _scene("hugs", "bg uni", eileen, sylvie),
        _travel(200, 24),
        _scene("dances", "bg club", lucy),
        _scene("walks", "bg whitehouse", lucy, night=True),
        _scene("hugs", "bg meadow", lucy, sylvie),
        _scene("talks", "bg cave", eileen, lucy),
        _scene("dances", "bg lecturehall", eileen),
    )


def caption_of(clip_id: str, scene: SceneTruth, level: int) -> Caption:
    """Return the true tags of a clip.

    Args:
        clip_id: id of the clip.
        scene: truth about its scene.
        level: its motion level, which gives the manner.
    """
    deed = _DEEDS[scene.movement] if scene.characters else _TRAVEL
    time_of_day = "night " if scene.time_of_day == "night" else ""
    return Caption(
        clip_id=clip_id,
        source=SOURCE,
        S="girl" if scene.characters else "view",
        MD=deed.motion,
        EV=f"{time_of_day}{PLACES[scene.background]}",
        MA=ADVERBS[level],
        SC=deed.social,
        ET=deed.entertainment,
        ST=deed.stamina,
        characters=tuple(name.capitalize() for name in scene.characters),
    )


def _scene(movement: Movement, background: str, *characters: str, night: bool = False) -> Scene:
    draw, name = _ACTED[movement](*characters), f"{movement} in {background}"
    held = 6 if movement == "dances" else 3  # leaps are held longer, so that some frames are alike
    return Scene(name, SCENE_FRAMES, Painting(background, night), draw, held, movement)


def _travel(start: int, step: int) -> Scene:
    """Camera move over the square, which is four times as wide as other places, by `step` / 2 pixels per frame."""
    look = pan((start, 0, start + WORLD_WIDTH, WORLD_HEIGHT), step / 2)
    return Scene("travel", SCENE_FRAMES, Painting("bg panorama"), frames_per_drawing=1, camera="pan", look=look)


_ACTED: dict[Movement, Callable[..., Draw]] = {
    "none": look_around,
    "talks": talk_in_turn,
    "walks": lambda character: walk(character, -100, 36),
    "dances": dance,
    "hugs": hug,
}
