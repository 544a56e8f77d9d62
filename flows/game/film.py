"""Film of a game for people who look at it elsewhere: enlarged, with captions and crossfades, as MP4 or GIF.

    path = Film(folder, "0020", "mp4", captions=True).make(watch)

Turns that stay in their place fade into each other; a change of place is a cut. One shot is in memory at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Literal

import cv2
import numpy as np

from flows.game.film_captions import FilmCaptions, told
from flows.game.folder import CRF, GameFolder
from flows.game.records import GameError, TurnRecord
from pipeline.core.atomic import replacing
from pipeline.core.records import RecordError
from pipeline.video.clip_files import read_clip, write_clip, write_gif
from pipeline.video.containers import Picture

Kind = Literal["mp4", "gif"]
Watch = Callable[[int, int], None]
"""Callback that gets the number of turns done and of all."""
LEAST_SIZE: dict[Kind, tuple[int, int]] = {"mp4": (576, 384), "gif": (384, 256)}
"""Width and height of the picture at least; shots are enlarged by a whole number."""
GIF_TURNS = 60
"""Most turns of a GIF, the last of the game: GIF takes three quarters of a megabyte a turn."""
FADE_FRAMES = 3
"""Frames at the start of a turn through which the last frame of the turn before still shows."""
USED_SECONDS = 60.0
"""Seconds after which an unused film may be deleted: a more recent request may still be opening it."""


@dataclass(frozen=True)
class Film:
    """Film of a game from its start to a turn."""

    folder: GameFolder
    turn_id: str
    kind: Kind = "mp4"
    captions: bool = False

    @property
    def path(self) -> Path:
        """Path of the film in the game's folder."""
        style = "captions" if self.captions else "plain"
        return self.folder.path / f"film-{self.folder.turn(self.turn_id).id}.{style}.{self.kind}"

    def make(self, watch: Watch) -> Path:
        """Write the film unless it is there, delete those that are no longer in use, and return its path.

        Args:
            watch: an exception from it ends the work, without a film.

        Raises:
            GameError: there is no such turn, or a shot cannot be read.
            DiskError: the film cannot be written.
        """
        path = self.path
        with suppress(OSError):  # if it does not exist yet
            os.utime(path)  # marks the film as in use, so that another request does not delete it
        if not path.exists():
            records = self.folder.path_to(self.turn_id)
            shots, fps = self._shots(records, watch), Fraction(self.folder.settings.fps)
            try:
                with replacing(path) as temporary:
                    if self.kind == "mp4":
                        write_clip(temporary, chain.from_iterable(shots), fps, CRF)
                    else:
                        write_gif(temporary, shots, fps)
            except RecordError as error:
                raise GameError(f"{self.folder.path}, turn {error}; play the game again into another --out") from error
        self._delete_others()
        return path

    def _shots(self, records: Sequence[TurnRecord], watch: Watch) -> Iterator[list[Picture]]:
        """Yield the frames of each turn, BGR."""
        if self.kind == "gif":
            records = records[-GIF_TURNS:]
        captions: FilmCaptions | None = None
        last_HWC: Picture | None = None
        for number, record in enumerate(records):
            watch(number, len(records))
            frames = [enlarged(frame_HWC, self.kind) for frame_HWC in read_clip(self.folder.clip_path(record.id))]
            if last_HWC is not None and self.folder.stays(record):
                frames[:FADE_FRAMES] = faded(last_HWC, frames[:FADE_FRAMES])
            last_HWC = frames[-1]
            if self.captions:
                captions = captions or FilmCaptions([told(each.instruction) for each in records], last_HWC.shape[1])
                below_HWC = captions.picture(told(record.instruction))
                frames = [np.concatenate([frame_HWC, below_HWC]) for frame_HWC in frames]
            yield frames
        watch(len(records), len(records))

    def _delete_others(self) -> None:
        """Delete the folder's films that are no longer in use: the films of a long game would fill the disk."""
        for film in self.folder.path.glob("film-*"):
            with suppress(FileNotFoundError):  # another request deletes them too
                if film != self.path and time.time() - film.stat().st_mtime > USED_SECONDS:
                    film.unlink()


def enlarged(frame_HWC: Picture, kind: Kind) -> Picture:
    """Return a frame at the smallest whole multiple of its size that reaches the least size of the film."""
    height, width = frame_HWC.shape[:2]
    least_width, least_height = LEAST_SIZE[kind]
    times = max(1, -(-least_width // width), -(-least_height // height))
    if times == 1:
        return frame_HWC
    larger_HWC = cv2.resize(frame_HWC, (times * width, times * height), interpolation=cv2.INTER_LANCZOS4)
    return np.asarray(larger_HWC, np.uint8)


def faded(last_HWC: Picture, frames: Sequence[Picture]) -> list[Picture]:
    """Return the first frames of a turn with the last frame of the turn before, which shows less from frame to frame.

    The film keeps its length: no frame is left out.
    """
    shares = [(number + 1) / (len(frames) + 1) for number in range(len(frames))]
    mixed = (cv2.addWeighted(frame, share, last_HWC, 1 - share, 0) for frame, share in zip(frames, shares, strict=True))
    return [np.asarray(each, np.uint8) for each in mixed]
