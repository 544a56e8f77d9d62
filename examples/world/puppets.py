"""Puppets: jointed anime characters with large heads, drawn by code in any pose.

Lengths are pixels of a film 180 high; the origin of a puppet is the ground between its feet. Angles are radians: limbs
hang down at 0 and swing to the right of the picture, a heading of 0 faces the viewer, pi/2 the right of the picture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cos, sin
from typing import Literal

from examples.world.brush import INK, Brush, Colour, smooth
from examples.world.scene import Point, Sprite

Hair = Literal["twin tails", "spikes", "long", "cat ears"]
Prop = Literal["broom", "sword", "flag"]
Limb = tuple[float, float]
"""Angles of the upper and the lower part."""
FLAG_REACH = 34.0
"""Distance of a flag from its bearer."""
_LEG, _ARM = (13.0, 13.0), (14.0, 13.0)
"""Lengths of upper and lower parts."""
_HIP, _SHOULDER, _NECK, _HEAD = -26.0, -52.0, -56.0, 25.0
"""Heights of the joints over the feet, and height of the head's middle over the neck."""
_WHITE: Colour = (250, 250, 252)
_RAINCOAT: Colour = (250, 206, 40)


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


@dataclass(frozen=True)
class Puppet(Sprite):
    """Character in a pose; its picture is the name of its look."""

    pose: Pose = Pose()


def draw(brush: Brush, character: Character, puppet: Puppet) -> None:
    """Draw a puppet; the brush is in the coordinates of the place."""
    pose = puppet.pose
    ground = brush.placed(puppet.x, puppet.y, pose.lean, puppet.size, puppet.size)
    body = ground.placed(0, pose.crouch)
    dressed = _in_raincoat(character) if pose.raincoat >= 1 else character
    away = cos(pose.heading) < -0.2
    if pose.prop == "broom":
        _broom(body)
    if not away:
        _back_hair(_head(body, pose), character, pose.heading)
    for side, leg in ((-1, pose.left_leg), (1, pose.right_leg)):
        _leg(body, dressed, (side * _turned(6.5, pose.heading), _HIP), leg)
    _torso(body, dressed, pose.heading, coat=pose.raincoat >= 1)
    if pose.prop == "flag":
        flag(ground.placed(-FLAG_REACH, -2 - pose.lifted))
    hands = [
        _arm(body, dressed, (side * _turned(11.5, pose.heading), _SHOULDER), arm)
        for side, arm in ((-1, pose.left_arm), (1, pose.right_arm))
    ]
    if pose.prop == "sword":
        _sword(body.placed(*hands[1], pose.swing))
    head = _head(body, pose)
    _face(head, character, pose, away=away)
    if away:
        _back_hair(head, character, pose.heading)
    if 0 < pose.raincoat < 1:
        _carried_coat(body, 1 - pose.raincoat)


def _in_raincoat(character: Character) -> Character:
    return replace(character, top=_RAINCOAT, bottom=_RAINCOAT, accent=(214, 150, 20))


def _turned(offset: float, heading: float) -> float:
    """Offset to the side as seen when the body faces `heading`; never quite 0, so that both limbs show."""
    return offset * max(abs(cos(heading)), 0.3)


def _dark(colour: Colour, share: float = 0.78) -> Colour:
    red, green, blue = (round(value * share) for value in colour)
    return red, green, blue


def _end(start: Point, angle: float, length: float) -> Point:
    return start[0] + length * sin(angle), start[1] + length * cos(angle)


def _head(body: Brush, pose: Pose) -> Brush:
    neck = body.placed(2 * sin(pose.heading), _NECK, pose.nod)
    return neck.placed(0, -_HEAD)


def _leg(body: Brush, look: Character, hip: Point, leg: Limb) -> None:
    knee = _end(hip, leg[0], _LEG[0])
    foot = _end(knee, leg[1], _LEG[1])
    body.bar(hip, knee, 10, _dark(look.bottom) if not look.skirt else look.skin)
    body.bar(knee, foot, 9, _dark(look.bottom) if not look.skirt else _WHITE)
    body.ellipse(foot[0] + 1, foot[1] - 1, 7, 4.4, _dark(look.accent, 0.6))


def _torso(body: Brush, look: Character, heading: float, *, coat: bool) -> None:
    wide = 0.82 + 0.18 * abs(cos(heading))
    chest = [
        (-12 * wide, -54),
        (12 * wide, -54),
        (13.5 * wide, -40),
        (12.5 * wide, -26),
        (-12.5 * wide, -26),
        (-13.5 * wide, -40),
    ]
    body.shape(smooth(chest, 3), look.top)
    if coat:
        body.shape([(-11 * wide, -50), (11 * wide, -50), (21 * wide, -13), (-21 * wide, -13)], look.top)
        body.line([(0, -50), (2 * sin(heading), -14)], 1.2, look.accent)
    elif look.skirt:
        body.shape([(-11 * wide, -33), (11 * wide, -33), (21 * wide, -16), (-21 * wide, -16)], look.bottom)
        body.shape(
            [(-21 * wide, -19), (21 * wide, -19), (21.5 * wide, -16), (-21.5 * wide, -16)], look.accent, outlined=False
        )
    else:
        body.shape([(-12.5 * wide, -31), (12.5 * wide, -31), (12 * wide, -22), (-12 * wide, -22)], look.bottom)
    x = 8 * sin(heading)
    if cos(heading) > -0.2 and not coat:
        body.shape([(x - 9, -55), (x + 9, -55), (x + 2, -42), (x - 2, -42)], look.accent)


def _arm(body: Brush, look: Character, shoulder: Point, arm: Limb) -> Point:
    """Draw an arm and return the position of its hand."""
    elbow = _end(shoulder, arm[0], _ARM[0])
    hand = _end(elbow, arm[1], _ARM[1])
    body.ellipse(hand[0], hand[1], 5, 5, look.skin)
    body.bar(shoulder, elbow, 9.5, look.top)
    body.bar(elbow, hand, 9.5, look.top, tapered=1.1)
    body.ellipse(hand[0], hand[1], 3.6, 3.6, look.skin, outlined=False)
    return hand


def _back_hair(head: Brush, look: Character, heading: float) -> None:
    """Draw the hair behind the head, which hangs on the far side of a turned head."""
    back, colour, shade = -7 * sin(heading), look.hair_colour, _dark(look.hair_colour)
    if look.hair == "twin tails":
        for side in (-1, 1):
            x = side * 26 * max(abs(cos(heading)), 0.55) + back
            tail = [
                (x - 3 * side, -14),
                (x + 13 * side, -10),
                (x + 17 * side, 12),
                (x + 9 * side, 38),
                (x + 3 * side, 20),
            ]
            head.shape(smooth(tail), shade)
    if look.hair == "long":
        fall = [
            (back - 27, -8),
            (back - 29, 26),
            (back - 24, 56),
            (back, 60),
            (back + 24, 56),
            (back + 29, 26),
            (back + 27, -8),
        ]
        head.shape(smooth(fall), shade)
    if look.hair == "spikes":
        for angle in (-2.5, -1.9, -1.3, -0.7, -0.1, 0.5):
            tip = (back + 40 * cos(angle - 0.2), 38 * sin(angle - 0.2))
            head.shape(
                [
                    (back + 24 * cos(angle - 0.45), 24 * sin(angle - 0.45)),
                    tip,
                    (back + 24 * cos(angle + 0.4), 24 * sin(angle + 0.4)),
                ],
                colour,
            )
    if look.hair == "cat ears":
        for side in (-1, 1):
            x = side * 17 + back / 2
            head.shape([(x - 10, -18), (x + 4 * side, -44), (x + 10, -16)], colour)
            head.shape([(x - 4, -20), (x + 3 * side, -36), (x + 5, -20)], look.accent, outlined=False)
        head.shape(
            smooth(
                [(back - 26, -6), (back - 27, 16), (back - 16, 26), (back + 16, 26), (back + 27, 16), (back + 26, -6)]
            ),
            shade,
        )
    head.ellipse(back / 2, -3, 28, 26, colour)


def _face(head: Brush, look: Character, pose: Pose, *, away: bool) -> None:
    if away:
        return
    side = sin(pose.heading)
    head.ellipse(3 * side, 2, 24, 22, look.skin)
    for eye in (-0.46, 0.46):
        if (facing := cos(eye + pose.heading)) > 0.12:
            _eye(head.placed(23 * sin(eye + pose.heading), 5, across=max(facing, 0.35)), look, pose)
    if cos(pose.heading) > 0:
        _mouth(head.placed(20 * side, 15, across=max(cos(pose.heading), 0.4)), pose)
    _fringe(head, look, side)


def _eye(eye: Brush, look: Character, pose: Pose) -> None:
    if pose.eyes == "closed":
        eye.line([(-5, 1), (0, 3), (5, 1)], 1.8, INK)
    elif pose.eyes == "happy":
        eye.line([(-5, 2), (0, -3), (5, 2)], 2.0, INK)
    else:
        eye.ellipse(0, 0, 5.4, 7.4, _WHITE)
        eye.ellipse(0, 0.8, 4.6, 6.6, look.eyes, outlined=False)
        eye.ellipse(0, 1.6, 2.4, 4.0, INK, outlined=False)
        eye.ellipse(-1.6, -2.6, 1.9, 2.3, _WHITE, outlined=False)
        eye.line([(-6, -5), (0, -8), (6, -5)], 2.0, INK)
    eye.ellipse(0, 10, 4.2, 2.0, (250, 160, 150), outlined=False)


def _mouth(mouth: Brush, pose: Pose) -> None:
    if pose.mouth == "open":
        mouth.ellipse(0, 0, 3.6, 3.4, (190, 60, 70))
    elif pose.mouth == "smile":
        mouth.line([(-3.5, -1), (0, 1.4), (3.5, -1)], 1.4, INK)
    else:
        mouth.line([(-3, 0), (3, 0)], 1.4, INK)


def _fringe(head: Brush, look: Character, side: float) -> None:
    x, colour = 4 * side, look.hair_colour
    cap = [(-27, 4), (-27, -10), (-18, -26), (0, -30), (18, -26), (27, -10), (27, 4), (x + 21, -4)]
    zigzag = {
        "twin tails": [(x + 15, 0), (x + 8, -9), (x + 1, -1), (x - 7, -9), (x - 15, 0), (x - 20, -5)],
        "spikes": [(x + 16, -12), (x + 10, -2), (x + 3, -14), (x - 5, -3), (x - 11, -14), (x - 18, -3)],
        "long": [(x + 17, -5), (x + 13, -5), (x, -6), (x - 13, -5), (x - 17, -5), (x - 22, 2)],
        "cat ears": [(x + 15, -6), (x + 4, 2), (x - 4, -10), (x - 12, -3), (x - 16, -10), (x - 21, -2)],
    }[look.hair]
    head.shape([*cap, *zigzag], colour)
    head.line([(-14, -19), (-4, -23), (6, -23)], 2.6, _light(colour))
    if look.hair == "twin tails":
        for ear in (-1, 1):
            head.ellipse(ear * 24 - 3 * side, -15, 5.5, 5.5, look.accent)


def _light(colour: Colour) -> Colour:
    red, green, blue = (round(value + 0.45 * (255 - value)) for value in colour)
    return red, green, blue


def _broom(body: Brush) -> None:
    body.bar((-52, -22), (50, -30), 4.5, (150, 96, 48))
    body.shape(smooth([(-46, -30), (-46, -16), (-76, -8), (-80, -20), (-74, -34)]), (226, 184, 84))


def _sword(hand: Brush) -> None:
    hand.shape([(-2.6, -4), (2.6, -4), (2.6, -44), (0, -52), (-2.6, -44)], (214, 232, 246))
    hand.bar((-7, -4), (7, -4), 4, (214, 160, 40))
    hand.bar((0, -3), (0, 7), 4, (110, 60, 40))


def flag(foot: Brush) -> None:
    """Draw a red flag on its pole, whose lower end is the origin."""
    foot.bar((0, 4), (0, -58), 3.4, (238, 232, 214))
    foot.shape([(-1, -58), (-36, -49), (-1, -36)], (228, 40, 44))


def _carried_coat(body: Brush, up: float) -> None:
    """Draw the raincoat on its way over the head: `up` from 0, on the shoulders, to 1, above the head."""
    coat = body.placed(0, -62 * up)
    coat.shape([(-13, -54), (13, -54), (24, -13), (-24, -13)], _RAINCOAT)
    for side in (-1, 1):
        coat.bar((side * 12, -50), (side * 24, -34), 10, _RAINCOAT)
    coat.line([(0, -52), (0, -14)], 1.2, (214, 150, 20))


CAST = {
    "Mika": Character(
        hair="twin tails", hair_colour=(255, 128, 176), eyes=(214, 50, 110), skin=(255, 224, 204),
        top=(250, 250, 252), bottom=(44, 64, 140), accent=(226, 44, 62), skirt=True,
    ),
    "Haru": Character(
        hair="spikes", hair_colour=(52, 120, 232), eyes=(40, 120, 220), skin=(252, 214, 186),
        top=(244, 128, 36), bottom=(70, 76, 96), accent=(250, 226, 120), skirt=False,
    ),
    "Yuki": Character(
        hair="long", hair_colour=(236, 236, 246), eyes=(130, 70, 200), skin=(255, 232, 218),
        top=(146, 74, 190), bottom=(146, 74, 190), accent=(250, 190, 220), skirt=True,
    ),
    "Kuro": Character(
        hair="cat ears", hair_colour=(46, 42, 60), eyes=(60, 180, 70), skin=(240, 196, 160),
        top=(40, 150, 92), bottom=(96, 66, 48), accent=(236, 70, 60), skirt=False,
    ),
}  # fmt: skip
"""Looks by the name of the character."""
