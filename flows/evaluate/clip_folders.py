"""Folder of clips as an agent: games that were played elsewhere, `FOLDER/<game>/*.mp4`, a clip per turn.

The lines of `FOLDER/<game>/turns.jsonl`, if it exists, assign clips to turns: by instruction if every line has one and
all turns of the game differ, otherwise by id. Without that file, the number at the end of a clip's name is its turn
(`0001.mp4`, `scene-12.mp4`).

Clips with another frame rate are resampled to 8 frames per second; length and size stay. Clips that our readers would
decode wrongly (10-bit, full-range or odd-sized video) are encoded again. The agent's note lists what is changed or
missing.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from flows.evaluate.inputs import CLIPS, clips_of
from flows.game.folder import CRF
from models.checkpoint import identity_of
from pipeline.core.atomic import replacing
from pipeline.core.errors import disk_errors
from pipeline.core.plain_text import first_few
from pipeline.core.records import RecordError
from pipeline.video.clip_files import ClipShape, clip_shape, read_frames, write_clip
from training.evaluation.benchmark import Benchmark, BenchmarkGame
from training.evaluation.played import PlayedError, PlayedLine, no_turn, read_lines

FPS = Fraction(8)
"""Frame rate of the clips that are compared."""
MOST_NAMED = 5
"""Games named in a note; more are counted."""
_REMEDY = "mend or remove the line"
_NUMBER = re.compile(r"(\d{1,9})$")


@dataclass(frozen=True)
class Found:
    """Clip of a turn in a folder of clips."""

    path: Path
    shape: ClipShape
    line: PlayedLine


@dataclass(frozen=True)
class Survey:
    """Clips of a folder, by game and turn, and a note for readers of their metrics."""

    clips: dict[str, dict[int, Found]]
    note: str


def identity_of_clips(folder: Path) -> str:
    """Return a hash of the names and contents of all clips and logs."""
    files = [*clips_of(folder), *sorted(folder.glob("[!.]*/turns.jsonl"))]
    names = "\n".join(str(file.relative_to(folder)) for file in files)
    return hashlib.sha256(f"{names}\n{identity_of(files)}".encode()).hexdigest()[:16]


def survey(folder: Path, benchmark: Benchmark) -> Survey:
    """Assign the clips of a folder to the turns of a benchmark.

    Raises:
        PlayedError: no game of the benchmark is there, a clip cannot be used, or its turn is unclear.
    """
    clips = {game.name: _clips_by_turn(folder / game.name, game) for game in benchmark.games}
    if not any(clips.values()):
        theirs = sorted({path.parent.name for path in clips_of(folder)})
        raise PlayedError(
            f"{folder} has no folder named after a game of the benchmark. Its folders are "
            f"{first_few(theirs, MOST_NAMED)}; rename them to {first_few(list(clips), MOST_NAMED)}"
        )
    return Survey(clips, " ".join([*_shapes(clips), *_reordered(clips), *_gaps(clips, benchmark)]))


def bring_in(source: Path, benchmark: Benchmark, target: Path) -> None:
    """Copy the clips of the benchmark's games to an agent's folder, each game with a log; skip games that exist there.

    Raises:
        PlayedError: as `survey`.
        DiskError: a file cannot be copied.
    """
    for game, clips in survey(source, benchmark).clips.items():
        if (target / game / "turns.jsonl").exists():
            continue
        for turn, found in clips.items():
            with replacing(target / game / f"{turn:04d}.mp4") as temporary, disk_errors(found.path):
                _copy(found, temporary)
        lines = [found.line.model_copy(update={"id": f"{turn:04d}"}) for turn, found in sorted(clips.items())]
        if lines:
            with replacing(target / game / "turns.jsonl") as temporary:
                rows = (line.model_dump_json(exclude_defaults=True) for line in lines)
                temporary.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def _clips_by_turn(folder: Path, game: BenchmarkGame) -> dict[int, Found]:
    if (folder / "turns.jsonl").exists():
        turns = _in_order(folder, game, read_lines(folder, _REMEDY))
    else:
        turns = {turn: (path, PlayedLine(id=f"{turn:04d}")) for turn, path in _numbered(folder, game).items()}
    return {turn: Found(path, _checked(path), line) for turn, (path, line) in turns.items()}


def _in_order(folder: Path, game: BenchmarkGame, lines: Mapping[int, PlayedLine]) -> dict[int, tuple[Path, PlayedLine]]:
    """Assign the lines of a log to turns: by instruction if every line has one and all panels differ, else by id."""
    asked = [panel.instruction for panel in game.panels]
    if len(set(asked)) < len(asked) or not all(line.instruction for line in lines.values()):
        return _by_ids(folder, game, lines)
    for line in lines.values():
        if line.instruction not in asked:
            raise PlayedError(
                f'{_clip(folder, line)}: was played from "{line.instruction}", which the benchmark does not ask for in '
                f"game {game.name}; play the benchmark's instructions, or delete {folder / 'turns.jsonl'} to go by the "
                "names"
            )
    return {asked.index(line.instruction or "") + 1: (_clip(folder, line), line) for line in lines.values()}


def _by_ids(folder: Path, game: BenchmarkGame, lines: Mapping[int, PlayedLine]) -> dict[int, tuple[Path, PlayedLine]]:
    for number, line in lines.items():
        if not 1 <= line.turn <= len(game.panels):
            raise no_turn(folder, number, line, _REMEDY)
        asked = game.panels[line.turn - 1].instruction
        if line.instruction and line.instruction != asked:
            raise PlayedError(
                f'{_clip(folder, line)}: was played from "{line.instruction}", but the benchmark asks for '
                f'"{asked}" in turn {line.turn}; number the clips and lines in its order, or '
                f"delete {folder / 'turns.jsonl'} to go by the names"
            )
    return {line.turn: (_clip(folder, line), line) for line in sorted(lines.values(), key=lambda line: line.turn)}


def _clip(folder: Path, line: PlayedLine) -> Path:
    return folder / f"{line.id}.mp4"


def _numbered(folder: Path, game: BenchmarkGame) -> dict[int, Path]:
    """Assign clips to turns by the numbers at the end of their names."""
    paths = sorted(folder.glob(CLIPS))
    numbers = [int(found[1]) if (found := _NUMBER.search(path.stem)) else 0 for path in paths]
    if len(set(numbers)) < len(numbers) or not all(1 <= number <= len(game.panels) for number in numbers):
        raise PlayedError(
            f"{folder}: the names of its {len(paths)} clips do not say which of the game's {len(game.panels)} turns "
            "each shows; name them by turn, 0001.mp4, 0002.mp4, ..."
        )
    return dict(zip(numbers, paths, strict=True))


def _checked(path: Path) -> ClipShape:
    try:
        shape = clip_shape(path)
    except RecordError as error:
        raise PlayedError(f"{path}: {error.reason}; replace it, or remove it and count its turn as missing") from error
    if _frames_at(shape, FPS) < 2:
        raise PlayedError(f"{path}: {shape.frames} frames at {shape.fps} per second are too few to show motion")
    return shape


def _frames_at(shape: ClipShape, fps: Fraction) -> int:
    return round(shape.frames / shape.fps * fps)


def _copy(found: Found, target: Path) -> None:
    """Copy a clip, or encode it again at our frame rate (from the nearest earlier frames) and in our format."""
    shape = found.shape
    if shape.fps == FPS and shape.is_plain:
        shutil.copyfile(found.path, target)
        return
    places = [int(number * shape.fps / FPS) for number in range(_frames_at(shape, FPS))]
    frames_THWC = read_frames(found.path, lambda _: places, shape.width // 2 * 2, shape.height // 2 * 2)
    write_clip(target, np.rot90(frames_THWC, shape.quarter_turns, axes=(1, 2)), FPS, CRF)


def _shapes(clips: dict[str, dict[int, Found]]) -> list[str]:
    """Say the shapes of the clips, the most frequent one first."""
    counts = Counter(found.shape for turns in clips.values() for found in turns.values())
    said = [
        f"{count} clips of {shape.width}x{shape.height}, {float(shape.frames / shape.fps):.3g} s"
        + (f", resampled from {float(shape.fps):.4g} to {FPS} frames per second" if shape.fps != FPS else "")
        + (f", encoded again from {shape.coding}" if not shape.is_plain else "")
        + (", turned" if shape.quarter_turns else "")
        for shape, count in counts.most_common(MOST_NAMED)
    ]
    more = len(counts) - MOST_NAMED
    return ["; ".join(said) + (f"; and {more} other shapes." if more > 0 else ".")]


def _reordered(clips: dict[str, dict[int, Found]]) -> list[str]:
    """Name the games whose clips are in another order than the benchmark's turns."""
    moved = [name for name, turns in clips.items() if list(turns) != sorted(turns)]
    return [f"Clips sorted into the benchmark's order by instruction: {first_few(moved, MOST_NAMED)}."] if moved else []


def _gaps(clips: dict[str, dict[int, Found]], benchmark: Benchmark) -> list[str]:
    """Name the games and turns that are missing."""
    absent = [name for name, turns in clips.items() if not turns]
    partial = []
    for game in benchmark.games:
        left = [str(panel.turn) for panel in game.panels if panel.turn not in clips[game.name]]
        if left and clips[game.name]:
            partial.append(f"{game.name} (turns {', '.join(left)})")
    said = [f"Missing games: {first_few(absent, MOST_NAMED)}."] if absent else []
    return [*said, f"Missing turns: {first_few(partial, MOST_NAMED)}."] if partial else said
