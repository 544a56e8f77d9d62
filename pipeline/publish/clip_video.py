"""Published video of a clip: its file, with its sound if it has one."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pipeline.core.measurements import ClipSound
from pipeline.core.records import Clip, RecordError
from pipeline.video.sound_files import with_sound


def published_video(clip: Clip, path: Path, sound: ClipSound | None) -> bytes:
    """Return the clip at `path` as MP4, with its sound beside it. Raises RecordError if a file is gone or changed."""
    content = _checked(clip, path, clip.sha256)
    if sound is None:
        return content
    _checked(clip, heard := path.with_suffix(".m4a"), sound.sha256)
    content = with_sound(path, heard)
    if hashlib.sha256(content).hexdigest() != sound.muxed_sha256:
        tables = path.parents[2] / "*" / "sound.parquet"
        reason = "another version of FFmpeg muxed the sound, of all films"
        raise RecordError(clip.clip_id, f"{reason}; delete {tables} and run `animegamer build` again")
    return content


def _checked(clip: Clip, path: Path, sha256: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = f"clip file {path} cannot be read ({error.strerror}); run `animegamer build` to cut it again"
        raise RecordError(clip.clip_id, reason) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        reason = f"clip file {path} was changed or damaged; delete it and run `animegamer build` again"
        raise RecordError(clip.clip_id, reason)
    return content
