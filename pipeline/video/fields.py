"""Removal of telecine and interlace from video, one stretch of the film at a time.

    restored = FieldRestorer("auto", film_id)
    for frame in restored.frames(reader.frames()):
        ...
    restored.stretches   # tiles of the film: progressive, telecine, interlaced

The kind of each frame is found from its picture, never from flags, a few frames behind the one decode of the film
(`cadence.py`). So a film may change between kinds anywhere; clean film is only sampled. We do not use FFmpeg's
`fieldmatch` and `decimate`: `decimate` always drops one frame of five, and neither can be switched on or off without
losing frames. Once the phase of each frame is known, matching only means weaving lines. Progressive frames do not
change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

import av
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from pipeline.core.records import FieldKind, FieldStretch, RecordError
from pipeline.video.cadence import LONE, PROGRESSIVE, SHIFTED, CadenceWatch, State, WatchedFrame
from pipeline.video.colour import matrix_of
from pipeline.video.combs import top_field_first
from pipeline.video.film_reader import Frame

Treatment = Literal["auto", "keep", "refuse"]

TALLEST = 1152
"""Lines. No taller format is interlaced, so taller films are not looked at."""
SHORTEST = 32
"""Lines. In fewer there is too little to see."""
SHORT_SECONDS = 1.0
"""Progressive stretches shorter than this count as part of their neighbours in the list of stretches."""


class FieldRestorer:
    """Restorer of the film frames of one film.

    Args:
        treatment: `auto` undoes telecine and interlace, `keep` passes every frame, and `refuse` raises an error at the
            first frame that is not progressive.
        film_id: the film, for the error.
    """

    def __init__(self, treatment: Treatment, film_id: str) -> None:
        self._treatment, self._film_id = treatment, film_id
        self._watch = CadenceWatch(may_sample=True)
        self._undecided: deque[WatchedFrame] = deque()
        self._last: Frame | None = None
        self._before: tuple[Frame, State] | None = None
        self._deinterlacer: _Deinterlacer | None = None
        self._removed = 0
        self._looked = False
        self._noted: list[_Stretch] = []

    def frames(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Yield the film frames. Ordinals count film frames; times stay on the axis of the file's.

        Raises:
            RecordError: a frame is not progressive and the treatment is `refuse`.
        """
        if self._treatment == "keep":
            yield from frames
            return
        for frame in frames:
            if self._breaks(frame):
                yield from self._finish()
                self._skip(frame)
            self._last = frame
            if not SHORTEST <= frame.picture.height <= TALLEST:
                yield from self._restore(frame, PROGRESSIVE)
                continue
            self._looked = True
            self._undecided.append(WatchedFrame(frame))
            state = self._watch.add(self._undecided[-1])
            if state is not None:
                yield from self._next(state)
        yield from self._finish()

    @property
    def stretches(self) -> list[FieldStretch]:
        """Stretches so far, in order, without gaps; empty if no picture was looked at."""
        if not self._looked:
            return []
        joined: list[_Stretch] = []
        for stretch in self._noted:
            short = stretch.kind == "progressive" and stretch.end_seconds - stretch.start_seconds < SHORT_SECONDS
            if joined and (short or stretch.kind == joined[-1].kind):
                joined[-1].end_seconds = stretch.end_seconds
            else:
                joined.append(replace(stretch))
        if len(joined) > 1 and joined[0].kind == "progressive" and joined[0].end_seconds < SHORT_SECONDS:
            joined[:2] = [replace(joined[1], start_seconds=joined[0].start_seconds)]
        return [FieldStretch(film_id=self._film_id, **vars(stretch)) for stretch in joined]

    def _breaks(self, frame: Frame) -> bool:
        """Return True if frames are missing before this one, or its picture is of another size or format."""
        if self._last is None:
            return False
        old, new = self._last.picture, frame.picture
        same = (old.width, old.height, old.format.name) == (new.width, new.height, new.format.name)
        return not same or frame.ordinal != self._last.ordinal + 1

    def _skip(self, frame: Frame) -> None:
        """Start again after a break; of frames lost in telecine, one in five was no film frame."""
        if self._before is not None and self._before[1].phase in range(5):
            self._removed += (frame.ordinal - self._before[0].ordinal - 1) // 5
        is_pure = all(stretch.kind == "progressive" for stretch in self._noted)
        self._watch, self._before = CadenceWatch(may_sample=is_pure), None

    def _finish(self) -> Iterator[Frame]:
        for state in self._watch.finish():
            yield from self._next(state)
        yield from self._end_interlaced()

    def _next(self, state: State) -> Iterator[Frame]:
        if state.kind == "interlaced" and self._deinterlacer is None:
            top_first = top_field_first(watched.fields for watched in self._undecided)
            self._deinterlacer = _Deinterlacer(self._undecided[0].frame.picture, top_first)
        yield from self._restore(self._undecided.popleft().frame, state)

    def _restore(self, frame: Frame, state: State) -> Iterator[Frame]:
        self._note(frame, state.kind)
        if self._treatment == "refuse" and state.kind != "progressive" and state is not LONE:
            raise RecordError(
                self._film_id,
                f"{state.kind} from {timedelta(seconds=int(frame.seconds))} on, and [film] fields is 'refuse'; "
                "set it to 'auto' to restore the film's frames, or restore the film first",
            )
        numbered = replace(frame, ordinal=frame.ordinal - self._removed) if self._removed else frame
        if state.kind == "interlaced":
            assert self._deinterlacer is not None
            yield from self._deinterlacer.add(numbered)
        else:
            yield from self._end_interlaced()
            film_frame = _film_frame(numbered, state, self._before_in_turn(state))
            self._removed += film_frame is None
            if film_frame is not None:
                yield film_frame
        self._before = frame, state

    def _end_interlaced(self) -> Iterator[Frame]:
        if self._deinterlacer is not None:
            yield from self._deinterlacer.finish()
            self._deinterlacer = None

    def _before_in_turn(self, state: State) -> Frame | None:
        """Return the frame before, if it holds the phase before this one."""
        if self._before is None or state.phase is None:
            return None
        frame, before = self._before
        expected = SHIFTED if state.phase == SHIFTED else (state.phase - 1) % 5
        return frame if before == replace(state, phase=expected) else None

    def _note(self, frame: Frame, kind: FieldKind) -> None:
        end = frame.seconds + frame.duration_seconds
        if self._noted and self._noted[-1].kind == kind:
            self._noted[-1].end_seconds = end
            return
        if self._noted:
            self._noted[-1].end_seconds = frame.seconds
        self._noted.append(_Stretch(kind, frame.seconds, end))


@dataclass
class _Stretch:
    """Stretch of a film that may continue: a mutable `FieldStretch`, because copies for every frame cost more."""

    kind: FieldKind
    start_seconds: float
    end_seconds: float


def _film_frame(frame: Frame, state: State, before: Frame | None) -> Frame | None:
    """Return the film frame that a frame of video completes, None if there is none; `before`: the frame in turn.

    A film frame begins with its first field. A film frame of three fields is moved half a field later, so that all are
    evenly spaced.
    """
    if state.kind == "progressive" or state.phase == 0:
        return frame
    lasting = 1.25 * frame.duration_seconds
    if state.phase == 1:
        return replace(frame, seconds=frame.seconds + frame.duration_seconds / 4, duration_seconds=lasting)
    if state is LONE or state.phase == 2:
        return None
    step = frame.seconds - before.seconds if before else 0.0
    if state.phase == 4:
        return replace(frame, seconds=frame.seconds - step / 4, duration_seconds=lasting)
    if before is None:  # after an edit: its film frame lost the other field
        return None
    top, bottom = (frame, before) if state.top_first else (before, frame)
    return replace(
        frame,
        seconds=frame.seconds - step / 2,
        duration_seconds=frame.duration_seconds if state.phase == SHIFTED else lasting,
        picture=_woven(top.picture, bottom.picture),
    )


def _woven(top: VideoFrame, bottom: VideoFrame) -> VideoFrame:
    """Return a picture with the top field of one picture and the bottom field of another."""
    picture = VideoFrame(top.width, top.height, top.format.name)
    for name in ("colorspace", "color_range", "color_primaries", "color_trc"):
        setattr(picture, name, getattr(top, name))
    for target, tops, bottoms in zip(picture.planes, top.planes, bottom.planes, strict=True):
        lines = _lines(target)
        width = min(plane.line_size for plane in (target, tops, bottoms))
        lines[0::2, :width] = _lines(tops)[0::2, :width]
        lines[1::2, :width] = _lines(bottoms)[1::2, :width]
    return picture


def _lines(plane: av.video.plane.VideoPlane) -> NDArray[np.uint8]:
    return np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[: plane.height]


class _Deinterlacer:
    """Deinterlacer of a stretch: FFmpeg's bwdif, a frame for each frame, one frame late."""

    def __init__(self, picture: VideoFrame, top_first: bool) -> None:
        self._waiting: deque[Frame] = deque()
        self._graph = av.filter.Graph()
        self._graph.threads = 1
        source = self._graph.add(
            "buffer",
            f"video_size={picture.width}x{picture.height}:pix_fmt={picture.format.name}:time_base=1/1000"
            f":pixel_aspect=1/1:colorspace={matrix_of(picture)}:range={picture.color_range}",
        )
        order = "tff" if top_first else "bff"
        bwdif = self._graph.add("bwdif", f"mode=send_frame:parity={order}:deint=all")
        self._graph.link_nodes(source, bwdif, self._graph.add("buffersink")).configure()

    def add(self, frame: Frame) -> Iterator[Frame]:
        self._waiting.append(frame)
        self._graph.vpush(frame.picture)
        yield from self._finished()

    def finish(self) -> Iterator[Frame]:
        self._graph.vpush(None)
        yield from self._finished()

    def _finished(self) -> Iterator[Frame]:
        while self._waiting:
            try:
                picture = self._graph.vpull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            yield replace(self._waiting.popleft(), picture=picture)
