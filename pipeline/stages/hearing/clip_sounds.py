"""Sound files of a film's clips, from one pass over its sound track."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.atomic import replacing
from pipeline.core.measurements import ClipSound
from pipeline.core.progress import Progress
from pipeline.core.records import Clip
from pipeline.core.store import FilmFolder
from pipeline.stages.hearing.facts import loudness_lufs, silent_share, speech_share
from pipeline.video.film_sound import SoundPieces, film_track
from pipeline.video.sound_files import CHANNELS, SAMPLE_RATE, with_sound, write_sound


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
    pieces = SoundPieces(job.source, job.language)
    for clip in sorted(job.clips, key=lambda clip: clip.start_seconds):
        samples_CT = pieces.piece(clip.start_seconds, clip.frames / clip.fps)
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
