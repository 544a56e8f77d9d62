"""Strip of eight turns of a game by the packed model, by a rule that leaves nothing to taste.

The game is `game.txt` beside this file, the first scenes of the first held-out story, played with seed 0. Every turn is
shown by its first, middle and last frame.

    OUT/strip/MODEL/    the game, as `animegamer play --game` writes it; another packed model plays another
    OUT/strip.png       the picture
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from examples.commands import run_command
from flows.console.terminal import say
from flows.game.folder import GameFolder
from models.shipped import PACKED, packed_identity
from pipeline.video.clip_files import read_clip

GAME = Path(__file__).with_name("game.txt")
_COLUMNS, _SCALE, _GAP, _LINES = 2, 2, 8, 2
_LINE_HEIGHT, _FONT = 18, 14


def draw_strip(out: Path) -> Path:
    """Play the game unless it is played, and draw the strip. Return its path."""
    folder = folder_of_game(out)
    run_command("play", "--game", GAME, "--out", folder)
    game = GameFolder.open(folder)
    turns = [
        _turn(f"{number}. {turn.instruction}", read_clip(game.clip_path(turn.id)))
        for number, turn in enumerate(game.turns, start=1)
    ]
    path = out / "strip.png"
    _sheet(turns).save(path)
    say(f"the strip: {path}")
    return path


def folder_of_game(out: Path, packed: Path = PACKED) -> Path:
    """Return the folder of the packed model's game, since a game goes on only with the model that began it."""
    return out / "strip" / packed_identity(packed)


def _turn(caption: str, frames_THWC: NDArray[np.uint8]) -> Image.Image:
    """Draw a turn: three frames (BGR) above its instruction."""
    chosen = [frames_THWC[at][:, :, ::-1] for at in (0, len(frames_THWC) // 2, -1)]
    frames = Image.fromarray(np.concatenate(chosen, axis=1))
    frames = frames.resize((frames.width * _SCALE, frames.height * _SCALE), Image.Resampling.LANCZOS)
    picture = Image.new("RGB", (frames.width, frames.height + _LINES * _LINE_HEIGHT), "white")
    picture.paste(frames)
    font = ImageFont.load_default(_FONT)
    lines = textwrap.wrap(caption, width=int(frames.width / (0.5 * _FONT)))[:_LINES]
    for number, line in enumerate(lines):
        ImageDraw.Draw(picture).text((2, frames.height + number * _LINE_HEIGHT), line, fill="black", font=font)
    return picture


def _sheet(turns: Sequence[Image.Image]) -> Image.Image:
    width, height = turns[0].width + _GAP, turns[0].height + _GAP
    rows = -(-len(turns) // _COLUMNS)
    sheet = Image.new("RGB", (width * _COLUMNS - _GAP, height * rows - _GAP), "white")
    for number, turn in enumerate(turns):
        sheet.paste(turn, (number % _COLUMNS * width, number // _COLUMNS * height))
    return sheet
