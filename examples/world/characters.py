"""Characters of the drawn world, built of parts, and the poses they take.

Angles are radians: limbs hang down at 0 and swing to the right of the picture, a heading of 0 faces the viewer, pi/2
the right of the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from examples.world.brush import Colour

Hair = Literal["twin tails", "spikes", "long", "bob", "ponytail", "short", "curls", "buns", "braids", "mohawk"]
Wear = Literal[
    "cat ears", "bunny ears", "fox ears", "glasses", "straw hat", "witch hat", "cap", "headphones", "bow", "scarf"
]
Prop = Literal["broom", "sword", "flag"]
Limb = tuple[float, float]
"""Angles of the upper and the lower part."""


@dataclass(frozen=True)
class Character:
    """Look of a character."""

    hair: Hair
    hair_colour: Colour
    eyes: Colour
    skin: Colour
    top: Colour
    bottom: Colour
    accent: Colour
    skirt: bool
    girl: bool = True
    wears: Wear | None = None


@dataclass(frozen=True)
class Pose:
    """Pose of a puppet. Left and right are seen from the viewer."""

    heading: float = 0.0
    lean: float = 0.0
    """Turn of the whole body around its feet."""
    crouch: float = 0.0
    """Lowering of the hip."""
    left_arm: Limb = (-0.25, -0.1)
    right_arm: Limb = (0.25, 0.1)
    left_leg: Limb = (0.0, 0.0)
    right_leg: Limb = (0.0, 0.0)
    nod: float = 0.0
    """Turn of the head."""
    eyes: Literal["open", "closed", "happy"] = "open"
    mouth: Literal["smile", "open", "flat"] = "smile"
    prop: Prop | None = None
    swing: float = 0.0
    """Angle of a sword; 0 is upright."""
    lifted: float = 0.0
    """Height of a flag over the ground."""
    raincoat: float = 0.0
    """Share of the raincoat that is on: 1 if worn, 0 if not, and between if held over the head."""


STANDING = Pose()
CAST = {
    "Mika": Character(
        hair="twin tails", hair_colour=(255, 128, 176), eyes=(214, 50, 110), skin=(255, 224, 204),
        top=(250, 250, 252), bottom=(44, 64, 140), accent=(226, 44, 62), skirt=True,
    ),
    "Haru": Character(
        hair="spikes", hair_colour=(52, 120, 232), eyes=(40, 120, 220), skin=(252, 214, 186),
        top=(244, 128, 36), bottom=(70, 76, 96), accent=(250, 226, 120), skirt=False, girl=False,
    ),
    "Yuki": Character(
        hair="long", hair_colour=(236, 236, 246), eyes=(130, 70, 200), skin=(255, 232, 218),
        top=(146, 74, 190), bottom=(146, 74, 190), accent=(250, 190, 220), skirt=True,
    ),
    "Kuro": Character(
        hair="bob", hair_colour=(46, 42, 60), eyes=(60, 180, 70), skin=(240, 196, 160), wears="cat ears",
        top=(40, 150, 92), bottom=(96, 66, 48), accent=(236, 70, 60), skirt=False, girl=False,
    ),
    "Sora": Character(
        hair="short", hair_colour=(246, 206, 92), eyes=(50, 140, 170), skin=(236, 190, 150), wears="glasses",
        top=(64, 178, 186), bottom=(238, 236, 228), accent=(255, 255, 255), skirt=False, girl=False,
    ),
    "Rin": Character(
        hair="ponytail", hair_colour=(216, 52, 40), eyes=(190, 90, 30), skin=(255, 220, 196),
        top=(54, 52, 66), bottom=(240, 238, 242), accent=(240, 186, 50), skirt=True,
    ),
    "Nana": Character(
        hair="buns", hair_colour=(128, 76, 44), eyes=(110, 64, 36), skin=(255, 214, 180),
        top=(40, 196, 190), bottom=(40, 196, 190), accent=(255, 240, 120), skirt=True,
    ),
    "Taro": Character(
        hair="short", hair_colour=(72, 48, 36), eyes=(80, 50, 30), skin=(206, 150, 108), wears="cap",
        top=(246, 246, 250), bottom=(48, 96, 186), accent=(222, 40, 44), skirt=False, girl=False,
    ),
    "Aoi": Character(
        hair="bob", hair_colour=(38, 178, 190), eyes=(30, 120, 170), skin=(255, 226, 208), wears="headphones",
        top=(120, 122, 140), bottom=(60, 62, 80), accent=(255, 96, 160), skirt=False,
    ),
    "Emi": Character(
        hair="braids", hair_colour=(250, 220, 128), eyes=(70, 150, 70), skin=(255, 222, 196), wears="straw hat",
        top=(112, 186, 84), bottom=(112, 186, 84), accent=(255, 255, 255), skirt=True,
    ),
    "Ken": Character(
        hair="mohawk", hair_colour=(110, 214, 60), eyes=(50, 50, 60), skin=(244, 202, 168),
        top=(40, 40, 48), bottom=(92, 96, 120), accent=(200, 204, 214), skirt=False, girl=False,
    ),
    "Luna": Character(
        hair="long", hair_colour=(92, 62, 158), eyes=(230, 180, 40), skin=(240, 222, 230), wears="witch hat",
        top=(52, 44, 84), bottom=(52, 44, 84), accent=(250, 160, 60), skirt=True,
    ),
    "Momo": Character(
        hair="bob", hair_colour=(204, 184, 255), eyes=(226, 70, 90), skin=(255, 226, 206), wears="bunny ears",
        top=(255, 150, 172), bottom=(255, 150, 172), accent=(255, 255, 255), skirt=True,
    ),
    "Jin": Character(
        hair="ponytail", hair_colour=(34, 38, 76), eyes=(60, 66, 110), skin=(248, 210, 178), wears="scarf",
        top=(230, 232, 240), bottom=(40, 58, 112), accent=(212, 36, 48), skirt=False, girl=False,
    ),
    "Hana": Character(
        hair="curls", hair_colour=(60, 40, 38), eyes=(96, 58, 36), skin=(164, 108, 74), wears="bow",
        top=(255, 110, 90), bottom=(250, 246, 236), accent=(255, 84, 150), skirt=True,
    ),
    "Riku": Character(
        hair="spikes", hair_colour=(238, 116, 32), eyes=(190, 130, 20), skin=(222, 168, 124), wears="fox ears",
        top=(120, 32, 44), bottom=(214, 196, 160), accent=(250, 240, 226), skirt=False, girl=False,
    ),
}  # fmt: skip
"""Looks by the name of the character."""
