"""Film of scene changes for measuring scene detection: every kind of transition, and similar pictures without one.

The film has cuts, dissolves of 0.2 to 2.5 seconds, fades, wipes and irises. Some cuts and dissolves are between places
of similar layout, and some dissolves change only the figures. Between the transitions are drawings held on ones, twos
and threes, wild poses, pans, zooms, white flashes and changing light.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from examples.world.acting import SPRITES, closer, fight, pan, posed, stand, talk, walk, zoom
from examples.world.landscapes import Landscape
from examples.world.paintings import BLACK, WORLD_HEIGHT, WORLD_WIDTH, Painting
from examples.world.scene import Box, Draw, Light, Look, Place, Scene, Sprites, TransitionKind

PAINTINGS = ("bg cave", "bg club", "bg lecturehall", "bg meadow", "bg uni", "bg washington", "bg whitehouse")
PANORAMA_WIDTH = 5842
DISSOLVE_FRAMES = (4, 8, 12, 20, 28, 38, 48, 60)
"""Mixed frames of the dissolves, in equal numbers; 24 frames a second."""
STAY_FRAMES = 60, 156
"""Fewest and most frames of a scene outside of its transitions."""
BLACK_FRAMES = 30
ACTIONS = ("still", "talk", "walk", "wild", "pan", "zoom", "flash", "light")
COUNTS = {
    "cut": 20,
    "match cut": 20,
    "dissolve": 16,
    "like dissolve": 16,
    "figure dissolve": 16,
    "fade": 6,
    "wipe": 8,
    "iris": 4,
}
"""Groups of scenes in a film, by the transition inside of each; plain cuts join the groups."""


def short_film() -> tuple[Scene, ...]:
    """Return the scenes, half a minute in all."""
    lecture_hall, club = Painting("bg lecturehall"), Painting("bg club")
    panorama = (300, 0, 300 + WORLD_WIDTH, WORLD_HEIGHT)
    return (
        Scene("lecture", 72, lecture_hall, talk(("sylvie", 560)), movement="talks"),
        Scene("answer", 48, lecture_hall, talk(("lucy", 760)), movement="talks"),
        Scene("walk", 72, Painting("bg uni"), walk("eileen", 200, 24), 2, "walks"),
        Scene("pan", 48, Painting("bg panorama"), frames_per_drawing=1, camera="pan", look=pan(panorama, 64)),
        Scene("zoom", 48, club, stand("sylvie in blue", 700), 1, camera="zoom",
              look=zoom(club.whole, 700, 200, 1, 2, 48)),
        Scene("flash", 60, Painting("bg whitehouse"), talk(("lucy", 640)), movement="talks",
              flashes=((14, 1), (30, 2), (44, 3))),
        Scene("meadow", 72, Painting("bg meadow"), talk(("sylvie in blue", 400)), movement="talks",
              opened_by="dissolve", opening_frames=12),
        Scene("fight", 72, Painting("bg club", night=True), fight("eileen", "lucy"), 2, "fights"),
        Scene("evening", 60, Painting("bg uni", night=True), stand("sylvie", 640)),
        Scene("black", 26, Painting(BLACK), frames_per_drawing=1, opened_by="fade", opening_frames=16),
        Scene("morning", 76, lecture_hall, talk(("eileen", 420), ("sylvie", 820)), movement="talks",
              opened_by="fade", opening_frames=16),
        Scene("close-up", 48, lecture_hall, talk(("sylvie", 820)), movement="talks",
              look=zoom(lecture_hall.whole, 820, 200, 2, 2, 48)),
    )  # fmt: skip


def scene_changes(seed: int) -> list[Scene]:
    """Return the scenes of a film, some 16 minutes; a seed gives its places, figures, actions, lengths, order."""
    director = _Director(Random(seed))
    groups = [director.group(kind, number) for kind, count in COUNTS.items() for number in range(count)]
    director.dice.shuffle(groups)
    scenes = [scene for group in groups for scene in group]
    return [replace(scene, name=f"{number} {scene.name}") for number, scene in enumerate(scenes)]


@dataclass(frozen=True)
class _Director:
    """Random choices of places, figures and actions."""

    dice: Random

    def group(self, kind: str, number: int) -> list[Scene]:
        """Return the scenes around one transition, or two for a fade or iris through black."""
        frames = DISSOLVE_FRAMES[number % len(DISSOLVE_FRAMES)]
        match kind:
            case "cut":
                return [self._scene(self._place())]
            case "match cut":
                return self._pair(*self._like_places(), "cut", 0)
            case "dissolve":
                return self._pair(self._place(), self._place(), "dissolve", frames)
            case "like dissolve":
                return self._pair(*self._like_places(), "dissolve", frames)
            case "figure dissolve":
                return self._figures(frames)
            case "wipe":
                return self._pair(self._place(), self._place(), "wipe", 2 * self.dice.randint(4, 14))
            case "fade":
                return self._through_black("fade", "fade")
        return self._through_black("iris-out", "iris-in")

    def _pair(self, old: Place, new: Place, kind: TransitionKind, frames: int) -> list[Scene]:
        first = self._scene(old, after=frames)
        return [first, self._scene(new, before=frames, opened_by=kind, opening_frames=frames)]

    def _through_black(self, closing: TransitionKind, opening: TransitionKind) -> list[Scene]:
        frames = 2 * self.dice.randint(4, 14)
        black = Scene("black", BLACK_FRAMES + frames, Painting(BLACK), opened_by=closing, opening_frames=frames)
        old = self._scene(self._place(), after=frames)
        return [old, black, self._scene(self._place(), before=frames, opened_by=opening, opening_frames=frames)]

    def _figures(self, frames: int) -> list[Scene]:
        """Two scenes of one place and camera: other figures, or none in the second."""
        place, held = self._place(), self.dice.choice((2, 3))
        box = closer(place.whole, WORLD_WIDTH / 2, WORLD_HEIGHT / 2, self.dice.uniform(1, 1.3))
        (old, new), (x, other_x) = self.dice.sample(list(SPRITES), 2), self.dice.sample(range(300, 1000), 2)
        draws: list[Draw] = [talk((old, x)), talk((new, other_x)) if self.dice.random() < 0.5 else lambda _: ()]
        lengths = [self._stay() + frames // 2 for _ in draws]
        first, second = (
            Scene("figures", length, place, draw, held, look=lambda _: box)
            for length, draw in zip(lengths, draws, strict=True)
        )
        return [first, replace(second, opened_by="dissolve", opening_frames=frames)]

    def _scene(self, place: Place, before: int = 0, after: int = 0, **opening: Any) -> Scene:
        """Scene of a random action, with room for the transitions before and after."""
        action, length = self.dice.choice(ACTIONS), self._stay() + before // 2 + after // 2
        if action == "pan" and isinstance(place, Painting):
            return Scene(
                "pan", length, Painting("bg panorama"), frames_per_drawing=1, look=self._sweep(length), **opening
            )
        held = self.dice.choice((1, 2, 3)) if action in ("pan", "zoom") else self.dice.choice((2, 3))
        look, draw = self._look(place, action, length, held), self._draw(action)
        flashes = ((before + self.dice.randint(8, 40), self.dice.randint(1, 3)),) if action == "flash" else ()
        light = self._light() if action == "light" else None
        return Scene(action, length, place, draw, held, look=look, flashes=flashes, light=light, **opening)

    def _stay(self) -> int:
        return self.dice.randint(*STAY_FRAMES)

    def _place(self) -> Place:
        if self.dice.random() < 0.5:
            return Landscape(self.dice.randrange(10**6), 0)
        return Painting(self.dice.choice(PAINTINGS), night=self.dice.random() < 0.3)

    def _like_places(self) -> tuple[Landscape, Landscape]:
        layout = self.dice.randrange(10**6)
        return Landscape(layout, 1), Landscape(layout, 2)

    def _draw(self, action: str) -> Draw:
        one, two = self.dice.sample(list(SPRITES), 2)
        x, size, offset = self.dice.randint(250, 1030), self.dice.uniform(0.7, 1.5), self.dice.randrange(1000)
        if action == "walk":
            return walk(one, self.dice.choice((-200, 100)), self.dice.randint(12, 40))
        if action == "wild":
            return lambda drawing: fight(one, two)(drawing + offset)
        if action == "talk":
            return talk((one, x), (two, (x + 500) % WORLD_WIDTH))
        figures: Sprites = (posed(one, 0, x, WORLD_HEIGHT + 60, size),) if self.dice.random() < 0.7 else ()
        return lambda _: figures

    def _look(self, place: Place, action: str, length: int, held: int) -> Look:
        x, y = self.dice.randrange(WORLD_WIDTH), self.dice.randrange(WORLD_HEIGHT)
        if action == "zoom":
            start, end = self.dice.sample((1.0, 1.4, 2.0, 2.6), 2)
            return _inside(zoom(place.whole, x, y, start, end, length), length, held)
        if action == "wild":
            return lambda _: place.whole  # closer up, the leaping figures would be the whole picture
        box = closer(place.whole, x, y, self.dice.uniform(1, 2.2))
        if action == "pan":
            other = closer(place.whole, WORLD_WIDTH - x, WORLD_HEIGHT - y, WORLD_WIDTH / (box[2] - box[0]))
            return _inside(pan(box, (other[0] - box[0]) / length, (other[1] - box[1]) / length), length, held)
        return lambda _: box

    def _sweep(self, length: int) -> Look:
        """Fast pan over the panorama: 4 to 40 pixels of the place a frame."""
        room = PANORAMA_WIDTH - WORLD_WIDTH
        step = min(self.dice.uniform(4, 40), room / length)
        start = self.dice.uniform(0, room - step * length)
        return _inside(pan((start, 0, start + WORLD_WIDTH, WORLD_HEIGHT), step), length, 1)

    def _light(self) -> Light:
        """Light that changes within the scene, in a tenth to one and a half seconds, and stays."""
        start, frames, end = self.dice.randint(16, 30), self.dice.randint(3, 36), self.dice.choice((0.45, 0.6, 1.3))
        return lambda frame: 1 + (end - 1) * min(max((frame - start) / frames, 0), 1)


def _inside(look: Look, length: int, held: int) -> Look:
    """Camera that moves with the drawings, but stands still during the transitions around the scene."""

    def box(frame: int) -> Box:
        drawn = frame // held * held
        return look(min(max(drawn, 0), length - 1))

    return box
