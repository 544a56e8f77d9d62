"""Folder of an export: the note in it, its files, and their room on the disk.

The note, `.export.json`, names the dataset, the trainer and the written files. Only these files are ever removed, so a
trainer's caches and results in the same folder stay. Clip files are hard links to the dataset's files if the disk
allows it, else copies.

The size of clips to cut is estimated from the dataset's clips. At equal quality, bytes grow more slowly than pixels: by
a rule of thumb, with the power 0.75.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import ValidationError

from pipeline.core.atomic import replacing, temporary_start, write_json
from pipeline.core.errors import NoRoomError, UserError, disk_errors
from pipeline.core.plain_text import is_text, printable
from pipeline.core.records import Clip, Record
from pipeline.core.store import ClipFormat, Dataset
from pipeline.publish.shards import file_sha256

NOTE = ".export.json"
_MISREAD = re.compile(r"[*?\[\]]|::|\$\{")
"""Parts of a path that trainers misread: patterns of file names, chains of `fsspec`, variables of ai-toolkit."""
Edit = Literal["left", "set aside"]
"""Treatment of a user's changes to a file: left if the export writes nothing new to the file, else set aside."""
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EACCES}


class ExportNote(Record):
    """Dataset, trainer and files of an export."""

    trainer: str
    dataset: str
    """Path of the dataset."""
    films: tuple[str, ...]
    """Ids of the films of the dataset."""
    files: tuple[str, ...]
    hashes: Mapping[str, str] = {}
    """SHA-256 of the files about all clips, as they were written: people change configurations and cards."""
    earlier: Mapping[str, tuple[str, ...]] = {}
    """SHA-256 of the content that these files may still have while an export writes them, or after it was killed."""

    def written(self, name: str) -> tuple[str, ...]:
        """SHA-256 of every content that the export may have written to a file about all clips."""
        return (*filter(None, [self.hashes.get(name)]), *self.earlier.get(name, ()))

    def rewriting(self, hashes: Mapping[str, str]) -> ExportNote:
        """The note while files with these hashes are written: each has the new content, or still the old."""
        earlier = {name: self.written(name) for name in {*self.hashes, *self.earlier}}
        return self.model_copy(update={"hashes": hashes, "earlier": earlier})


def read_note(out: Path) -> ExportNote | None:
    """Return the note of an export; None if there is none. Raises UserError if it is damaged."""
    path = out / NOTE
    try:
        return ExportNote.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise UserError(f"{path}: cannot be read ({error}); export to another folder") from error


def new_note(trainer: str, dataset: Dataset, files: Iterable[str], before: ExportNote | None) -> ExportNote:
    """Return the note of an export that is about to write files; it still lists the previous export's files."""
    return ExportNote(
        trainer=trainer,
        dataset=str(dataset.root.absolute()),
        films=tuple(entry.film_id for entry in dataset.record.films),
        files=tuple(sorted({*(before.files if before else ()), *files})),
        hashes=before.hashes if before else {},
        earlier=before.earlier if before else {},
    )


def write_note(out: Path, note: ExportNote) -> None:
    """Write the note of an export."""
    write_json(out / NOTE, note.model_dump(mode="json"))


def check_folder(out: Path, trainer: str, dataset: Dataset) -> None:
    """Raise a UserError if a folder is not new, empty, or an earlier export of this dataset for this trainer.

    A dataset keeps its identity if it is moved; two datasets of one film are different.
    """
    _check_path(out)
    for parent in out.resolve().parents:
        if (parent / "dataset.json").exists():
            raise UserError(f"{out} is inside the dataset {parent}; name another folder with --out")
        if (parent / NOTE).exists():
            raise UserError(f"{out} is inside the export {parent}; name another folder with --out")
    if not out.exists():
        return
    if not out.is_dir():
        raise UserError(f"{out} is a file; name a folder with --out")
    if (out / "dataset.json").exists():
        raise UserError(f"{out} is a dataset; name another folder with --out")
    for folder in out.rglob("*/"):
        if folder.is_symlink():
            raise UserError(f"{folder} is a link, and the export would change its target; delete the link")
    note = read_note(out)
    if note is None:
        if any(not path.name.startswith(".") for path in out.iterdir()):
            raise UserError(f"{out} is neither empty nor an export; name another folder with --out")
        return
    if note.trainer != trainer:
        raise UserError(f"{out} is an export for {note.trainer}; name another folder with --out")
    films = {entry.film_id for entry in dataset.record.films}
    place, here = Path(note.dataset), dataset.root.absolute()
    if not films.issuperset(note.films) or (place != here and (place / "dataset.json").exists()):
        raise UserError(f"{out} is an export of another dataset, {place}; name another folder with --out")


def _check_path(out: Path) -> None:
    """Reject paths that a configuration cannot hold, or that programs misread."""
    path = str(out.absolute())
    if not is_text(path) or not path.isprintable():
        raise UserError(f"{printable(path)}: trainers cannot read such a path; name another --out")
    if found := sorted(set(_MISREAD.findall(path))):
        raise UserError(f"{path}: trainers read {' '.join(found)} as a pattern; name another folder with --out")


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text file's content, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def edit_of(out: Path, name: str, text: str, before: ExportNote | None) -> Edit | None:
    """Return the treatment of a user's changes to the file `name` that would get this text; None without changes."""
    path, written = out / name, before.written(name) if before else ()
    if not written or not path.is_file() or file_sha256(path) in (*written, text_hash(text)):
        return None
    is_whole = before is not None and not before.earlier.get(name)  # else the last export may not have written it
    return "left" if is_whole and text_hash(text) in written else "set aside"


def set_aside(out: Path, name: str) -> str:
    """Rename a file that the user changed; return its new name, which no other file had."""
    names = chain([f"{name}.old"], (f"{name}.old{number}" for number in count(2)))
    free = next(name for name in names if not (out / name).exists())
    with disk_errors(out / name):
        (out / name).rename(out / free)
    return free


def remove_others(out: Path, note: ExportNote | None, files: Collection[str]) -> int:
    """Remove the files of an earlier export that are not in this one; return their number."""
    removed = 0
    for name in note.files if note else ():
        parts = PurePosixPath(name).parts
        if name not in files and ".." not in parts and not name.startswith("/") and (out / name).is_file():
            (out / name).unlink()
            removed += 1
    return removed


def check_room_for_files(out: Path, linked: Iterable[tuple[Path, str]], written: Mapping[str, int]) -> None:
    """Raise NoRoomError if the disk has no room for the files of an export.

    Args:
        out: the export.
        linked: files of the dataset with their paths in the export; they are copied if they are on another disk.
        written: bytes of the files that are written in any case, by path in the export.
    """
    disk, free = _existing(out).stat().st_dev, _free(out)
    new = sum(size for file, size in written.items() if not (out / file).exists())
    copied = sum(
        source.stat().st_size
        for source, file in linked
        if source.stat().st_dev != disk and not is_placed(source, out / file)
    )
    if new + copied > free:
        remedy = ", or export to the dataset's disk" if copied else ""
        raise NoRoomError(f"{out} needs {_size(new + copied)}, and {_size(free)} are free; make room{remedy}")


def check_room_for_cuts(out: Path, clips: Iterable[tuple[Clip, str]], cut: ClipFormat, fetched: int) -> None:
    """Raise NoRoomError if, by the estimate, the disk has no room for the clips to cut.

    Args:
        out: the export.
        clips: the dataset's clips, with their paths in the export.
        cut: format of the clips to cut.
        fetched: bytes of the largest film to fetch.
    """
    missing = [clip for clip, file in clips if not (out / file).exists()]
    pixels = cut.width * cut.height * cut.frames
    growths = ((pixels / (clip.width * clip.height * clip.frames)) ** 0.75 for clip in missing)
    needed = round(sum(clip.bytes * growth for clip, growth in zip(missing, growths, strict=True)))
    needed += fetched if missing else 0
    if needed > (free := _free(out)):
        raise NoRoomError(
            f"{out}: cutting {len(missing)} clips takes about {_size(needed)}, and {_size(free)} are free; "
            "make room, or choose fewer clips"
        )


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest folder above it that exists."""
    return next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())


def _free(out: Path) -> int:
    return shutil.disk_usage(_existing(out)).free


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def link_or_copy(source: Path, path: Path) -> bool:
    """Link a file into the export, or copy it; return False if it is there already. Raises DiskError."""
    if is_placed(source, path):
        return False
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _link(source, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _copy(source, path)
    return True


def is_placed(source: Path, path: Path) -> bool:
    """Return True if `path` is the same file, or a copy with its size and time."""
    if not path.exists():
        return False
    ours, theirs = path.stat(), source.stat()
    return os.path.samestat(ours, theirs) or (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)


def _link(source: Path, path: Path) -> None:
    temporary = path.with_name(f"{temporary_start(path)}linked{path.suffix}")
    temporary.unlink(missing_ok=True)
    os.link(source, temporary)
    temporary.replace(path)
    temporary.unlink(missing_ok=True)  # renaming one link over another of the same file does nothing


def _copy(source: Path, path: Path) -> None:
    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)
        status = source.stat()
        os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
