"""The demo's film: 40 seconds composed of anime art, and what a captioner without fault would answer about its clips.

Three characters, seven places, five things to do; a place comes back with others in it, and one scene is at night, so
that what a model learns of one scene helps it in another. Every scene lasts for two clips, of the same instruction, and
every kind of scene comes more than once. Nothing in the tags is measured or guessed but the manner, which follows from
the motion level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from flows.demos.world.acting import dance, hug, look_around, talk_in_turn, walk
from flows.demos.world.motions import pan
from flows.demos.world.paintings import WORLD_HEIGHT, WORLD_WIDTH, Painting
from flows.demos.world.scene import Draw, Movement, Scene
from flows.demos.world.truth import SceneTruth
from pipeline.captions.rules_captioner import ADVERBS
from pipeline.core.records import Caption

SOURCE = "the film's script"
"""Who made these captions, for `caption.source`: nobody looked at a picture."""
SCENE_FRAMES = 104
"""Film frames of a scene: two clips of 17 frames at 8 per second, and the margins."""
PLACES = {
    "bg cave": "cave",
    "bg club": "courtyard",
    "bg lecturehall": "lecture hall",
    "bg meadow": "roadside",
    "bg panorama": "town square",
    "bg uni": "park",
    "bg whitehouse": "garden",
}
"""Background to what one sees in it."""


@dataclass(frozen=True)
class _Deed:
    """What the tags say of a movement."""

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
"""Nobody is there and the camera moves."""


def story() -> tuple[Scene, ...]:
    """The film, scene by scene."""
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
    """The true tags of a clip.

    Args:
        clip_id: the clip.
        scene: what the script says of the scene it lies in.
        level: its motion level, which the manner goes by.
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


def _scene(movement: Movement, background: str, *who: str, night: bool = False) -> Scene:
    draw, name = _ACTED[movement](*who), f"{movement} in {background}"
    held = 6 if movement == "dances" else 3  # leaps are held longer, or no two frames would be alike
    return Scene(name, SCENE_FRAMES, Painting(background, night), draw, held, movement)


def _travel(start: int, step: int) -> Scene:
    """The camera moves over the square, which is as wide as four others, by `step` pixels of it a frame."""
    look = pan((start, 0, start + WORLD_WIDTH, WORLD_HEIGHT), step / 2)
    return Scene("travel", SCENE_FRAMES, Painting("bg panorama"), frames_per_drawing=1, camera="pan", look=look)


_ACTED: dict[Movement, Callable[..., Draw]] = {
    "none": look_around,
    "talks": talk_in_turn,
    "walks": lambda who: walk(who, -100, 36),
    "dances": dance,
    "hugs": hug,
}
