"""Motions of puppets: poses by phase, at five speeds that the optical flow measures as five motion levels.

The phase of a motion advances by the same step with every drawing. A repeated motion lasts for the whole scene, and a
motion that happens once begins with the scene and keeps its last pose. The steps give moving parts a mean optical flow
near `SPEEDS`. A motion has only the levels at which it still looks like itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import cos, pi, sin

from examples.world.acting import held, pan
from examples.world.characters import Pose
from examples.world.puppets import Puppet
from examples.world.scene import Draw, Look, Sprites
from examples.world.scenery import GROUND, HEIGHT, WIDTH

SPEEDS = (1.0, 2.0, 3.4, 5.6, 8.8)
"""Mean motion of what moves, in pixels of the film per drawing, for motion level 1 to 5."""
FRAMES_PER_DRAWING = 3
EMBRACED = 34.0
"""Distance of two who hug."""
Placed = tuple[float, float, Pose]
"""Offset to the right and down, and pose."""


@dataclass(frozen=True)
class Motion:
    """Motion to the right: poses by phase, and the phase's step per drawing for each level that it has."""

    pose: Callable[[float], Placed]
    steps: Mapping[int, float] = field(repr=False)
    room: tuple[float, float] = (40.0, 40.0)
    """Distances from the actor's position that it needs on the left and on the right."""
    period: float = 2 * pi
    """Period of the phase of a repeated motion."""
    once: bool = False
    """True if it happens once; its phase then ends at 1."""
    followed: bool = False
    """True if the phase is a distance in pixels, over which the camera follows the actor."""
    coat: bool | None = None
    """True if the actor wears a raincoat afterwards; None if that does not change."""


@dataclass(frozen=True)
class Staging:
    """Chance of a scene that its cue leaves open: who stands where, the side, the phase, and the camera."""

    actor_x: float = 160.0
    companion_x: float = 250.0
    mirrored: bool = False
    """True if the actor moves to the left."""
    phase: float = 0.0
    """Phase of a repeated motion in the first drawing."""
    left: float = 0.0
    """Left border of the camera's box in the first drawing."""


@dataclass(frozen=True)
class Cue:
    """Cue of a scene: its actor, motion and level, and who watches."""

    actor: str
    motion: str
    level: int
    companion: str | None = None
    coats: frozenset[str] = frozenset()
    """Characters in a raincoat at the start of the scene."""
    staging: Staging = Staging()

    @property
    def draw(self) -> Draw:
        """Puppets of each drawing."""
        return self._sprites

    @property
    def look(self) -> Look:
        """Camera, which follows the actor of some motions."""
        motion, left = MOTIONS[self.motion], self.staging.left
        step = self._side * motion.steps[self.level] if motion.followed else 0.0
        return held(pan((left, 0, left + WIDTH, HEIGHT), step), FRAMES_PER_DRAWING)

    @property
    def _side(self) -> int:
        return -1 if self.staging.mirrored else 1

    def _sprites(self, drawing: int) -> Sprites:
        motion, staging = MOTIONS[self.motion], self.staging
        passed = motion.steps[self.level] * max(drawing - motion.once, 0)
        across, down, pose = motion.pose(min(passed, 1.0) if motion.once else staging.phase + passed)
        if self.motion == HUG:
            across = min(passed, 1.0) * (abs(staging.companion_x - staging.actor_x) - EMBRACED) / 2
        across += passed if motion.followed else 0.0
        if motion.coat is None and self.actor in self.coats:
            pose = replace(pose, raincoat=1.0)
        x = staging.actor_x + self._side * across
        actor = Puppet(self.actor, self.actor, x, GROUND + down, mirrored=staging.mirrored, pose=pose)
        if self.companion is None:
            return (actor,)
        facing = self._side * (staging.companion_x - staging.actor_x) > 0
        watches = Pose(heading=0.7)
        if self.motion == HUG:
            watches = pose
        watches, mirrored = replace(watches, raincoat=float(self.companion in self.coats)), facing != staging.mirrored
        x = staging.companion_x - (self._side * across if self.motion == HUG else 0.0)
        companion = Puppet(self.companion, self.companion, x, GROUND, mirrored=mirrored, pose=watches)
        return actor, companion


def _walk(distance: float) -> Placed:
    """Walk to and fro over a stretch of 110 pixels, beginning in its middle."""
    reach, gone = 110.0, (distance + 55) % 220
    forth = gone < reach
    swing, side = 0.55 * sin(0.19 * distance), 1 if forth else -1
    pose = Pose(
        heading=1.0 * side, left_leg=(swing, swing - 0.2), right_leg=(-swing, -swing - 0.2),
        left_arm=(-swing - 0.1, -swing + 0.2 * side), right_arm=(swing + 0.1, swing + 0.2 * side),
    )  # fmt: skip
    return (gone if forth else 220 - gone) - 55, -2 * abs(sin(0.19 * distance)), pose


def _run(distance: float) -> Placed:
    swing = sin(0.12 * distance)
    pose = Pose(
        heading=1.15, lean=0.2, left_leg=(1.0 * swing, 1.0 * swing - 0.7), right_leg=(-1.0 * swing, -1.0 * swing - 0.7),
        left_arm=(-0.9 * swing, 1.2 - 0.5 * swing), right_arm=(0.9 * swing, 1.2 + 0.5 * swing), mouth="open",
    )  # fmt: skip
    return -10, -7 * abs(cos(0.12 * distance)), pose


def _fly(distance: float) -> Placed:
    hover = sin(0.05 * distance)
    pose = Pose(
        heading=1.15, lean=-0.08 + 0.06 * hover, prop="broom", left_leg=(0.3, -1.0), right_leg=(0.6, -0.8),
        left_arm=(0.7, 0.9), right_arm=(0.9, 1.0), eyes="happy",
    )  # fmt: skip
    return 0, -25 + 5 * hover, pose


def _jump(phase: float) -> Placed:
    up = abs(sin(phase / 2))
    arm = 0.4 + 2.0 * up
    pose = Pose(
        heading=0.2, left_arm=(-arm, -arm - 0.5), right_arm=(arm, arm + 0.5), eyes="happy", mouth="open",
        left_leg=(-0.5 * up, 0.4 * up), right_leg=(0.5 * up, -0.4 * up),
    )  # fmt: skip
    return 0, -38 * up, pose


def _wave(phase: float) -> Placed:
    sway = sin(phase)
    pose = Pose(
        heading=0.15, lean=0.08 * sway, nod=0.06 * sway, right_arm=(1.7 + 0.2 * sway, 2.5 + 0.9 * sway), mouth="open"
    )
    return 0, 0, pose


def _dance(phase: float) -> Placed:
    sway, beat = sin(phase), abs(cos(phase))
    left, right = 1.5 - 1.1 * sway, 1.5 + 1.1 * sway
    pose = Pose(
        heading=0.5 * sway, lean=0.16 * sway, nod=-0.16 * sway,
        left_arm=(-left, -left - 0.7), right_arm=(right, right + 0.7),
        left_leg=(0.5 * min(sway, 0), 0.1), right_leg=(0.5 * max(sway, 0), -0.1), eyes="happy",
    )  # fmt: skip
    return 24 * sway, -5 * beat, pose


def _spin(phase: float) -> Placed:
    pose = Pose(heading=(phase + pi) % (2 * pi) - pi, left_arm=(-1.5, -1.7), right_arm=(1.5, 1.7), left_leg=(0.0, -0.9))
    return 12 * sin(phase), -3, pose


def _swing_sword(phase: float) -> Placed:
    chop = 0.5 - 0.5 * cos(phase)
    arm = 2.7 - 1.6 * chop
    pose = Pose(
        heading=0.8, lean=-0.06 + 0.2 * chop, right_arm=(arm, arm + 0.2), left_arm=(-0.5, -0.2), prop="sword",
        swing=0.1 + 1.7 * chop, left_leg=(-0.35, -0.2), right_leg=(0.4, 0.1), mouth="flat",
    )  # fmt: skip
    return -14 + 16 * chop, 0, pose


def _hug(share: float) -> Placed:
    """Go to the other, who comes as far, and embrace; `Cue` knows how far that is."""
    embraced, step = share >= 1, 0.4 * sin(9 * share) * (share < 1)
    arms = ((0.9, 1.5), (1.3, 1.6)) if embraced else ((0.2, 0.4), (0.6, 0.9))
    pose = Pose(
        heading=0.9, left_arm=arms[0], right_arm=arms[1], left_leg=(step, step), right_leg=(-step, -step),
        eyes="happy" if embraced else "open",
    )  # fmt: skip
    return 0, 0, pose


def _fall(share: float) -> Placed:
    flail = sin(3 * pi * share)
    pose = Pose(
        heading=0.4, lean=1.45 * share, eyes="closed" if share > 0.3 else "open", mouth="open",
        left_arm=(-1.4 - 0.4 * flail, -2.0), right_arm=(1.4 + 0.4 * flail, 2.0),
        left_leg=(-0.3 * share, 0.0), right_leg=(0.3 * share, 0.1),
    )  # fmt: skip
    return -45 * min(2 * share, 1.0), -20 * share, pose


def _sit(share: float) -> Placed:
    pose = Pose(
        heading=0.75, crouch=16 * share, left_leg=(1.3 * share, 1.35 * share), right_leg=(1.5 * share, 1.45 * share),
        left_arm=(-0.3, -0.1), right_arm=(0.3 + 0.5 * share, 0.1 + 0.6 * share), eyes="happy" if share >= 1 else "open",
    )  # fmt: skip
    return 0, 0, pose


def _coat_on(share: float) -> Placed:
    """Pull a raincoat over the head."""
    arm = 2.4 - 2.0 * share
    pose = Pose(
        heading=0.1, left_arm=(-arm, -arm - 0.2), right_arm=(arm, arm + 0.2), raincoat=max(share, 0.01), mouth="open"
    )
    return 0, 0, pose


def _coat_off(share: float) -> Placed:
    return _coat_on(1 - share)


def _plant(share: float) -> Placed:
    lifted = 34 * (1 - share)
    angle = -1.15 - 0.022 * lifted
    pose = Pose(heading=-0.5, left_arm=(angle, angle), prop="flag", lifted=lifted, lean=-0.05)
    return 0, 0, pose


PLANT, HUG, COAT_ON, COAT_OFF = "plant a flag", "hug", "put on a raincoat", "take off a raincoat"
MOTIONS: Mapping[str, Motion] = {
    "walk": Motion(_walk, {1: 1.0, 2: 1.9, 3: 3.3, 4: 5.7}, room=(86, 86), period=220),
    "run": Motion(_run, {3: 3.5, 4: 6.0, 5: 10.0}, room=(50, 45), period=2 * pi / 0.12, followed=True),
    "jump": Motion(_jump, {3: 0.25, 4: 0.44, 5: 0.75}),
    "wave": Motion(_wave, {1: 0.16, 2: 0.40, 3: 0.75}),
    "dance": Motion(_dance, {1: 0.045, 2: 0.09, 3: 0.16, 4: 0.27, 5: 0.45}, room=(64, 64)),
    "spin": Motion(_spin, {2: 0.20, 3: 0.40, 4: 0.70}, room=(50, 50)),
    "fall over": Motion(_fall, {4: 0.085, 5: 0.15}, room=(85, 75), once=True),
    "sit down": Motion(_sit, {1: 0.062, 2: 0.125, 3: 0.22}, room=(36, 48), once=True),
    "fly on a broom": Motion(
        _fly, {1: 1.0, 2: 2.0, 3: 4.0, 4: 7.0, 5: 11.5}, room=(86, 56), period=2 * pi / 0.05, followed=True
    ),
    "swing a sword": Motion(_swing_sword, {3: 0.30, 4: 0.54, 5: 1.0}, room=(60, 104)),
    HUG: Motion(_hug, {2: 0.07, 3: 0.125}, once=True),
    PLANT: Motion(_plant, {2: 0.12, 3: 0.23}, room=(76, 40), once=True),
    COAT_ON: Motion(_coat_on, {3: 0.066, 4: 0.115}, room=(46, 46), once=True, coat=True),
    COAT_OFF: Motion(_coat_off, {3: 0.066, 4: 0.115}, room=(46, 46), once=True, coat=False),
}
