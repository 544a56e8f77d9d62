"""Sound files of a film's clips, from one pass over its sound track."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core.atomic import replacing
from pipeline.core.measurements import ClipSound
from pipeline.core.progress import Progress
from pipeline.core.records import Clip
from pipeline.core.store import FilmFolder
from pipeline.stages.hearing.facts import loudness_lufs, silent_share, speech_share
from pipeline.video.film_sound import film_sound, film_track
from pipeline.video.sound_files import CHANNELS, SAMPLE_RATE, Samples, with_sound, write_sound


@dataclass(frozen=True)
class SoundJob:
    """Input of the child process."""

    source: Path
    folder: Path
    clips: tuple[Clip, ...]
    language: str | None


def write_sounds(job: SoundJob, progress: Progress) -> list[ClipSound]:
    """Write the sound of every clip, and measure it; nothing for a film without sound.

    Raises:
        RecordError: the film cannot be opened or holds no video.
    """
    track = film_track(job.source, job.language)
    if track is None:
        return []
    folder, rows = FilmFolder(job.folder), []
    for clip, samples_CT in _pieces(job):
        path = folder.sound_path(clip.clip_id)
        with replacing(path) as temporary:
            write_sound(temporary, samples_CT)
        content = path.read_bytes()
        muxed = with_sound(folder.clip_path(clip.clip_id), path)
        rows.append(
            ClipSound(
                clip_id=clip.clip_id,
                language=track.language,
                sample_rate=SAMPLE_RATE,
                channels=CHANNELS,
                loudness_lufs=loudness_lufs(samples_CT),
                silent_share=silent_share(samples_CT),
                speech_share=speech_share(samples_CT),
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                muxed_sha256=hashlib.sha256(muxed).hexdigest(),
            )
        )
        progress(len(rows), len(job.clips))
    return rows


def _pieces(job: SoundJob) -> Iterator[tuple[Clip, Samples]]:
    """Yield each clip with its sound, silent where the track is; only clips under way are in memory."""
    waiting = deque(sorted(job.clips, key=lambda clip: clip.start_seconds))
    begun: deque[tuple[Clip, int, Samples]] = deque()
    for first, samples_CT in film_sound(job.source, job.language):
        end = first + samples_CT.shape[1]
        while waiting and _start(waiting[0]) < end:
            begun.append(_begin(waiting.popleft()))
        for _, start, piece_CT in begun:
            low, high = max(first, start), min(end, start + piece_CT.shape[1])
            if low < high:
                piece_CT[:, low - start : high - start] = samples_CT[:, low - first : high - first]
        while begun and begun[0][1] + begun[0][2].shape[1] <= first:
            clip, _, piece_CT = begun.popleft()
            yield clip, piece_CT
    for clip, _, piece_CT in (*begun, *map(_begin, waiting)):
        yield clip, piece_CT


def _start(clip: Clip) -> int:
    return round(clip.start_seconds * SAMPLE_RATE)


def _begin(clip: Clip) -> tuple[Clip, int, Samples]:
    return clip, _start(clip), np.zeros((CHANNELS, round(clip.frames / clip.fps * SAMPLE_RATE)), np.float32)
