"""Clips cut again from a film at another rate and size.

The first frame of a clip is the film frame on screen at the start of the span, as `stages/clip_grid.py` chooses it.
Frame k is on screen k steps after that frame appeared. Steps from the start itself would be uneven or repeat a frame if
the start is near the time of a frame and times are rounded to milliseconds, as in Matroska.

Its sound begins when that frame appeared, and is as long as the clip to the sample.

A child process decodes the film once, to the end of the last span. Finished clips are noted in a log in the export
(`CutLog`), so that a killed export continues with the next clip.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from av.video.frame import VideoFrame
from pydantic import ValidationError

from pipeline.core.atomic import append_lines, replacing
from pipeline.core.config import FilmSettings, SoundSettings
from pipeline.core.ingredients import fingerprint
from pipeline.core.progress import Progress
from pipeline.core.records import Crop, Film, Record
from pipeline.core.store import ClipFormat, FilmFolder
from pipeline.publish.export.trainers import pace
from pipeline.stages.cutting.clip_grid import TOLERANCE_SECONDS
from pipeline.stages.sound import KeepSound
from pipeline.video.clip_files import write_clip
from pipeline.video.fields import FieldRestorer, Treatment
from pipeline.video.film_reader import FilmReader, Frame
from pipeline.video.film_sound import SoundPieces, at_pace, film_track
from pipeline.video.scaling import Fit, Geometry, Scaler, crop_at
from pipeline.video.sound_files import Samples, with_sound, write_sound

VERSION = 2
"""Version number, raised by hand when the same film and span would give other pictures; for sound, see `KeepSound`."""
LOG = ".cut.jsonl"
REPEATS = "a film frame stays on screen longer than a frame of the clip"
DAMAGED = "a part of it cannot be decoded"


class CutNote(Record):
    """Clip that was cut, or the reason that it was not."""

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
        """Return the note of a file with these ingredients; None if the file was changed or removed since."""
        note = self.notes.get(file)
        if note is None or note.made_from != made_from:
            return None
        return note if note.left_out or _state(self._out / file) == (note.bytes, note.modified_ns) else None

    def add(self, file: str, made_from: str, left_out: str | None = None) -> None:
        """Append a line about a complete file."""
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
    crops: tuple[Crop, ...]
    out: Path
    clips: ClipFormat
    step_seconds: float
    """Film seconds between two frames of a clip."""
    fit: Fit
    crf: int
    fields: Treatment
    spans: tuple[Span, ...]
    sound: SoundSettings | None = None
    """None: clips without sound."""
    holds_last: bool = False
    """True: the last frame is written twice."""


def cut_spans(job: RecutJob, progress: Progress) -> None:
    """Write the clips of all spans of a film, and note each in the log. Raises RecordError or DiskError."""
    log = CutLog(job.out)
    end_seconds = max(span.start_seconds for span in job.spans) + (job.clips.frames + 1) * job.step_seconds
    size = job.clips.width, job.clips.height
    scalers = {
        crop.start_seconds: Scaler(Geometry.of(job.film, crop), size, job.fit, "clip", job.film.transfer)
        for crop in job.crops
    }
    sound = _sound_of(job)
    with FilmReader(Path(job.film.source)) as reader:
        restorer = FieldRestorer(job.fields, job.film.film_id)
        pickers = _Pickers(job, scalers)
        for frame in restorer.frames(reader.frames(end_seconds)):
            for picker in pickers.advance(frame):
                _write(job, picker, sound, log)
            progress(frame.seconds, end_seconds)
        for picker in pickers.finish(reader.end_seconds):
            _write(job, picker, sound, log)


@dataclass
class _Picker:
    """Frames of one span, chosen as the film passes."""

    span: Span
    first_seconds: float = 0.0
    """Origin of the steps: the time of the first frame, or the span's start if the frame is a step or more older."""
    ordinals: list[int] = field(default_factory=list)
    pictures: list[VideoFrame] = field(default_factory=list)

    def moment(self, step_seconds: float) -> float:
        """Time of the next frame."""
        return self.first_seconds + len(self.pictures) * step_seconds if self.pictures else self.span.start_seconds

    def add(self, frame: Frame, picture: VideoFrame, step_seconds: float) -> None:
        """Take the next frame."""
        if not self.pictures:
            start = self.span.start_seconds
            self.first_seconds = frame.seconds if start - frame.seconds < step_seconds else start
        self.ordinals.append(frame.ordinal)
        self.pictures.append(picture)


class _Pickers:
    """The spans in progress, fed with the film's frames in order."""

    def __init__(self, job: RecutJob, scalers: Mapping[float, Scaler]) -> None:
        self._job, self._scalers = job, scalers
        self._ahead = sorted(job.spans, key=lambda span: span.start_seconds, reverse=True)
        self._open: list[_Picker] = []
        self._on_screen: Frame | None = None
        self._scaled: tuple[int, float, VideoFrame] | None = None

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
                picker.add(self._on_screen, self._picture(self._on_screen, picker.span.start_seconds), step)
            else:
                self._open.remove(picker)
                yield picker

    def _picture(self, frame: Frame, span_seconds: float) -> VideoFrame:
        """Return the frame with the crop of the span: no clip lies across a change of the crop."""
        since = crop_at(self._job.crops, span_seconds).start_seconds
        if self._scaled is None or self._scaled[:2] != (frame.ordinal, since):
            self._scaled = frame.ordinal, since, self._scalers[since](frame.picture)
        return self._scaled[2]


def _sound_of(job: RecutJob) -> SoundPieces | None:
    path = Path(job.film.source)
    if job.sound is None or film_track(path, job.sound.language) is None:
        return None
    return SoundPieces(path, job.sound.language)


def _write(job: RecutJob, picker: _Picker, sound: SoundPieces | None, log: CutLog) -> None:
    span, clips = picker.span, job.clips
    if len(picker.pictures) < clips.frames:
        log.add(span.file, span.made_from, DAMAGED)
    elif len(set(picker.ordinals)) < clips.frames:
        log.add(span.file, span.made_from, REPEATS)
    else:
        with replacing(job.out / span.file) as temporary:
            held = picker.pictures[-1:] if job.holds_last else []
            write_clip(temporary, [*picker.pictures, *held], clips.fps, job.crf)
            if sound:
                heard_CT = sound.piece(picker.first_seconds, pace(job.film) * clips.frames / clips.fps)
                _add_sound(temporary, at_pace(heard_CT, pace(job.film)))
        log.add(span.file, span.made_from)


def _add_sound(clip: Path, samples_CT: Samples) -> None:
    with TemporaryDirectory() as folder:
        heard = Path(folder, "sound.m4a")
        write_sound(heard, samples_CT)
        clip.write_bytes(with_sound(clip, heard))


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


def settings_of_cut(folder: FilmFolder) -> dict[str, Any]:
    """Return `fit`, `crf` and `fields` of a film's clips, from the cut itself: a later build may have cut nothing."""
    record = folder.stage_record("cut")
    assert record, "films that are not built to the end are left out"
    film, clips = record.ingredients["film"], record.ingredients["clips"]
    return {"fit": clips["fit"], "crf": clips["crf"], "fields": film.get("fields", FilmSettings().fields)}


def spans_to_cut(
    log: CutLog,
    folder: FilmFolder,
    starts: Mapping[str, float],
    clips: ClipFormat,
    sound: SoundSettings | None,
    *,
    holds_last: bool = False,
) -> tuple[Span, ...]:
    """Return the spans of a film, from their starts in seconds by file, whose files are not in the export yet."""
    crops, film = folder.read("crop", Crop), folder.film
    same = {
        "version": VERSION,
        "film": film.sha256,
        "clips": clips.model_dump(mode="json"),
        "transfer": film.transfer,
        **settings_of_cut(folder),
        **({"sound": [KeepSound.version, sound.language]} if sound else {}),
        **({"holds_last": True} if holds_last else {}),
    }
    spans = (
        Span(file, fingerprint(same | {"crop": _picture_of(crop_at(crops, start)), "start_seconds": start}), start)
        for file, start in starts.items()
    )
    return tuple(span for span in spans if log.known(span.file, span.made_from) is None)


def _picture_of(crop: Crop) -> dict[str, Any]:
    """Return what made earlier exports: a crop without what was added later, which does not change a picture."""
    return crop.model_dump(mode="json", exclude={"start_seconds", "notes"})
