"""Writer of clip files: encodes complete clips in a second thread, while the film is decoded."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from av.video.frame import VideoFrame

from pipeline.core.atomic import replacing
from pipeline.core.config import ClipSettings
from pipeline.core.records import Clip, make_clip_id
from pipeline.core.store import FilmFolder
from pipeline.stages.clip_grid import Piece
from pipeline.video.clip_files import write_clip

CLIPS_IN_FLIGHT = 4


class ClipWriter:
    """Encoder of a film's clips in a separate thread, with at most `CLIPS_IN_FLIGHT` clips queued.

    Args:
        film_id: id of the film.
        folder: its folder in the data set.
        settings: the section `clips` of the configuration.
    """

    def __init__(self, film_id: str, folder: Path, settings: ClipSettings) -> None:
        self._film_id, self._folder, self._settings = film_id, FilmFolder(folder), settings
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._in_flight: deque[Future[Clip]] = deque()
        self._clips: list[Clip] = []
        self._index = 0

    def __enter__(self) -> ClipWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, piece: Piece[VideoFrame], scene: int) -> None:
        """Queue a clip; block while the queue is full."""
        while len(self._in_flight) >= CLIPS_IN_FLIGHT:
            self._clips.append(self._in_flight.popleft().result())
        self._in_flight.append(self._pool.submit(self._write, piece, scene, self._index))
        self._index += 1

    def finish(self) -> list[Clip]:
        """Wait for the encoder and return all clips, in the order of the film."""
        self._clips += [future.result() for future in self._in_flight]
        self._in_flight.clear()
        return self._clips

    def _write(self, piece: Piece[VideoFrame], scene: int, index: int) -> Clip:
        settings = self._settings
        clip_id = make_clip_id(self._film_id, piece.start_seconds)
        path = self._folder.clip_path(clip_id)
        with replacing(path) as temporary:
            write_clip(temporary, piece.pictures, settings.fps, settings.crf)
        content = path.read_bytes()
        return Clip(
            clip_id=clip_id,
            film_id=self._film_id,
            scene=scene,
            index=index,
            start_seconds=piece.start_seconds,
            end_seconds=piece.end_seconds,
            fps=settings.fps,
            frames=settings.frames,
            width=settings.width,
            height=settings.height,
            source_frames=piece.source_frames,
            overlap_seconds=piece.overlap_seconds,
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
