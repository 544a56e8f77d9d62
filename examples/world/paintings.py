"""Painted places: backgrounds of anime art with characters pasted over them, by day and by night.

The art comes from two visual novels in Debian's archive, fetched by name and kept in the user's cache.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from platformdirs import user_cache_path

from examples.world.scene import Box, Point, Sprite, Sprites, TimeOfDay
from examples.world.textures import Picture, PictureSize
from pipeline.core.errors import UserError

PACKAGES = ("renpy-thequestion", "renpy-demo")
WIDTH, HEIGHT = 640, 360
WORLD_WIDTH, WORLD_HEIGHT = 1280, 720
"""Size of a painted background; the camera is a box inside it."""
BLACK = "black"


def art_folder() -> Path:
    """Return the folder with the pictures of both packages, fetched with apt if not in the cache."""
    folder = user_cache_path("animegamer", ensure_exists=True) / "renpy"
    if not folder.exists():
        with TemporaryDirectory(dir=folder.parent) as scratch:  # two processes may fetch at once
            unpacked = Path(scratch) / folder.name
            unpacked.mkdir()
            _download(unpacked)
            for package in PACKAGES:
                (archive,) = unpacked.glob(f"{package}_*.deb")
                subprocess.run(["dpkg-deb", "-x", archive.name, "."], cwd=unpacked, check=True)  # noqa: S607
                archive.unlink()
            try:
                unpacked.rename(folder)
            except OSError:
                if not folder.exists():  # else another process was faster
                    raise
    return folder / "usr" / "share" / "games" / "renpy"


def _download(folder: Path) -> None:
    """Fetch both packages with apt-get; its lists may be missing or stale, so they are updated once."""
    commands = (["apt-get", "download", *PACKAGES], ["apt-get", "update"], ["apt-get", "download", *PACKAGES])
    message = ""
    for command in commands:
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        except (FileNotFoundError, subprocess.TimeoutExpired) as error:
            raise UserError(f"anime art needs Debian's apt-get: {error}") from error
        if done.returncode == 0 and command[1] == "download":
            return
        message = done.stderr.strip() or message
    raise UserError(f"`apt-get download {' '.join(PACKAGES)}` failed: {message}")


class Backdrop:
    """Size and camera of a place behind characters of the art."""

    @property
    def size(self) -> PictureSize:
        """Width and height of the film's pictures."""
        return WIDTH, HEIGHT

    @property
    def whole(self) -> Box:
        """Box of the whole background."""
        return 0, 0, WORLD_WIDTH, WORLD_HEIGHT

    def seen_at(self, sprite: Sprite, box: Box) -> Point:
        """Return the position of a character's feet in the picture of a box."""
        left, top, right, bottom = box
        return (sprite.x - left) * WIDTH / (right - left), (sprite.y - top) * HEIGHT / (bottom - top)


@dataclass(frozen=True)
class Painting(Backdrop):
    """Place of the art; a sprite is positioned by its feet."""

    name: str
    night: bool = False

    @property
    def time_of_day(self) -> TimeOfDay | None:
        """Day or night; None in the black place."""
        if self.name == BLACK:
            return None
        return "night" if self.night else "day"

    def picture(self, sprites: Sprites, box: Box) -> Picture:
        """Return the place with characters, as the camera sees it: BGR, HWC uint8.

        Raises:
            UserError: the art cannot be fetched.
        """
        seen_HWC = seen(_image(self.name), sprites, box)
        return np.round(seen_HWC * np.array((0.6, 0.4, 0.35))).astype(np.uint8) if self.night else seen_HWC


def seen(background: Image.Image, sprites: Sprites, box: Box) -> Picture:
    """Return characters of the art before a background, as the camera sees them: BGR, HWC uint8."""
    world = background.copy()
    for sprite in sprites:
        _paste(sprite, world)
    view = world.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR, box=box, reducing_gap=1.0)
    return np.ascontiguousarray(np.asarray(view)[..., ::-1])


def _paste(sprite: Sprite, world: Image.Image) -> None:
    image = _image(sprite.picture)
    image = image.resize((round(image.width * sprite.size), round(image.height * sprite.size)))
    if sprite.mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    world.paste(image, (round(sprite.x) - image.width // 2, round(sprite.y) - image.height), image)


@cache
def _image(name: str) -> Image.Image:
    if name == BLACK:
        return Image.new("RGB", (WORLD_WIDTH, WORLD_HEIGHT))
    (file,) = sorted(art_folder().glob(f"*/game/images/{name}.*"))[:1]
    return Image.open(file).convert("RGBA" if not name.startswith("bg ") else "RGB")
