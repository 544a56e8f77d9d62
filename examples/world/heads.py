"""Heads of puppets: hair, face, and what is worn on the head, seen from any side.

The origin of a head is its middle. Lengths and angles are those of `puppets.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, sin

from examples.world.brush import INK, WHITE, Brush, dark, light, smooth
from examples.world.characters import Character, Hair, Pose, Wear
from examples.world.scene import Point

_FALL = [(-27, -8), (-29, 26), (-24, 56), (0, 60), (24, 56), (29, 26), (27, -8)]
_BOB = [(-26, -6), (-27, 16), (-16, 26), (16, 26), (27, 16), (26, -6)]
_EARS: Mapping[Wear, tuple[float, float, float]] = {
    "cat ears": (10, 44, 4), "fox ears": (13, 50, 7), "bunny ears": (7, 55, 2)
}  # fmt: skip
"""Half width, height of the tip, and how far the tip leans out."""
_FRINGES: Mapping[Hair, Sequence[Point]] = {
    "twin tails": [(15, 0), (8, -9), (1, -1), (-7, -9), (-15, 0), (-20, -5)],
    "spikes": [(16, -12), (10, -2), (3, -14), (-5, -3), (-11, -14), (-18, -3)],
    "long": [(17, -5), (13, -5), (0, -6), (-13, -5), (-17, -5), (-22, 2)],
    "bob": [(15, -6), (4, 2), (-4, -10), (-12, -3), (-16, -10), (-21, -2)],
    "ponytail": [(14, -12), (2, -4), (-8, -8), (-16, -4), (-21, 2)],
    "short": [(17, -8), (6, -14), (-6, -8), (-16, -3), (-21, 0)],
    "curls": [(16, -11), (8, -8), (0, -11), (-8, -8), (-16, -11), (-21, -4)],
    "buns": [(14, -4), (0, -14), (-14, -4), (-20, 0)],
    "braids": [(12, -3), (0, -17), (-12, -3), (-20, 2)],
    "mohawk": [(17, -14), (6, -19), (-6, -19), (-17, -14), (-22, -8)],
}


def draw_back(head: Brush, look: Character, heading: float) -> None:
    """Draw the hair behind the head, which hangs on the far side of a turned head, and the ears of animals."""
    back, colour = -7 * sin(heading), look.hair_colour
    if look.wears and look.wears in _EARS:
        _ears(head.placed(back / 2, 0), look, *_EARS[look.wears])
    _hanging(head.placed(back, 0), look, max(abs(cos(heading)), 0.55))
    head.ellipse(back / 2, -3, 28, 26, dark(colour, 0.6) if look.hair == "mohawk" else colour)
    if look.wears == "bow":
        _bow(head.placed(back / 2 + 15, -26, 0.5), look)


def _ears(head: Brush, look: Character, half: float, tip: float, out: float) -> None:
    inner = look.accent if look.wears == "cat ears" else light(look.accent)
    for side in (-1, 1):
        x = side * 16
        points = [(x - half, -16), (x + out * side, -tip), (x + half, -16)]
        if look.wears == "bunny ears":
            points = [
                (x - half, -16),
                (x - half, -0.8 * tip),
                (x + out * side, -tip),
                (x + half, -0.8 * tip),
                points[2],
            ]
        head.shape(points, look.hair_colour)
        inside = [(0.55 * (px - x) + x, 0.82 * py - 2) for px, py in points]
        head.shape(inside, inner, outlined=False)


def _hanging(hair: Brush, look: Character, turned: float) -> None:
    colour, shade = look.hair_colour, dark(look.hair_colour)
    match look.hair:
        case "twin tails":
            for side in (-1, 1):
                tail = hair.placed(side * 26 * turned, 0, across=side)
                tail.shape(smooth([(-3, -14), (13, -10), (17, 12), (9, 38), (3, 20)]), shade)
        case "long":
            hair.shape(smooth(_FALL), shade)
        case "bob":
            hair.shape(smooth(_BOB), shade)
        case "spikes":
            for angle in (-2.5, -1.9, -1.3, -0.7, -0.1, 0.5):
                tip = (40 * cos(angle - 0.2), 38 * sin(angle - 0.2))
                base = [(24 * cos(angle + turn), 24 * sin(angle + turn)) for turn in (-0.45, 0.4)]
                hair.shape([base[0], tip, base[1]], colour)
        case "ponytail":
            hair.shape(smooth([(-8, -22), (-24, -38), (-44, -26), (-46, 4), (-38, 26), (-32, 2), (-20, -14)]), shade)
            hair.ellipse(-17, -26, 5, 5, look.accent)
        case "curls":
            for x, y in (
                (-24, 16),
                (24, 16),
                (-31, 1),
                (31, 1),
                (-28, -16),
                (28, -16),
                (-15, -29),
                (15, -29),
                (0, -33),
            ):
                hair.ellipse(x, y, 12, 12, colour)
        case "buns":
            for side in (-1, 1):
                hair.ellipse(side * 20, -27, 12, 12, shade)
                hair.ellipse(side * 17, -18, 5, 3.5, look.accent)
        case "braids":
            for side in (-1, 1):
                for number in range(4):
                    hair.ellipse(side * (25 * turned + 2 * number), 14 + 11 * number, 7 - 0.7 * number, 7, shade)
                hair.ellipse(side * (25 * turned + 8), 55, 4, 3.5, look.accent)
        case "mohawk":
            hair.shape([(-12, -22), (-18, -42), (-7, -36), (-1, -48), (6, -37), (17, -43), (12, -22)], colour)
        case "short":
            hair.shape(smooth([(-28, -8), (-27, 9), (-20, 14), (20, 14), (27, 9), (28, -8)]), shade)


def draw_face(head: Brush, look: Character, pose: Pose) -> None:
    """Draw a face that is turned to the viewer at least in part, the hair before it, and what is worn."""
    side = sin(pose.heading)
    head.ellipse(3 * side, 2, 24, 22, look.skin)
    eyes = [
        (head.placed(23 * sin(eye + pose.heading), 5, across=max(facing, 0.35)), eye)
        for eye in (-0.46, 0.46)
        if (facing := cos(eye + pose.heading)) > 0.12
    ]
    for eye, _ in eyes:
        _eye(eye, look, pose)
    if cos(pose.heading) > 0:
        _mouth(head.placed(20 * side, 15, across=max(cos(pose.heading), 0.4)), pose)
    _fringe(head, look, side)
    if look.wears == "glasses":
        for eye, _ in eyes:
            eye.ring(0, 1, 10.5, 10, 1.5, INK)
        head.line([(23 * sin(pose.heading - 0.12), 4), (23 * sin(pose.heading + 0.12), 4)], 1.5, INK)
    draw_worn(head, look, pose.heading)


def _eye(eye: Brush, look: Character, pose: Pose) -> None:
    if pose.eyes == "closed":
        eye.line([(-5, 1), (0, 3), (5, 1)], 1.8, INK)
    elif pose.eyes == "happy":
        eye.line([(-5, 2), (0, -3), (5, 2)], 2.0, INK)
    else:
        eye.ellipse(0, 0, 5.4, 7.4, WHITE)
        eye.ellipse(0, 0.8, 4.6, 6.6, look.eyes, outlined=False)
        eye.ellipse(0, 1.6, 2.4, 4.0, INK, outlined=False)
        eye.ellipse(-1.6, -2.6, 1.9, 2.3, WHITE, outlined=False)
        eye.line([(-6, -5), (0, -8), (6, -5)], 2.0, INK)
    eye.ellipse(0, 10, 4.2, 2.0, dark((250, 160, 150), look.skin[0] / 255), outlined=False)


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
    shaved = look.hair == "mohawk"
    head.shape([*cap, *((x + dx, dy) for dx, dy in _FRINGES[look.hair])], dark(colour, 0.6) if shaved else colour)
    if shaved:
        head.shape([(-9, -20), (-11, -34), (-1, -42), (11, -34), (9, -20)], colour)
    elif look.hair == "curls":
        for dx in (-18, -6, 6, 18):
            head.ellipse(dx, -20, 9, 8, colour, outlined=False)
    else:
        head.line([(-14, -19), (-4, -23), (6, -23)], 2.6, light(colour))
    if look.hair == "twin tails":
        for ear in (-1, 1):
            head.ellipse(ear * 24 - 3 * side, -15, 5.5, 5.5, look.accent)


def draw_worn(head: Brush, look: Character, heading: float) -> None:
    """Draw hats and headphones, which show from all sides."""
    side = sin(heading)
    match look.wears:
        case "straw hat":
            head.ellipse(0, -16, 41, 8.5, (236, 200, 116))
            head.shape(smooth([(-23, -17), (-21, -36), (0, -43), (21, -36), (23, -17)]), (244, 212, 130))
            head.shape([(-23, -24), (23, -24), (23, -17), (-23, -17)], (70, 140, 70), outlined=False)
        case "witch hat":
            head.shape(
                smooth([(-21, -18), (-12, -44), (10 - 6 * side, -58), (13, -42), (21, -18)]), dark(look.top, 0.9)
            )
            head.shape([(-20, -25), (20, -25), (21, -17), (-21, -17)], look.accent, outlined=False)
            head.ellipse(0, -16, 40, 7.5, dark(look.top, 0.9))
        case "cap":
            head.shape(smooth([(-28, -11), (-24, -31), (0, -38), (24, -31), (28, -11)]), look.accent)
            head.shape(
                smooth([(22 * side - 24, -15), (22 * side + 24, -15), (34 * side + 20, -6), (34 * side - 20, -6)]),
                dark(look.accent),
            )
            head.ellipse(8 * side, -24, 7, 7, WHITE, outlined=False)
        case "headphones":
            head.line([(-28, -4), (-24, -26), (0, -36), (24, -26), (28, -4)], 5.5, dark(look.accent))
            for ear in (-1, 1):
                head.ellipse(ear * 28 * max(abs(cos(heading)), 0.2) - 8 * side, 3, 8, 11, look.accent)


def _bow(bow: Brush, look: Character) -> None:
    for side in (-1, 1):
        bow.shape(smooth([(0, 0), (15 * side, -10), (17 * side, 9)]), look.accent)
    bow.ellipse(0, 0, 4.5, 4.5, dark(look.accent))
