"""Cast of Big Buck Bunny: reference pictures cut out of the film, a folder per character.

    python -m examples.bunny.cast       prints the folder's path, for `--cast`

The three rodents have the names that the film's makers gave them, and the rabbit and the bird are named by their kind.
The cast has no butterflies, because the film shows several that look the same. The folder is in the cache, next to the
film. Its name contains a hash of the list below, so an older list has another folder.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import av
from PIL import Image

from examples.bunny.film import fetch_bunny
from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError

Box = tuple[int, int, int, int]
"""Left, top, right and lower edge in the film's pixels."""

PORTRAITS: dict[str, tuple[tuple[float, Box], ...]] = {
    "Bird": ((18.6, (420, 140, 720, 620)), (388.0, (825, 215, 1085, 620))),
    "Bunny": ((157.5, (360, 10, 840, 640)), (473.3, (0, 20, 830, 720))),
    "Frank": ((119.9, (20, 150, 500, 715)), (379.2, (310, 150, 600, 610)), (401.0, (380, 100, 890, 600))),
    "Gimera": ((118.2, (595, 180, 955, 635)), (149.4, (765, 300, 990, 570))),
    "Rinky": ((216.8, (395, 170, 790, 716)), (335.0, (20, 0, 1280, 720))),
}
"""Moments of the film in seconds, and the part of the picture that shows the character, upright and alone."""


def fetch_cast() -> Path:
    """Return the folder of the pictures, cut out of the film if they are not in the cache."""
    film = fetch_bunny()
    folder = film.with_name(f"big_buck_bunny_cast_{hashlib.sha256(repr(PORTRAITS).encode()).hexdigest()[:8]}")
    for name, portraits in PORTRAITS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, (seconds, box) in enumerate(portraits, start=1):
            path = folder / name / f"{number}.png"
            if not path.exists():
                with replacing(path) as temporary:
                    frame_at(film, seconds).crop(box).save(temporary, format="PNG")
    return folder


def frame_at(film: Path, seconds: float) -> Image.Image:
    """Return the first frame of a film from this time on."""
    with av.open(str(film)) as source:
        stream = source.streams.video[0]
        assert stream.time_base is not None
        source.seek(int(seconds / stream.time_base), stream=stream)
        for frame in source.decode(stream):
            if frame.time is not None and frame.time >= seconds:
                return Image.fromarray(frame.to_ndarray(format="rgb24"))
    raise UserError(f"{film} ends before {seconds} s; remove it to fetch it again")


def main() -> None:
    """Print the path of the folder."""
    try:
        print(fetch_cast())
    except UserError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
