"""Single decode of a film into scenes, damage, and clips as small video files.

Telecine and interlace are undone on the way (`fields.py`). Every frame goes to the scene finder as a small picture. A
frame is passed to its scene's clip grid only once no cut can fall on it any more, and only the frames chosen by the
grid are scaled to clip size. A clip is encoded in a second thread as soon as it is complete, so memory use does not
depend on the length of a scene. Everything runs in a child process.

A scene has one crop of the film. If the borders change inside a scene, it ends there and another one begins: clips of
both would show bars or lose picture, and their common part would zoom in.

A clip that begins in a fade, or that the second look takes for two scenes, gives way to a later one of its scene. A
scene that is too short for a clip between its margins is used up to its ends.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from av.video.frame import VideoFrame

from pipeline.core.atomic import replacing
from pipeline.core.config import ClipSettings, SceneSettings, SelectionSettings
from pipeline.core.progress import Progress
from pipeline.core.records import (
    Clip,
    Crop,
    Damage,
    FieldStretch,
    Film,
    HashedPicture,
    RecordError,
    Scene,
    make_clip_id,
)
from pipeline.core.store import FilmFolder
from pipeline.stages.cutting.clip_grid import ClipGrid, Piece
from pipeline.stages.cutting.film_hashes import FilmHasher
from pipeline.stages.cutting.scenes import Boundary, SceneFinder
from pipeline.stages.two_groups import second_look, small_gray
from pipeline.video.clip_files import in_gray, write_clip
from pipeline.video.fields import FieldRestorer, Treatment
from pipeline.video.film_reader import FilmReader, Frame
from pipeline.video.scaling import Geometry, Scaler, crop_at

RAW_BYTES = 512 * 2**20
"""Memory limit for decoded pictures whose scene is not final; older pictures are scaled early, needed or not. Enough
for every waiting frame of 1080p, so early scaling costs time only in larger films."""
TWO_SCENES = SelectionSettings().max_two_groups
"""Value of the second look above which another start is tried, whatever the selection of this build."""
FADED = 0.5
"""Contrast of the first picture of a clip, as a share of its median contrast, below which it begins in a fade."""
SNAP_SECONDS = 0.1
"""Greatest distance of a change of the borders from the start of a scene at which both are one change."""
CLIPS_IN_FLIGHT = 4
"""Largest number of complete clips that wait for the encoder."""


@dataclass(frozen=True)
class CutJob:
    """Input of the child process."""

    film: Film
    crops: tuple[Crop, ...]
    """Crops of the film, in order of time."""
    folder: Path
    end_seconds: float | None
    scenes: SceneSettings
    clips: ClipSettings
    threads: int
    fields: Treatment = "auto"


@dataclass(frozen=True)
class CutResult:
    """Result of one pass over the film; scenes and damage tile it without gaps."""

    scenes: list[Scene]
    damage: list[Damage]
    clips: list[Clip]
    fields: list[FieldStretch]
    hashes: list[HashedPicture]


def cut_film(job: CutJob, progress: Progress) -> CutResult:
    """Read the film once, in this process. Raises RecordError as the stage does."""
    film_id, restorer = job.film.film_id, FieldRestorer(job.fields, job.film.film_id)
    end_seconds = job.film.used_seconds(job.end_seconds)
    with (
        FilmReader(Path(job.film.source), job.threads) as reader,
        ClipWriter(job.film.film_id, job.folder, job.clips) as writer,
    ):
        chopper = _Chopper(job, writer)
        for frame in restorer.frames(reader.frames(job.end_seconds)):
            chopper.add(frame, reader.damage)
            progress(frame.seconds, end_seconds)
        chopper.finish(reader.end_seconds, reader.damage)
        if not chopper.scenes:
            raise RecordError(film_id, "not one frame of it can be decoded")
        damage = [
            Damage(film_id=film_id, start_seconds=start, end_seconds=end, reason=reason)
            for start, end, reason in reader.damage
        ]
        return CutResult(chopper.scenes, damage, writer.finish(), restorer.stretches, chopper.hasher.finish())


class _Waiting:
    """A decoded frame whose scene is not final yet."""

    def __init__(self, frame: Frame) -> None:
        self.ordinal, self.seconds = frame.ordinal, frame.seconds
        self._raw: VideoFrame | None = frame.picture
        self._scaled: VideoFrame | None = None

    def scaled(self, scaler: Scaler) -> VideoFrame:
        """Return the picture at clip size, and release the decoded one."""
        if self._scaled is None:
            assert self._raw is not None
            self._scaled, self._raw = scaler(self._raw), None
        return self._scaled


class _Chopper:
    """Splitter of the film, frame by frame: finds scenes and passes complete clips to the writer."""

    def __init__(self, job: CutJob, writer: ClipWriter) -> None:
        self._job, self._writer = job, writer
        whole, size, fit = Geometry.around(job.film, job.crops), (job.clips.width, job.clips.height), job.clips.fit
        small, transfer = whole.size_for_width(job.scenes.detect_width), job.film.transfer
        self._to_small = Scaler(whole, small, "stretch", "detect", transfer)
        self.hasher = FilmHasher(job.crops, whole)
        self._to_clip = {
            crop.start_seconds: Scaler(Geometry.of(job.film, crop), size, fit, "clip", transfer) for crop in job.crops
        }
        self._scaler: Scaler | None = None
        """Scaler of the current scene; None before its first clean frame."""
        frame_bytes = max(1, job.film.width * job.film.height * 3 // 2 * (2 if job.film.bit_depth > 8 else 1))
        self._raw_frames = max(2, RAW_BYTES // frame_bytes)
        self._margin = job.clips.margin_frames
        self._waiting: deque[_Waiting] = deque()
        self._damages = 0
        self._next_ordinal = 0
        self.scenes: list[Scene] = []
        self._open(0, 0.0, "start", clean_from=0)
        self._finder = SceneFinder(job.scenes, float(job.film.fps))

    def add(self, frame: Frame, damage: list[tuple[float, float, str]]) -> None:
        """Take the next frame; `damage` holds all damage found so far, which may lie after this frame."""
        # 1. Behind damage the film starts again: end the scene before it, and forget what the finder has seen.
        if len(damage) > self._damages and damage[self._damages][1] <= frame.seconds:
            self._break_off(damage[self._damages][0])
            self._open(frame.ordinal, damage[self._damages][1], "damage", clean_from=frame.ordinal)
            self._damages += 1
            self._finder = SceneFinder(self._job.scenes, float(self._job.film.fps))
        # 2. Show the finder a small picture, and keep the frame until no boundary can fall on it any more.
        small_HWC = self._to_small(frame.picture).to_ndarray()
        self.hasher.add(frame.seconds, small_HWC)
        self._waiting.append(_Waiting(frame))
        self._next_ordinal = frame.ordinal + 1
        # 3. Close the scenes that end by now, and hand the frames whose scene is final to its grid.
        for cut in self._finder.add(frame.ordinal, frame.seconds, small_HWC):
            self._cut(cut)
        self._release(frame.ordinal - self._finder.lag)
        # 4. Bound the memory: of large pictures, scale the oldest before it is known whether a clip needs them.
        if len(self._waiting) > self._raw_frames:
            early = self._waiting[-self._raw_frames - 1]
            early.scaled(self._scaler_at(early.seconds + SNAP_SECONDS))

    def finish(self, end_seconds: float, damage: list[tuple[float, float, str]]) -> None:
        """End the film: close the last scene."""
        self._break_off(damage[self._damages][0] if len(damage) > self._damages else end_seconds)

    def _open(self, ordinal: int, seconds: float, opened_by: str, clean_from: int) -> None:
        self._start = (ordinal, seconds, opened_by)
        self._clean_from, self._scaler = clean_from, None
        self._grid, self._to_the_ends = self._new_grid(self._is_one_scene), self._new_grid()
        self._is_short = self._margin > 0
        """True as long as the scene has no clip between its margins."""
        self._pieces: list[Piece[VideoFrame]] = []
        """Clips that reach to the ends of a short scene."""

    def _new_grid(
        self, is_clean: Callable[[Sequence[VideoFrame]], bool] = lambda _: True
    ) -> ClipGrid[_Waiting, VideoFrame]:
        return ClipGrid(self._job.clips, self._scaled, is_clean)

    def _scaled(self, frame: _Waiting) -> VideoFrame:
        return frame.scaled(self._scaler or self._scaler_at(frame.seconds))

    def _scaler_at(self, seconds: float) -> Scaler:
        return self._to_clip[crop_at(self._job.crops, seconds).start_seconds]

    def _is_one_scene(self, pictures: Sequence[VideoFrame]) -> bool:
        small_THW = small_gray(in_gray(pictures))
        contrast_T = small_THW.std(axis=(1, 2))
        is_faded = contrast_T[0] < FADED * np.median(contrast_T)
        return not is_faded and second_look(small_THW, self._job.clips.fps) <= TWO_SCENES

    def _cut(self, boundary: Boundary) -> None:
        self._close(boundary.last_clean_before, boundary.frame, boundary.seconds)
        self._open(boundary.frame, boundary.seconds, boundary.kind, clean_from=boundary.first_clean_after)

    def _break_off(self, end_seconds: float) -> None:
        for cut in self._finder.finish():
            self._cut(cut)
        self._close(self._next_ordinal - 1, self._next_ordinal, end_seconds)
        self._waiting.clear()

    def _close(self, last_clean: int, end_frame: int, end_seconds: float) -> None:
        """End the current scene before `end_frame`."""
        self._release(last_clean)
        clean_end = self._waiting[0].seconds if self._waiting else end_seconds
        self._write(self._grid.finish(clean_end))
        if self._is_short:
            self._use_to_the_ends(last_clean, end_seconds)
        ordinal, seconds, opened_by = self._start
        if end_frame > ordinal:
            self.scenes.append(
                Scene(
                    film_id=self._job.film.film_id,
                    scene=len(self.scenes),
                    start_seconds=seconds,
                    end_seconds=end_seconds,
                    start_frame=ordinal,
                    end_frame=end_frame,
                    opened_by=opened_by,
                )
            )

    def _release(self, last_clean: int) -> None:
        """Pass the frames up to a margin before `last_clean` to the grid: their scene is final."""
        while self._waiting and self._waiting[0].ordinal <= last_clean - self._margin:
            self._choose_crop(self._waiting[0])
            frame = self._waiting.popleft()
            if frame.ordinal >= self._clean_from and self._is_short:
                self._pieces += self._to_the_ends.add(frame)
            if frame.ordinal >= self._clean_from + self._margin:
                self._write(self._grid.add(frame))

    def _choose_crop(self, frame: _Waiting) -> None:
        """Give the scene its crop at the first clean frame, and end it before a frame with another crop."""
        if frame.ordinal < self._clean_from:
            return
        here, soon = self._scaler_at(frame.seconds), self._scaler_at(frame.seconds + SNAP_SECONDS)
        if self._scaler is not None and self._scaler not in (here, soon):
            self._close(frame.ordinal - 1, frame.ordinal, frame.seconds)
            self._open(frame.ordinal, frame.seconds, "borders", clean_from=frame.ordinal)
        self._scaler = self._scaler or soon

    def _use_to_the_ends(self, last_clean: int, end_seconds: float) -> None:
        """Write the clips of a scene that has none between its margins."""
        margin = [frame for frame in self._waiting if frame.ordinal <= last_clean]
        clean_end = self._waiting[len(margin)].seconds if len(self._waiting) > len(margin) else end_seconds
        pieces = [
            piece for frame in margin if frame.ordinal >= self._clean_from for piece in self._to_the_ends.add(frame)
        ]
        self._write([*self._pieces, *pieces, *self._to_the_ends.finish(clean_end)])

    def _write(self, pieces: Iterable[Piece[VideoFrame]]) -> None:
        for piece in pieces:
            self._is_short = False
            self._writer.add(piece, scene=len(self.scenes))


class ClipWriter:
    """Encoder of a film's clips in a separate thread, with at most `CLIPS_IN_FLIGHT` clips queued."""

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
