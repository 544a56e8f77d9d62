"""Composed film: scenes concatenated as pictures, or as a video file with exact ground truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from examples.world.scene import Scene, mix_at, mixed
from examples.world.textures import Picture
from examples.world.truth import Truth, truth_about
from examples.world.writer import write_film

FPS = Fraction(24)


def compose_film(path: Path, scenes: Sequence[Scene]) -> Truth:
    """Write a film to `path` (MP4, H.264) and return its truth. The same scenes give the same film.

    Raises:
        UserError: a place is a painting, and the art is neither in the cache nor can it be fetched.
    """
    options = {"crf": "20", "preset": "superfast", "threads": "1"}
    write_film(path, pictures_of(scenes), fps=FPS, channels="rgb24", options=options)
    return truth_about(scenes, FPS)


def pictures_of(scenes: Sequence[Scene]) -> Iterator[Picture]:
    """Yield every frame of the film, BGR, HWC uint8, read-only."""
    for number, scene in enumerate(scenes):
        for frame in range(scene.length):
            picture_HWC = scene.picture(frame)
            if mix := mix_at(scenes, number, frame):
                other_HWC = scenes[mix.scene].picture(mix.frame)
                old_HWC, new_HWC = (other_HWC, picture_HWC) if mix.scene < number else (picture_HWC, other_HWC)
                picture_HWC = mixed(old_HWC, new_HWC, mix.share, mix.kind)
            yield picture_HWC
