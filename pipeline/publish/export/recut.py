"""Clips cut anew from a film at another rate and size: the frames on screen at the moments of each span.

The first frame of a clip is the film frame on screen at the start of the span, as `stages/clip_grid.py` chooses it, and
frame k the one on screen k steps after that frame came up. Counted from the start itself, steps would be uneven, or a
frame twice, where the start lies near the time of a frame and times are rounded to milliseconds, as in Matroska.

The film is decoded once, from its start to the end of the last span, in a child process. Finished clips are noted in a
log in the export (`CutLog`), so that a killed export goes on with the next one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from av.video.frame import VideoFrame
from pydantic import ValidationError

from pipeline.core.atomic import append_lines, replacing
from pipeline.core.progress import Progress
from pipeline.core.records import Crop, Film, Record
from pipeline.core.store import ClipFormat
from pipeline.stages.clip_grid import TOLERANCE_SECONDS
from pipeline.video.clip_files import write_clip
from pipeline.video.fields import FieldRestorer, Treatment
from pipeline.video.film_reader import FilmReader, Frame
from pipeline.video.scaling import Fit, Geometry, Scaler

VERSION = 2
"""Version number, raised by hand when the same film and span would give other bytes."""
LOG = ".cut.jsonl"
REPEATS = "a film frame stays on screen longer than a frame of the clip"
DAMAGED = "a part of it cannot be decoded"


class CutNote(Record):
    """Clip that was cut, or the reason why it was not."""

    file: str
    made_from: str
    bytes: int = 0
    modified_ns: int = 0
    left_out: str | None = None


class CutLog:
    """Log of the clips cut into an export, a line each; the last line about a file counts."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.notes = {note.file: note for note in _read_notes(out / LOG)}

    def known(self, file: str, made_from: str) -> CutNote | None:
        """Return the note of a file made from the same; None if it was changed or removed since."""
        note = self.notes.get(file)
        if note is None or note.made_from != made_from:
            return None
        return note if note.left_out or _state(self._out / file) == (note.bytes, note.modified_ns) else None

    def add(self, file: str, made_from: str, left_out: str | None = None) -> None:
        """Append a line about a file, which is complete by now."""
        size, modified = _state(self._out / file) or (0, 0)
        note = CutNote(file=file, made_from=made_from, bytes=size, modified_ns=modified, left_out=left_out)
        append_lines(self._out / LOG, json.dumps(note.model_dump()).encode() + b"\n")
        self.notes[file] = note


@dataclass(frozen=True)
class Span:
    """Span of a film, and the file of the export that shows it."""

    file: str
    made_from: str
    start_seconds: float


@dataclass(frozen=True)
class RecutJob:
    """Input of the child process."""

    film: Film
    crop: Crop
    out: Path
    clips: ClipFormat
    step_seconds: float
    """Film seconds between two frames of a clip."""
    fit: Fit
    crf: int
    fields: Treatment
    spans: tuple[Span, ...]


def cut_spans(job: RecutJob, progress: Progress) -> None:
    """Write the clips of all spans of a film, in this process, and note each in the log.

    Raises:
        RecordError: the film cannot be opened.
        DiskError: a clip cannot be written.
    """
    log = CutLog(job.out)
    end_seconds = max(span.start_seconds for span in job.spans) + (job.clips.frames + 1) * job.step_seconds
    geometry = Geometry.of(job.film, job.crop)
    scaler = Scaler(geometry, (job.clips.width, job.clips.height), job.fit, "clip", job.film.transfer)
    with FilmReader(Path(job.film.source)) as reader:
        restorer = FieldRestorer(job.fields, job.film.film_id)
        pickers = _Pickers(job, scaler)
        for frame in restorer.frames(reader.frames(end_seconds)):
            for picker in pickers.advance(frame):
                _write(job, picker, log)
            progress(frame.seconds, end_seconds)
        for picker in pickers.finish(reader.end_seconds):
            _write(job, picker, log)


@dataclass
class _Picker:
    """Frames of one span, chosen as the film passes."""

    span: Span
    first_seconds: float = 0.0
    """Time from which steps are counted: that of the first frame, unless it has been on screen for a step or longer."""
    ordinals: list[int] = field(default_factory=list)
    pictures: list[VideoFrame] = field(default_factory=list)

    def moment(self, step_seconds: float) -> float:
        """Time of the next frame."""
        if not self.pictures:
            return self.span.start_seconds
        return self.first_seconds + len(self.pictures) * step_seconds

    def add(self, frame: Frame, picture: VideoFrame, step_seconds: float) -> None:
        """Take the next frame."""
        if not self.pictures:
            start = self.span.start_seconds
            self.first_seconds = frame.seconds if start - frame.seconds < step_seconds else start
        self.ordinals.append(frame.ordinal)
        self.pictures.append(picture)


class _Pickers:
    """The spans under way, fed with the film's frames in order."""

    def __init__(self, job: RecutJob, scaler: Scaler) -> None:
        self._job, self._scaler = job, scaler
        self._ahead = sorted(job.spans, key=lambda span: span.start_seconds, reverse=True)
        self._open: list[_Picker] = []
        self._on_screen: Frame | None = None
        self._scaled: tuple[int, VideoFrame] | None = None

    def advance(self, frame: Frame) -> Iterator[_Picker]:
        """Take the next frame of the film; yield the spans that are complete."""
        yield from self._choose(frame.seconds)
        self._on_screen = frame

    def finish(self, end_seconds: float) -> Iterator[_Picker]:
        """End the film; yield all spans that are left, complete or not."""
        yield from self._choose(end_seconds)
        yield from self._open
        yield from (_Picker(span) for span in reversed(self._ahead))

    def _choose(self, until_seconds: float) -> Iterator[_Picker]:
        """Give the frame on screen to every moment before `until_seconds`."""
        if self._on_screen is None:
            return
        while self._ahead and self._ahead[-1].start_seconds + TOLERANCE_SECONDS < until_seconds:
            self._open.append(_Picker(self._ahead.pop()))
        step = self._job.step_seconds
        for picker in list(self._open):
            while len(picker.pictures) < self._job.clips.frames:
                if picker.moment(step) + TOLERANCE_SECONDS >= until_seconds:
                    break
                picker.add(self._on_screen, self._picture(self._on_screen), step)
            else:
                self._open.remove(picker)
                yield picker

    def _picture(self, frame: Frame) -> VideoFrame:
        if self._scaled is None or self._scaled[0] != frame.ordinal:
            self._scaled = frame.ordinal, self._scaler(frame.picture)
        return self._scaled[1]


def _write(job: RecutJob, picker: _Picker, log: CutLog) -> None:
    span = picker.span
    if len(picker.pictures) < job.clips.frames:
        log.add(span.file, span.made_from, DAMAGED)
    elif len(set(picker.ordinals)) < job.clips.frames:
        log.add(span.file, span.made_from, REPEATS)
    else:
        with replacing(job.out / span.file) as temporary:
            write_clip(temporary, picker.pictures, job.clips.fps, job.crf)
        log.add(span.file, span.made_from)


def _read_notes(log: Path) -> Sequence[CutNote]:
    """Notes of a log; the last line of a killed export may be incomplete."""
    notes = []
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ()
    for line in lines:
        try:
            notes.append(CutNote.model_validate_json(line))
        except ValidationError:
            continue
    return notes


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
