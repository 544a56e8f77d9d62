"""Folder of clips as an agent: games that were played elsewhere, `FOLDER/<game>/*.mp4`, a clip per turn.

With `FOLDER/<game>/turns.jsonl`, its lines name the clips. Without it, a number at the end of a clip's name is its turn
(`0001.mp4`, `scene-12.mp4`).
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

from models.checkpoint import identity_of
from pipeline.core.atomic import replacing
from pipeline.core.errors import disk_errors
from training.evaluation.benchmark import Benchmark, BenchmarkGame
from training.evaluation.played import PlayedError, read_game

_NUMBER = re.compile(r"(\d{1,9})$")


def clips_of(folder: Path) -> list[Path]:
    """Return the clips of all games in a folder."""
    return sorted(folder.glob("*/*.mp4"))


def identity_of_clips(folder: Path) -> str:
    """Return a hash of the names and contents of all clips and logs."""
    files = [*clips_of(folder), *sorted(folder.glob("*/turns.jsonl"))]
    names = "\n".join(str(file.relative_to(folder)) for file in files)
    return hashlib.sha256(f"{names}\n{identity_of(files)}".encode()).hexdigest()[:16]


def bring_in(source: Path, benchmark: Benchmark, target: Path) -> None:
    """Copy the clips of the benchmark's games, with a log, to an agent's folder of games.

    Raises:
        PlayedError: it is unknown which clip shows which turn.
        DiskError: a file cannot be copied.
    """
    chosen = {game.name: _clips_by_turn(source / game.name, game) for game in benchmark.games}
    for name, clips in chosen.items():
        if clips:
            _copy(source / name, clips, target / name)


def _clips_by_turn(folder: Path, game: BenchmarkGame) -> dict[int, Path]:
    """Return the clips of a game by turn."""
    if (folder / "turns.jsonl").exists():
        return {turn.panel.turn: turn.clip for turn in read_game("", game.panels, folder)}
    numbers = {path: _NUMBER.search(path.stem) for path in sorted(folder.glob("*.mp4"))}
    clips = {int(number[1]): path for path, number in numbers.items() if number}
    if len(clips) < len(numbers) or not all(1 <= turn <= len(game.panels) for turn in clips):
        raise PlayedError(
            f"{folder}: which clip shows which of the {len(game.panels)} turns is unclear; "
            "name the clips by turn: 0001.mp4, 0002.mp4, ..."
        )
    return clips


def _copy(source: Path, clips: dict[int, Path], target: Path) -> None:
    log = source / "turns.jsonl"
    with disk_errors(target):
        given = [json.loads(line) for line in log.read_bytes().splitlines()] if log.exists() else []
    lines = {int(line["id"].split("-")[0]): line for line in given}
    for turn, clip in clips.items():
        with replacing(target / f"{turn:04d}.mp4") as temporary, disk_errors(clip):
            shutil.copyfile(clip, temporary)
    rows = [{**lines.get(turn, {}), "id": f"{turn:04d}"} for turn in sorted(clips)]
    with replacing(target / "turns.jsonl") as temporary:
        temporary.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
