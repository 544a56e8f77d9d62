"""Puppets: jointed anime characters with large heads, drawn by code in any pose.

Lengths are units of a picture 180 high; the origin of a puppet is the ground between its feet. A mirrored puppet is
drawn as if the picture were turned over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cos, sin

from examples.world.brush import WHITE, Brush, Colour, dark, smooth
from examples.world.characters import STANDING, Character, Limb, Pose
from examples.world.heads import draw_back, draw_face, draw_worn
from examples.world.scene import Point, Sprite

FLAG_REACH, FLAG_WIDTH = 34.0, 36.0
"""Distance of a flag's pole from its bearer, and of its tip from the pole, both to the left."""
_LEG, _ARM = (13.0, 13.0), (14.0, 13.0)
"""Lengths of upper and lower parts."""
_HIP, _SHOULDER, _NECK, _HEAD = -26.0, -52.0, -56.0, 25.0
"""Heights of the joints over the feet, and height of the head's middle over the neck."""
_RAINCOAT: Colour = (250, 206, 40)
_RAINCOAT_EDGE: Colour = (214, 150, 20)


@dataclass(frozen=True)
class Puppet(Sprite):
    """Character in a pose; its picture is the name of its look."""

    pose: Pose = STANDING


def draw(brush: Brush, character: Character, puppet: Puppet) -> None:
    """Draw a puppet; the brush is in the coordinates of the place."""
    pose = puppet.pose
    facing = brush.placed(puppet.x, puppet.y, across=-1 if puppet.mirrored else 1)
    ground = facing.placed(0, 0, pose.lean, puppet.size, puppet.size)
    body = ground.placed(0, pose.crouch)
    dressed = _in_raincoat(character) if pose.raincoat >= 1 else character
    away = cos(pose.heading) < -0.2
    head = _head(body, pose)
    if pose.prop == "broom":
        _broom(body)
    if not away:
        draw_back(head, character, pose.heading)
    for side, leg in ((-1, pose.left_leg), (1, pose.right_leg)):
        _leg(body, dressed, (side * _turned(6.5, pose.heading), _HIP), leg)
    _torso(body, dressed, pose.heading, coat=pose.raincoat >= 1)
    if pose.prop == "flag":
        flag(ground.placed(-FLAG_REACH, 2 - pose.lifted))
    hands = [
        _arm(body, dressed, (side * _turned(11.5, pose.heading), _SHOULDER), arm)
        for side, arm in ((-1, pose.left_arm), (1, pose.right_arm))
    ]
    if pose.prop == "sword":
        _sword(body.placed(*hands[1], pose.swing))
    if character.wears == "scarf":
        _scarf(body, character, pose.heading)
    if away:
        draw_back(head, character, pose.heading)
        draw_worn(head, character, pose.heading)
    else:
        draw_face(head, character, pose)
    if 0 < pose.raincoat < 1:
        _carried_coat(body, 1 - pose.raincoat)


def _in_raincoat(character: Character) -> Character:
    return replace(character, top=_RAINCOAT, bottom=_RAINCOAT, accent=_RAINCOAT_EDGE)


def _turned(offset: float, heading: float) -> float:
    """Offset to the side as seen when the body faces `heading`; never quite 0, so that both limbs show."""
    return offset * max(abs(cos(heading)), 0.3)


def _end(start: Point, angle: float, length: float) -> Point:
    return start[0] + length * sin(angle), start[1] + length * cos(angle)


def _head(body: Brush, pose: Pose) -> Brush:
    neck = body.placed(2 * sin(pose.heading), _NECK, pose.nod)
    return neck.placed(0, -_HEAD)


def _leg(body: Brush, look: Character, hip: Point, leg: Limb) -> None:
    knee = _end(hip, leg[0], _LEG[0])
    foot = _end(knee, leg[1], _LEG[1])
    body.bar(hip, knee, 10, look.skin if look.skirt else dark(look.bottom))
    body.bar(knee, foot, 9, WHITE if look.skirt else dark(look.bottom))
    body.ellipse(foot[0] + 1, foot[1] - 1, 7, 4.4, dark(look.accent, 0.6))


def _torso(body: Brush, look: Character, heading: float, *, coat: bool) -> None:
    wide = 0.82 + 0.18 * abs(cos(heading))
    chest = [(-12, -54), (12, -54), (13.5, -40), (12.5, -26), (-12.5, -26), (-13.5, -40)]
    trunk = body.placed(0, 0, across=wide)
    trunk.shape(smooth(chest, 3), look.top)
    if coat:
        trunk.shape([(-11, -50), (11, -50), (21, -13), (-21, -13)], look.top)
        body.line([(0, -50), (2 * sin(heading), -14)], 1.2, look.accent)
    elif look.skirt:
        trunk.shape([(-11, -33), (11, -33), (21, -16), (-21, -16)], look.bottom)
        trunk.shape([(-21, -19), (21, -19), (21.5, -16), (-21.5, -16)], look.accent, outlined=False)
    else:
        trunk.shape([(-12.5, -31), (12.5, -31), (12, -22), (-12, -22)], look.bottom)
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


def _scarf(body: Brush, look: Character, heading: float) -> None:
    back = -10 * sin(heading) - 9
    body.shape(
        smooth([(back, -56), (back + 9, -54), (back + 4, -28), (back - 12, -24), (back - 8, -40)]), dark(look.accent)
    )
    body.bar((-12, -54), (12, -54), 11, look.accent)


def _broom(body: Brush) -> None:
    body.bar((-52, -22), (54, -30), 5.5, (150, 96, 48))
    body.shape(smooth([(-44, -33), (-44, -13), (-78, -4), (-84, -20), (-76, -38)]), (238, 190, 72))
    body.bar((-46, -31), (-45, -15), 4, (190, 60, 50))


def _sword(hand: Brush) -> None:
    hand.shape([(-4.6, -4), (4.6, -4), (4.6, -50), (0, -62), (-4.6, -50)], (226, 240, 252))
    hand.line([(0, -8), (0, -54)], 1.6, (120, 170, 214))
    hand.bar((-11, -4), (11, -4), 5.5, (236, 178, 40))
    hand.bar((0, -3), (0, 8), 5, (110, 60, 40))


def flag(foot: Brush) -> None:
    """Draw a red flag on its pole, whose lower end is the origin."""
    foot.bar((0, 4), (0, -62), 4, (238, 232, 214))
    foot.shape([(-1, -62), (-FLAG_WIDTH, -50), (-1, -36)], (228, 40, 44))


def _carried_coat(body: Brush, up: float) -> None:
    """Draw the raincoat on its way over the head: `up` from 0, on the shoulders, to 1, above the head."""
    coat = body.placed(0, -62 * up)
    coat.shape([(-13, -54), (13, -54), (24, -13), (-24, -13)], _RAINCOAT)
    for side in (-1, 1):
        coat.bar((side * 12, -50), (side * 24, -34), 10, _RAINCOAT)
    coat.line([(0, -52), (0, -14)], 1.2, _RAINCOAT_EDGE)
