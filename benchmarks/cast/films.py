"""Films with known characters, as clips of three pictures: Big Buck Bunny, the drawn world, and a composed cast.

Drawn films are not encoded: their clips are taken from the drawings, two seconds each, as the pipeline would cut them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from random import Random

import av
import numpy as np

from examples.bunny.film import FILM_SECONDS, fetch_bunny
from examples.miniature.dataset import films_of
from examples.world.characters import CAST, Character, Pose
from examples.world.film import FPS
from examples.world.puppets import Puppet
from examples.world.scene import Scene
from examples.world.scene_changes import scene_changes
from examples.world.scenery import GROUND, HEIGHT, PLACES, WIDTH, Scenery
from examples.world.textures import Picture
from pipeline.core.records import Clip
from pipeline.core.store import Dataset, FilmFolder
from pipeline.reviews.carry import Reviewed
from pipeline.reviews.decisions import Value, read_decisions
from pipeline.stages.embed import PICTURES
from pipeline.video.clip_files import read_clip_in_part

LABELS = Path(__file__).parents[2] / "examples/bunny/labels.jsonl"
HALF_SECONDS = FILM_SECONDS / 2
"""End of the training half of Big Buck Bunny; the rest is held out."""
_LENGTH = int(2 * FPS)
_COLOURS = 40, 250
_FARTHEST = 0.5


@dataclass(frozen=True)
class FilmClips:
    """Clips of a film, in time order."""

    name: str
    pictures: tuple[tuple[Picture, ...], ...]
    truth: tuple[Reviewed, ...]
    scenes: tuple[int, ...]
    seconds: tuple[float, ...]
    """Time of the middle of each clip."""

    def part(self, name: str, is_in: Callable[[float], bool]) -> FilmClips:
        """Return the clips whose time fulfils a condition."""
        rows = [row for row, seconds in enumerate(self.seconds) if is_in(seconds)]
        chosen = (tuple(each[row] for row in rows) for each in (self.pictures, self.truth, self.scenes, self.seconds))
        return FilmClips(name, *chosen)  # type: ignore[arg-type]


def bunny(dataset: Dataset) -> FilmClips:
    """Return the labelled spans of a built dataset, read by time, so that another cut changes little.

    Each picture is the frame of a clip that is nearest to its time, at most half a second away. Spans without such
    frames, and those that overlap the span before, are left out.
    """
    (folder,) = dataset.folders()
    clips = folder.read("clips", Clip)
    pictures, truth, scenes, seconds, last = [], [], [], [], 0.0
    for (start, end), fields in sorted(labels().items()):
        times = [start + (2 * number + 1) * (end - start) / (2 * PICTURES) for number in range(PICTURES)]
        near = [min(clips, key=lambda clip: _apart(clip, time)) for time in times]
        if start < last or any(_apart(*each) > _FARTHEST for each in zip(near, times, strict=True)):
            continue
        last = end
        pictures.append(tuple(_picture(folder, *each) for each in zip(near, times, strict=True)))
        actor = fields["actor"]
        truth.append(Reviewed(tuple(fields["characters"]), actor if isinstance(actor, str) else None))  # type: ignore[arg-type]
        scenes.append(near[PICTURES // 2].scene)
        seconds.append((start + end) / 2)
    return FilmClips("bunny", tuple(pictures), tuple(truth), tuple(scenes), tuple(seconds))


def labels() -> dict[tuple[float, float], dict[str, Value]]:
    """Return the labelled fields of Big Buck Bunny by their spans."""
    found: dict[tuple[float, float], dict[str, Value]] = {}
    for line in read_decisions(LABELS).decisions:
        found.setdefault((line.start_seconds, line.end_seconds), {})[line.field] = line.value
    return found


def _apart(clip: Clip, time: float) -> float:
    return max(clip.start_seconds - time, time - clip.end_seconds, 0.0)


def _picture(folder: FilmFolder, clip: Clip, time: float) -> Picture:
    frame = min(max(int((time - clip.start_seconds) * clip.fps), 0), clip.frames - 1)
    picture: Picture = read_clip_in_part(folder.clip_path(clip.clip_id), lambda _: [frame])[1][0]
    return picture


def drawn_world() -> FilmClips:
    """Return a film of the drawn world that no network saw: seven stories."""
    (film,) = films_of("cast", 1)
    scenes = [scene.drawn(str(number)) for number, scene in enumerate(film.scenes)]
    truth = [Reviewed(tuple(sorted(scene.characters)), scene.cue.actor) for scene in film.scenes]
    return _clips("world", scenes, truth)


def composed_cast(seed: int = 7) -> FilmClips:
    """Return a composed film: anime figures before painted backgrounds, the art of two visual novels."""
    scenes = scene_changes(seed)[:110]
    return _clips("composed", scenes, [Reviewed(tuple(sorted(set(scene.characters))), None) for scene in scenes])


def _clips(name: str, scenes: Sequence[Scene], truth: Sequence[Reviewed]) -> FilmClips:
    starts = [0, *accumulate(scene.length for scene in scenes)]
    pictures, said, numbers, seconds = [], [], [], []
    for number, (scene, each, start) in enumerate(zip(scenes, truth, starts[:-1], strict=True)):
        for first in range(0, scene.length - _LENGTH + 1, _LENGTH):
            frames = [first + (2 * at + 1) * _LENGTH // (2 * PICTURES) for at in range(PICTURES)]
            pictures.append(tuple(scene.picture(frame) for frame in frames))
            said.append(each)
            numbers.append(number)
            seconds.append(float((start + first + _LENGTH / 2) / FPS))
    return FilmClips(name, tuple(pictures), tuple(said), tuple(numbers), tuple(seconds))


def training_half(per_second: int) -> Iterator[Picture]:
    """Yield pictures of the first half of Big Buck Bunny, BGR."""
    shown = 0
    with av.open(str(fetch_bunny())) as film:
        for frame in film.decode(video=0):
            assert frame.time is not None
            if frame.time >= HALF_SECONDS:
                return
            if frame.time >= shown / per_second:
                shown += 1
                picture_HWC = frame.reformat(width=WIDTH, height=HEIGHT, format="bgr24", interpolation="AREA")
                yield np.asarray(picture_HWC.to_ndarray(), np.uint8)


def drawn_figures(casts: int, pictures: int, seed: int = 0) -> Iterator[Picture]:
    """Yield drawings of random figures, alone, each at several places."""
    dice = Random(seed)
    for _ in range(casts):
        look = _look(dice)
        for _ in range(pictures):
            place = Scenery(dice.choice(sorted(PLACES)), (("it", look),), night=dice.random() < 0.2)
            pose = Pose(
                heading=dice.uniform(-2, 2),
                left_arm=(dice.uniform(-2, 0), dice.uniform(-1, 1)),
                right_arm=(dice.uniform(0, 2), dice.uniform(-1, 1)),
            )
            width = WIDTH * dice.uniform(0.45, 1)
            x = dice.uniform(60, WIDTH - 60)
            left = min(max(x - width * dice.uniform(0.3, 0.7), 0), WIDTH - width)
            high = HEIGHT * width / WIDTH
            top = dice.uniform(0, HEIGHT - high) if high > 0.7 * HEIGHT else HEIGHT - high - dice.uniform(0, 30)
            yield place.picture((Puppet("it", "it", x, GROUND, pose=pose),), (left, top, left + width, top + high))


def _look(dice: Random) -> Character:
    hair, eyes, top, bottom, accent = (_colour(dice) for _ in range(5))
    any_look = dice.choice(list(CAST.values()))
    return replace(
        any_look, hair_colour=hair, eyes=eyes, top=top, bottom=bottom, accent=accent, skirt=dice.random() < 0.5
    )


def _colour(dice: Random) -> tuple[int, int, int]:
    return dice.randint(*_COLOURS), dice.randint(*_COLOURS), dice.randint(*_COLOURS)
