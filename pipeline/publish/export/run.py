"""Writing of an export: clips linked, copied or cut, then captions, tables and configuration.

A file with the same content is not written again. Before the first file, the note lists all files. Clips come before
captions, so that an interrupted export has no caption without a clip. Files about all clips come last, because people
edit them: by then, the note has the hashes of their old and their new content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.atomic import held, replacing, sweep
from pipeline.core.child_process import call_in_child
from pipeline.core.errors import UserError
from pipeline.core.hashes import FILM_HASHES, Hashes, film_hash
from pipeline.core.measurements import ClipSound
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Crop, RecordError
from pipeline.core.store import FilmFolder
from pipeline.publish.clip_video import published_video
from pipeline.publish.export.captions import webvtt
from pipeline.publish.export.clips import ExportClip
from pipeline.publish.export.folder import (
    ExportNote,
    check_folder,
    edit_of,
    link_or_copy,
    new_note,
    read_note,
    remove_others,
    set_aside,
    text_hash,
    write_note,
)
from pipeline.publish.export.plan import ExportPlan
from pipeline.publish.export.recut import CutLog, RecutJob, Span, cut_spans, settings_of_cut
from pipeline.publish.export.references import STILLS
from pipeline.publish.export.texts import common_files
from pipeline.publish.export.trainers import pace
from pipeline.publish.shards import file_sha256
from pipeline.remote.film_cache import delete_local_copy, film_file


@dataclass(frozen=True)
class Written:
    """Result of an export."""

    clips: int
    changed: int
    """Files written."""
    removed: int
    left_out: Mapping[str, int]
    """Clips without a file, by the reason."""
    edits: Mapping[str, str]
    """Names of the user's versions of files that the user changed, by file; the same name if nothing was written."""


def write_export(plan: ExportPlan, progress: Progress = silent) -> Written:
    """Write or update an export.

    Raises:
        UserError: the disk is full, or a film cannot be read; running the same command again continues.
    """
    out = plan.request.out
    with held(out, "animegamer export"):
        check_folder(out, plan.request.trainer.name, plan.dataset)
        before = read_note(out)
        _sweep(plan)
        pictures = _pictures(plan)
        note = _announce(plan, before, pictures)
        changed, left_out = _cut(plan, progress) if plan.cuts else (_link(plan, progress), {})
        clips = [clip for clip in plan.clips if clip.file not in left_out]
        gone = {clip.reference_file for clip in plan.clips if clip.file in left_out}
        pictures = {name: content for name, content in pictures.items() if name not in gone}
        changed += sum(_write(out / name, content) for name, content in pictures.items())
        if not clips:
            raise UserError(f"no clip could be cut: {next(iter(left_out.values()))}")
        captions, common = _captions(plan, clips), common_files(plan, clips)
        changed += sum(_write_text(out / name, text) for name, text in captions.items())
        found = {name: edit_of(out, name, text, before) for name, text in common.items()}
        edits = {name: set_aside(out, name) if edit == "set aside" else name for name, edit in found.items() if edit}
        hashes = {name: text_hash(text) for name, text in common.items()}
        write_note(out, note.rewriting(hashes))
        changed += sum(_write_text(out / name, text) for name, text in common.items() if edits.get(name) != name)
        files = {clip.file for clip in clips} | set(captions) | set(common) | set(pictures)
        removed = remove_others(out, before, files)
        write_note(out, note.model_copy(update={"files": tuple(sorted(files)), "hashes": hashes, "earlier": {}}))
    return Written(len(clips), changed, removed, Counter(left_out.values()), edits)


def _announce(plan: ExportPlan, before: ExportNote | None, pictures: Iterable[str]) -> ExportNote:
    """Note the files before they are written, so that the next export can recognise and remove them after a kill."""
    texts = _captions(plan, plan.clips) | common_files(plan, plan.clips)
    files = (*(clip.file for clip in plan.clips), *texts, *pictures)
    note = new_note(plan.request.trainer.name, plan.dataset, files, before)
    write_note(plan.request.out, note)
    return note


def _sweep(plan: ExportPlan) -> None:
    out = plan.request.out
    for folder in {(out / clip.file).parent for clip in plan.clips} | {out, (out / FILM_HASHES).parent}:
        sweep(folder, deep=False)


def _link(plan: ExportPlan, progress: Progress) -> int:
    changed = 0
    for done, clip in enumerate(plan.clips, start=1):
        changed += _place(clip, clip.seen.sound if plan.sound else None, plan.request.out / clip.file)
        progress(done, len(plan.clips))
    return changed


def _place(clip: ExportClip, sound: ClipSound | None, path: Path) -> bool:
    """Link or copy a clip, or write it with its sound; return False if it is there already."""
    if sound is None:
        return link_or_copy(clip.source, path)
    if path.is_file() and file_sha256(path) == sound.muxed_sha256:
        return False
    try:
        content = published_video(clip.seen.clip, clip.source, sound)
    except RecordError as error:
        raise UserError(str(error)) from error
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return True


def _cut(plan: ExportPlan, progress: Progress) -> tuple[int, dict[str, str]]:
    """Cut the missing clips; return their number, and the reason for each clip that has no file."""
    wanted: list[Span] = []
    log = CutLog(plan.request.out)
    for folder in plan.folders:
        spans = plan.to_cut(log, folder)
        if spans:
            _cut_film(plan, folder, spans, progress)
        wanted += spans
    notes = CutLog(plan.request.out).notes
    left_out = {clip.file: reason for clip in plan.clips if (reason := notes[clip.file].left_out)}
    for file in left_out:
        (plan.request.out / file).unlink(missing_ok=True)
    return sum(span.file not in left_out for span in wanted), left_out


def _cut_film(plan: ExportPlan, folder: FilmFolder, spans: tuple[Span, ...], progress: Progress) -> None:
    out, film = plan.request.out, folder.film
    source = film_file(film.source, out, progress)
    job = RecutJob(
        film=film.model_copy(update={"source": str(source)}),
        crops=tuple(folder.read("crop", Crop)),
        out=out.absolute(),
        clips=plan.format,
        step_seconds=float(pace(film) / plan.format.fps),
        spans=spans,
        sound=plan.sound_of(film),
        holds_last=plan.holds_last,
        **settings_of_cut(folder),
    )
    try:
        hashes = Hashes(out / FILM_HASHES)
        if film_hash(source, hashes, progress) != film.sha256:
            raise UserError(f"{film.source} is not the film that the dataset was built from; build again")
        hashes.save()
        call_in_child(cut_spans, job, film.film_id, progress)
        delete_local_copy(film.source, out)
    except RecordError as error:
        raise UserError(f"{film.name}: {error.reason}") from error


def _captions(plan: ExportPlan, clips: Sequence[ExportClip]) -> dict[str, str]:
    """Return the text file of each clip by its path in the export, and its subtitles, if it is read with such files."""
    trainer = plan.request.trainer
    beside = clips if trainer.beside else ()
    texts = {str(Path(clip.file).with_suffix(".txt")): clip.caption + "\n" for clip in beside}
    if trainer.templates:  # captions of a dataset of references
        texts |= {
            str(Path(one.reference_file).with_suffix(".txt")): one.caption + "\n" for one in beside if one.reference
        }
    spoken = [(clip.file, clip.said) for clip in clips if clip.said] if trainer.has_subtitles else []
    return texts | {str(Path(file).with_suffix(".vtt")): webvtt(lines) for file, lines in spoken}


def _pictures(plan: ExportPlan) -> dict[str, bytes]:
    """Content of the pictures of characters, and of their captions, by their path in the export."""
    found = {clip.reference_file: clip.reference.widened for clip in plan.clips if clip.reference}
    stills = plan.portraits.stills(plan.request.stills) if plan.portraits else ()
    for name, portrait, number in stills:
        path = f"{STILLS}/{name}/{portrait.look}/{number:03d}"
        called = " ".join(filter(None, (plan.request.trigger, plan.request.names.get(name, name))))
        found |= {f"{path}.jpg": portrait.content, f"{path}.txt": f"{called}\n".encode()}
    return found


def _write_text(path: Path, text: str) -> bool:
    """Write a text file; return False if it has this content already."""
    return _write(path, text.encode())


def _write(path: Path, content: bytes) -> bool:
    if path.is_file() and path.read_bytes() == content:
        return False
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return True
