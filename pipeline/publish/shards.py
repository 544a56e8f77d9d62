"""WebDataset shards of the kept clips: `shards/<split>/<film_id>-000000.tar` and `shards/index.json`.

A shard holds clips of one film in time order and ends with a scene. The same tables and clip files give the same bytes,
on any day and machine. All shards are first written to temporary files. When all are complete, they are renamed into
place, then the index is replaced, then leftovers of earlier runs are removed. A shard with unchanged content is not
written again.

A sample is three members with the clip's id as key: `.mp4`, `.txt` (the instruction line) and `.json` (a `Sample`).

The writer gives the same bytes as webdataset's `TarWriter`, but does not import PyTorch. The reader is for untrusted
tars: it takes one sample at a time into memory, and writes nothing under the name of a member.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from pydantic import Field, ValidationError

from pipeline.core.atomic import replacing, sweep, write_json
from pipeline.core.config import ShardSettings
from pipeline.core.ingredients import Ingredients, ResultNote, fingerprint
from pipeline.core.progress import Progress, silent
from pipeline.core.records import faults_of
from pipeline.core.store import Dataset, StoreError
from pipeline.publish.samples import (
    SHARD_SCHEMA,
    SPLITS,
    KeptClip,
    Published,
    Sample,
    ShardSchema,
    Split,
    kept_clips,
)
from pipeline.publish.vocabulary import load_vocabulary
from pipeline.stages.motion_levels import Edges

MEMBERS = ("json", "mp4", "txt")
_NAME = re.compile(rf"([a-z0-9_-]+)\.({'|'.join(MEMBERS)})")
_KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.DIRTYPE: "a folder",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
}
_SHARD_NAME = r"[a-z0-9-]+-[0-9]{6}\.tar"
VERSION = 3
"""Version number, raised by hand when the same samples would give other bytes; an ingredient of every shard."""


@dataclass(frozen=True)
class Packed:
    """One sample of a shard: the bytes of its members by extension."""

    key: str
    members: dict[str, bytes]


def pack(path: Path, samples: Iterable[Packed]) -> None:
    """Write the samples to a tar, the members of each by extension; equal samples give equal bytes."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for sample in samples:
            for extension, content in sorted(sample.members.items()):
                member = tarfile.TarInfo(f"{sample.key}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def unpack(path: Path, problems: list[str]) -> Iterator[Packed]:
    """Yield the samples of a tar, and append its problems; a key that returns after another key is a new sample."""
    for key, group in groupby(_read(path, problems), key=itemgetter(0)):
        members: dict[str, bytes] = {}
        for _, extension, content in group:
            if extension in members:
                problems.append(f"member {key}.{extension} is there twice")
            members.setdefault(extension, content)
        yield Packed(key, members)


def _read(path: Path, problems: list[str]) -> Iterator[tuple[str, str, bytes]]:
    end, file_bytes = 0, path.stat().st_size
    try:
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                if problem := _problem(member, file_bytes):
                    problems.append(f"member {member.name[:120]!a} {problem}")
                    continue
                key, extension = member.name.split(".")
                content = tar.extractfile(member)
                yield key, extension, content.read() if content else b""
    except (tarfile.TarError, OSError, ValueError) as error:  # the last: sizes beyond any file, broken sparse maps
        problems.append(f"is not a whole tar file: {error}")
    else:
        problems += _ending(path, end)


def has_oversized_member(path: Path) -> bool:
    """Return True if the header of a member claims more bytes than the tar can hold: a library would read them all."""
    invalid = (tarfile.TarError, OSError, ValueError)  # its reader reports where
    with suppress(*invalid), tarfile.open(path, "r:") as tar:
        return any(_is_oversized(member, path.stat().st_size) for member in tar)
    return False


def _is_oversized(member: tarfile.TarInfo, file_bytes: int) -> bool:
    return member.issparse() or member.size > file_bytes


def _problem(member: tarfile.TarInfo, file_bytes: int) -> str | None:
    if member.name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", member.name):
        return "has a name that leads out of the folder it is unpacked to: do not unpack this file"
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return f"is {_KINDS.get(member.type, 'of an unknown kind')}, not a file"
    if _is_oversized(member, file_bytes):
        return "claims more bytes than the file holds"
    if not _NAME.fullmatch(member.name):
        return f"is not named <a-z0-9_->.{'|'.join(MEMBERS)}"
    return None


def _ending(path: Path, end: int) -> list[str]:
    """Problems at the end, where two blocks of zeros belong; to `tarfile`, an unreadable header is the end."""
    with path.open("rb") as file:
        file.seek(end)
        rest = file.read(2 * tarfile.RECORDSIZE)
    if len(rest) < 2 * tarfile.BLOCKSIZE:
        return ["is truncated: the end of the tar is missing"]
    return ["holds bytes after its last readable member that are not a tar"] if rest.strip(b"\0") else []


class Shard(Published):
    """Entry of one tar in the index."""

    name: str = Field(pattern=rf"^(train|val)/{_SHARD_NAME}$", description="path relative to `shards/`")
    split: Split
    film_id: str
    samples: int = Field(ge=1)
    bytes: int
    sha256: str
    made_from: str = Field(description="fingerprint of its samples; kept while it and the file are unchanged")
    first_clip: str
    last_clip: str


class Counts(Published):
    """Samples by split, film and motion level."""

    split: dict[str, int]
    film: dict[str, int]
    level: dict[str, int]


class Index(Published):
    """`shards/index.json`: everything a reader needs besides the shards."""

    schema_version: ShardSchema = Field(default=SHARD_SCHEMA, alias="schema")
    flow_model: str | None
    edges: Edges | None
    level_values: tuple[float, ...] | None = Field(description="median scope of each level, px per step")
    captioner: str | None
    settings: ShardSettings = Field(description="settings by which the shards were cut and split")
    counts: Counts
    shards: tuple[Shard, ...]

    @property
    def split_remark(self) -> str | None:
        """A remark if the share of `val` is off by more than half of what was wanted; None otherwise."""
        wanted, val, samples = self.settings.val_share, self.counts.split["val"], sum(self.counts.split.values())
        if not samples or abs(val / samples - wanted) <= min(wanted, 1 - wanted) / 2:
            return None
        few, other = ("scenes", "lower `[shards] block_seconds`")
        if self.settings.split == "film":
            few, other = "films", 'set `[shards] split` to "time"'
        return (
            f"the split val has {val:,} of {samples:,} samples, not {wanted:.0%}: there are too few {few} to divide; "
            f"add films, or {other}"
        )


def count(samples: Sequence[Sample]) -> Counts:
    """Number of samples by split, film and motion level; splits and levels without samples have 0."""
    split = Counter[str](sample.split for sample in samples)
    level = Counter(sample.motion.level for sample in samples)
    return Counts(
        split={name: split[name] for name in SPLITS},
        film=dict(Counter(sample.film_id for sample in samples)),
        level={str(number): level[number] for number in range(1, 6)},
    )


def file_sha256(path: Path) -> str:
    """Hash of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_shards(dataset: Dataset, settings: ShardSettings, progress: Progress = silent) -> Index:
    """Publish the kept clips of all films, in the order the films were added.

    Raises:
        RecordError: a clip cannot be published; the shards of the previous run are unchanged.
    """
    root, record, vocabulary = dataset.root / "shards", dataset.record, load_vocabulary(dataset.root)
    plan = {
        f"{split}/{folder.film_id}-{number:06d}.tar": clips
        for folder in dataset.folders()
        for split, parts in _divide(kept_clips(folder, record, settings, vocabulary), settings.samples).items()
        for number, clips in enumerate(parts)
    }
    known = {shard.name: shard for shard in _previous(dataset.root)}
    total, done = sum(map(len, plan.values())), 0
    shards = []
    with ExitStack() as renamed_at_the_end:
        for name, clips in plan.items():
            shard = _unchanged(root, known.get(name), _ingredients(clips))
            if shard is None:
                temporary = renamed_at_the_end.enter_context(replacing(root / name))
                shard = _write_shard(temporary, name, clips)
            shards.append(shard)
            done += len(clips)
            progress(done, total)
    index = Index(
        settings=settings,
        counts=count([clip.sample for clips in plan.values() for clip in clips]),
        shards=tuple(shards),
        **record.model_dump(include={"flow_model", "edges", "level_values", "captioner"}),
    )
    write_json(root / "index.json", index.model_dump(mode="json"))
    _remove_leftovers(root, set(plan))
    return index


def read_index(dataset_root: Path) -> Index:
    """Read `shards/index.json` of the dataset in `dataset_root`. Raises StoreError if it is missing or damaged."""
    path = dataset_root / "shards" / "index.json"
    try:
        return Index.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise StoreError(f"{path}: no such file; run `animegamer build` to write the shards") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); run `animegamer build`") from error
    except ValidationError as error:
        raise StoreError(
            f"{path}: damaged, or of another version ({faults_of(error)}); run `animegamer build`"
        ) from error


def _previous(dataset_root: Path) -> Sequence[Shard]:
    try:
        return read_index(dataset_root).shards
    except StoreError:
        return ()  # without a valid index every shard is written


def _divide(clips: Iterable[KeptClip], target: int) -> dict[Split, list[list[KeptClip]]]:
    """Shards of each split: closed at the first scene end after `target` samples."""
    parts: dict[Split, list[list[KeptClip]]] = {split: [] for split in SPLITS}
    for clip in clips:
        shards = parts[clip.sample.split]
        if not shards or (len(shards[-1]) >= target and shards[-1][-1].sample.scene != clip.sample.scene):
            shards.append([])
        shards[-1].append(clip)
    return parts


def _ingredients(clips: Sequence[KeptClip]) -> Ingredients:
    return {"format": VERSION, "samples": [[clip.json, clip.text, clip.sha256] for clip in clips]}


def _unchanged(root: Path, shard: Shard | None, ingredients: Ingredients) -> Shard | None:
    """The shard's entry of the last run, if its ingredients are the same and its file is unchanged."""

    def hashes(names: Iterable[str]) -> dict[str, str]:
        return {name: file_sha256(root / name) for name in names if (root / name).is_file()}

    if shard is None or ResultNote(shard.made_from, {shard.name: shard.sha256}).why_stale(ingredients, hashes):
        return None
    return shard


def _write_shard(path: Path, name: str, clips: Sequence[KeptClip]) -> Shard:
    pack(
        path,
        (
            Packed(one.sample.clip_id, {"json": one.json.encode(), "mp4": one.video(), "txt": one.text.encode()})
            for one in clips
        ),
    )
    first, last = clips[0].sample, clips[-1].sample
    return Shard(
        name=name,
        split=first.split,
        film_id=first.film_id,
        samples=len(clips),
        bytes=path.stat().st_size,
        sha256=file_sha256(path),
        made_from=fingerprint(_ingredients(clips)),
        first_clip=first.clip_id,
        last_clip=last.clip_id,
    )


def _remove_leftovers(root: Path, names: Collection[str]) -> None:
    """Remove shards of earlier runs, and temporary files of killed runs."""
    for split in SPLITS:
        for path in (root / split).glob("*.tar"):
            if re.fullmatch(_SHARD_NAME, path.name) and f"{split}/{path.name}" not in names:
                path.unlink()
    sweep(root)
