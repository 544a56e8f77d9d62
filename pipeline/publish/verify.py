"""Verification of published shards against the index, the tables they were made from, and their own claims.

Each check is a generator of faults. Checks of one sample run in worker threads, because they decode the clip; checks
across samples run at the end.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile

from pydantic import ValidationError

from pipeline.core.atomic import is_temporary
from pipeline.core.config import ShardSettings
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Clip, RecordError
from pipeline.core.store import Dataset, DatasetRecord, StoreError
from pipeline.publish.samples import KeptClip, Sample, SampleSound, kept_clips
from pipeline.publish.shards import MEMBERS, Index, Packed, Shard, count, file_sha256, read_index, unpack
from pipeline.publish.vocabulary import load_vocabulary
from pipeline.stages.motion_levels import level_of
from pipeline.video.film_reader import FilmReader
from pipeline.video.sound_files import read_sound

REBUILD = "delete shards/index.json and run `animegamer build` again"
"""Remedy of most faults: without an index every shard is written again."""
_TIME_TOLERANCE_SECONDS = 1e-3


@dataclass(frozen=True)
class Fault:
    """Fault of a dataset: file, description, remedy."""

    where: str
    what: str
    remedy: str = REBUILD

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"


@dataclass(frozen=True)
class Checked:
    """A sample after the checks on it alone; `sample` is None if its JSON is invalid."""

    key: str
    shard: str
    sample: Sample | None
    faults: tuple[Fault, ...]


@dataclass
class Expected:
    """Kept clips according to the tables."""

    kept: dict[str, KeptClip] = field(default_factory=dict)
    unusable_films: set[str] = field(default_factory=set)
    """Ids of films with unreadable tables: their samples are checked alone, not against the tables."""
    faults: list[Fault] = field(default_factory=list)


def verify(dataset: Dataset, threads: int = 0, progress: Progress = silent) -> list[Fault]:
    """Find all faults of the shards of a dataset; none if they fulfil the data contract. 0 threads is one per core."""
    try:
        record, index = dataset.record, read_index(dataset.root)
    except StoreError as error:
        return [Fault("shards", str(error), "nothing else was checked")]
    root = dataset.root / "shards"
    expected = _expected(dataset, record, index.settings)
    faults = [*expected.faults, *_index_faults(index, record), *_file_faults(root, index)]
    checked: list[Checked] = []
    total = sum(shard.samples for shard in index.shards)
    workers = threads or os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:

        def check(packed: Packed, shard: Shard) -> Checked:
            return _check(packed, shard, index, expected)

        for shard in index.shards:
            problems = list(_bytes_problems(root / shard.name, shard))
            samples = unpack(root / shard.name, problems) if (root / shard.name).is_file() else iter(())
            while batch := list(islice(samples, 4 * workers)):  # at most these are in memory
                checked += pool.map(check, batch, [shard] * len(batch))
                progress(len(checked), total)
            faults += [Fault(f"shards/{shard.name}", problem) for problem in problems]
    faults += [fault for one in checked for fault in one.faults]
    return [*faults, *_order_faults(index, checked), *_split_faults(checked), *_missing_faults(expected, checked)]


def _expected(dataset: Dataset, record: DatasetRecord, settings: ShardSettings) -> Expected:
    expected, vocabulary = Expected(), load_vocabulary(dataset.root)
    for folder in dataset.folders():
        try:
            expected.kept |= {kept.clip.clip_id: kept for kept in kept_clips(folder, record, settings, vocabulary)}
        except (RecordError, StoreError) as error:
            expected.unusable_films.add(folder.film_id)
            expected.faults.append(Fault(f"films/{folder.film_id}", str(error)))
    return expected


def _index_faults(index: Index, record: DatasetRecord) -> Iterator[Fault]:
    """Faults of the index, by itself and against dataset.json."""
    where = "shards/index.json"
    for name in ("flow_model", "edges", "level_values", "captioner"):
        if getattr(index, name) != getattr(record, name):
            yield Fault(where, f"{name} is {getattr(index, name)}, dataset.json says {getattr(record, name)}")
    for name, times in Counter(shard.name for shard in index.shards).items():
        if times > 1:
            yield Fault(where, f"lists {name} {times} times")
    for shard in index.shards:
        if not re.fullmatch(rf"{shard.split}/{re.escape(shard.film_id)}-[0-9]{{6}}\.tar", shard.name):
            yield Fault(where, f"lists {shard.name} as {shard.split} of film {shard.film_id}")


def _file_faults(root: Path, index: Index) -> Iterator[Fault]:
    """Files in the folder that are not listed."""
    listed = {"index.json", *(shard.name for shard in index.shards)}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name not in listed and not path.is_dir():
            if is_temporary(path):
                yield Fault(f"shards/{name}", "was left by an interrupted build", "`animegamer build` removes it")
            else:
                yield Fault(f"shards/{name}", "is not listed in index.json", "move it out of shards/")


def _bytes_problems(path: Path, shard: Shard) -> Iterator[str]:
    if path.is_symlink() or not path.is_file():
        yield "is listed in index.json, but there is no such file"
    elif path.stat().st_size != shard.bytes:
        yield f"has {path.stat().st_size} bytes, index.json says {shard.bytes}"
    elif file_sha256(path) != shard.sha256:
        yield "its sha256 is not the one in index.json: it was changed or damaged"


def _check(packed: Packed, shard: Shard, index: Index, expected: Expected) -> Checked:
    """Check one sample alone and against its tables."""
    where = f"shards/{shard.name}: {packed.key}"
    missing = [extension for extension in MEMBERS if extension not in packed.members]
    if missing:
        return Checked(packed.key, shard.name, None, (Fault(where, f"lacks its {' and '.join(missing)}"),))
    try:
        sample = Sample.model_validate_json(packed.members["json"])
    except ValidationError as error:
        fault = error.errors()[0]
        what = f"its json is not a sample ({'.'.join(map(str, fault['loc']))}: {fault['msg']})"
        return Checked(packed.key, shard.name, None, (Fault(where, what),))
    problems = [*_claim_problems(packed.key, sample, shard, index)]
    kept = expected.kept.get(packed.key)
    if kept:
        problems += _table_problems(packed, sample, kept)
    elif shard.film_id not in expected.unusable_films:
        problems.append("is not a clip that the verdicts keep")
    problems += _video_problems(packed.members["mp4"], sample, kept.clip if kept else None)
    return Checked(packed.key, shard.name, sample, tuple(Fault(where, problem) for problem in problems))


def _claim_problems(key: str, sample: Sample, shard: Shard, index: Index) -> Iterator[str]:
    """Problems of the sample against its key, its shard and the facts of the whole dataset."""
    motion, caption = sample.motion, sample.caption
    claims = [
        ("clip_id", sample.clip_id, key),
        ("film_id", sample.film_id, shard.film_id),
        ("split", sample.split, shard.split),
        ("motion.flow_model", motion.flow_model, index.flow_model),
        ("motion.edges", motion.edges, index.edges),
        ("motion.level", motion.level, level_of(motion.scope_px, motion.edges)),
        ("camera.px", sample.camera.px, motion.camera_px),
        ("caption.source", caption.source, index.captioner if caption.source else None),
    ]
    for name, value, right in claims:
        if value != right:
            yield f"its {name} is {value}, it should be {right}"
    seconds = sample.end_seconds - sample.start_seconds + _TIME_TOLERANCE_SECONDS
    for line in sample.dialogue or ():
        if not line.start_seconds < line.end_seconds <= seconds:
            yield f"its dialogue has a line from {line.start_seconds} to {line.end_seconds}, outside the clip"


def _table_problems(packed: Packed, sample: Sample, kept: KeptClip) -> Iterator[str]:
    """Problems of the sample against the film's tables."""
    differing = list(_differing(sample.model_dump(), kept.sample.model_dump()))
    if differing:
        yield f"its json and the film's tables differ in {', '.join(differing)}"
    elif packed.members["json"] != kept.json.encode():
        yield "its json is written in another form than this version's"
    if packed.members["txt"] != kept.text.encode():
        yield f"its txt is not the instruction of its caption, {kept.text!r}"
    if hashlib.sha256(packed.members["mp4"]).hexdigest() != kept.sha256:
        yield "its mp4 is not the clip that was cut"


def _differing(here: Mapping[str, object], there: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    for name, value in here.items():
        other = there[name]
        if isinstance(value, dict) and isinstance(other, dict):
            yield from _differing(value, other, f"{prefix}{name}.")
        elif value != other:
            yield prefix + name


def _video_problems(mp4: bytes, sample: Sample, clip: Clip | None) -> Iterator[str]:
    """Problems of the decoded mp4: number, times and size of its frames, and its sound."""
    with NamedTemporaryFile(suffix=".mp4") as file:
        file.write(mp4)
        file.flush()
        try:
            with FilmReader(Path(file.name), threads=1) as reader:
                frames = [(frame.seconds, (frame.picture.width, frame.picture.height)) for frame in reader.frames()]
            if sample.sound:
                yield from _sound_problems(Path(file.name), sample, sample.sound)
        except RecordError as error:
            yield f"its mp4 cannot be decoded: {error.reason}"
            return
    if len(frames) != sample.frames or reader.damage:
        yield f"its mp4 has {len(frames)} intact frames, it should have {sample.frames}"
    elif any(abs(at - number / sample.fps) > _TIME_TOLERANCE_SECONDS for number, (at, _) in enumerate(frames)):
        yield f"its mp4 does not run at {sample.fps} frames per second"
    sizes = {size for _, size in frames}
    if clip and sizes - {(clip.width, clip.height)}:
        yield f"its mp4 has frames of {sorted(sizes)} pixels, they should have {(clip.width, clip.height)}"


def _sound_problems(path: Path, sample: Sample, sound: SampleSound) -> Iterator[str]:
    """Problems of the decoded sound: it lasts as long as the clip, to the sample."""
    found, wanted = read_sound(path).shape, (sound.channels, round(sample.frames / sample.fps * sound.sample_rate))
    if found != wanted:
        yield "its sound has {} channels of {} samples, it should have {} of {}".format(*found, *wanted)


def _order_faults(index: Index, checked: Sequence[Checked]) -> Iterator[Fault]:
    """Faults of keys: each must occur once, in time order, as many as the index counts."""
    keys_of = defaultdict[str, list[str]](list)
    shard_of: dict[str, str] = {}
    for one in checked:
        keys_of[one.shard].append(one.key)
        if one.key in shard_of:
            yield Fault(f"shards/{one.shard}: {one.key}", f"this key was already in {shard_of[one.key]}")
        shard_of[one.key] = one.shard
    for shard in index.shards:
        keys, where = keys_of[shard.name], f"shards/{shard.name}"
        if keys != sorted(keys):
            yield Fault(where, "its samples are not in time order")
        if len(keys) != shard.samples:
            yield Fault(where, f"holds {len(keys)} samples, index.json says {shard.samples}")
        elif [keys[0], keys[-1]] != [shard.first_clip, shard.last_clip]:
            yield Fault(where, "its first or last clip is another than index.json says")
    samples = [one.sample for one in checked if one.sample]
    if len(samples) == len(checked) and count(samples) != index.counts:
        yield Fault("shards/index.json", "its counts are not those of the samples")


def _split_faults(checked: Sequence[Checked]) -> Iterator[Fault]:
    """Scenes in more than one shard; across splits, neighbouring clips leak from training into validation."""
    shards_of = defaultdict[tuple[str, int], dict[str, str]](dict)
    for one in checked:
        if one.sample:
            shards_of[one.sample.film_id, one.sample.scene][one.shard] = one.sample.split
    for (film_id, scene), splits in shards_of.items():
        if len(splits) > 1:
            what = "leaks from one split into the other" if len(set(splits.values())) > 1 else "is torn apart"
            yield Fault(f"films/{film_id}: scene {scene}", f"{what}: its clips lie in {' and '.join(sorted(splits))}")


def _missing_faults(expected: Expected, checked: Iterable[Checked]) -> Iterator[Fault]:
    """Kept clips that are in no shard, by film."""
    found = {one.key for one in checked}
    missing = defaultdict[str, list[str]](list)
    for clip_id, kept in expected.kept.items():
        if clip_id not in found:
            missing[kept.clip.film_id].append(clip_id)
    for film_id, clip_ids in missing.items():
        yield Fault(f"films/{film_id}", f"{len(clip_ids)} kept clips are in no shard, the first is {clip_ids[0]}")
