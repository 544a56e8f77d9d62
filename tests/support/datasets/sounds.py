"""Sound of films in made datasets: files, table and record as the stage `sound` writes them."""

import hashlib

from pipeline.core.ingredients import fingerprint
from pipeline.core.measurements import ClipSound
from pipeline.core.records import Clip
from pipeline.core.store import Dataset, FilmFolder, StageRecord
from pipeline.video.sound_files import SAMPLE_RATE, with_sound, write_sound
from tests.support.media.beeping_films import beeps


def keep_sound(dataset: Dataset) -> None:
    """Give every clip a beep that begins with it, and publish it from now on."""
    for folder in dataset.folders():
        write_sounds(folder)
    config = dataset.record.config | {"sound": {"keep": True, "language": None}}
    dataset.save(dataset.record.model_copy(update={"config": config}))


def write_sounds(folder: FilmFolder) -> None:
    """Write the sound of a film's clips."""
    rows = [_sound(folder, clip) for clip in folder.read("clips", Clip)]
    cut = folder.stage_record("cut")
    assert cut
    table = folder.write("sound", rows)
    ingredients = {"upstream": {"cut": cut.result}}
    files = [table, *(folder.sound_path(row.clip_id) for row in rows)]
    folder.save_stage_record(
        StageRecord(
            stage="sound",
            fingerprint=fingerprint(ingredients),
            ingredients=ingredients,
            files=folder.marks(str(file.relative_to(folder.path)) for file in files),
        )
    )


def _sound(folder: FilmFolder, clip: Clip) -> ClipSound:
    path, samples_T = folder.sound_path(clip.clip_id), beeps(float(clip.frames / clip.fps), [0.0])
    write_sound(path, samples_T[None].repeat(2, axis=0))
    return ClipSound(
        clip_id=clip.clip_id,
        language="jpn",
        sample_rate=SAMPLE_RATE,
        channels=2,
        loudness_lufs=-23.1,
        silent_share=0.75,
        speech_share=0.25,
        bytes=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        muxed_sha256=hashlib.sha256(with_sound(folder.clip_path(clip.clip_id), path)).hexdigest(),
    )
