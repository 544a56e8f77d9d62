"""Steps on files of the repository: finished networks kept between trainings, and the checkpoint of the package.

    keep       the finished networks of OUT, in half precision, into `examples/miniature/packed/networks`
    restore    those into another OUT, where the next step starts from them
    pack       the trained model as the checkpoint of the package, in `models/mini`; OUT/clip and OUT/recogniser
               beside the kept networks, for `make demo-eval`
    unpack     the checkpoint of the package into OUT

OUT/unpacked                                   the model of the package; OUT/model/adapt/result is a link to it
OUT/autoencoder/more/clips/result              its autoencoder with the trained image encoder: a start for `variants`
OUT/unpacked.json                              ingredients of both; another packed model replaces them

Without the hours of the steps from `autoencoder` to `adapt`, the recogniser, claims and drift then measure the
package's model.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from examples.commands import run_command
from examples.miniature.claims import MAIN
from examples.miniature.clip import PACKED as CLIP
from examples.miniature.dataset import CONFIG
from examples.miniature.encoders import FITTED, SEEN, start_of
from examples.miniature.model_runs import JOINT
from examples.miniature.other_words import OTHER_WORDS
from examples.miniature.recogniser_network import PACKED as RECOGNISER
from examples.miniature.recogniser_network import Recogniser
from examples.miniature.truth import Truths
from flows.console.terminal import say
from flows.game.folder import GameFolder
from models.checkpoint import Checkpoint
from models.checkpoint_writer import link_or_copy, writing
from models.config import Component, LevelScale, inside_id
from models.shipped import PACKED, pack, packed_identity, unpack
from pipeline.core.errors import UserError
from pipeline.core.ingredients import ResultNotes
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from pipeline.video.clip_files import read_clip
from training.data.shards import open_shards
from training.data.turns import read_texts

_ABOUT = (
    "This model has seen nothing but a small world drawn by code: the characters, motions and places above. It knows "
    "few other words. Of 60 turns clicked at random, 32 show who, where and what was asked, judged by eye, and 31 by a "
    "trained recogniser. The place is always right. Of turns like those of stories, 21 of 27 with one character are "
    "right, and 7 of 16 with two. The character who moves often dissolves. It has never seen two run, fly or fall."
)

_LEVELS = LevelScale(
    edges=CONFIG.motion.edges or PUBLISHED_EDGES,
    dis_scale=CONFIG.motion.scale,
    width=CONFIG.clips.width,
    height=CONFIG.clips.height,
)
HELD_OUT = {
    f"stories-{film}": story
    for film, story in enumerate((5, 9, 18, 24, 34, 39, 47, 51, 58, 69, 75, 78, 85, 96), start=1)
}
"""Story of each film in `val` when the packed model was trained. It follows from the bytes of the film, and so from the
versions of the packages that encode it."""
GAME = Path(__file__).with_name("game.txt")
KEPT = Path(__file__).parent / "packed" / "networks"
"""Finished networks, in the layout of the package."""
_FINISHED: Mapping[Path, tuple[Component, ...]] = {
    SEEN: ("image_encoder",),
    FITTED: ("image_encoder", "autoencoder"),
    JOINT: ("image_encoder", "autoencoder", "text_encoder", "transformer"),
    Path(MAIN, "game", "result"): ("image_encoder", "autoencoder", "text_encoder", "transformer", "language_model"),
}
"""Results of the steps in order, with the bases that are trained in them, and the random text encoder that the shot
encoder was trained with."""
_PLAYED = Path(MAIN, "adapt", "result")
"""Checkpoint that the package has."""
_RECOGNISER = "recogniser"
_NAMING = Path(_RECOGNISER, "result")
_COLUMNS, _GAP, _LINES = 2, 8, 2
_LINE_HEIGHT, _FONT = 18, 14


def keep_networks(out: Path, kept: Path = KEPT) -> None:
    """Replace the kept networks by the finished ones. UserError if none is finished."""
    finished = [(out / result, bases) for result, bases in _FINISHED.items() if (out / result).exists()]
    if not finished:
        raise UserError(f"{out} has no finished network: run the step `image-encoder` first")
    result, bases = finished[-1]
    pack(Checkpoint.open(result), start_of(out), kept, bases)
    names = list[str](bases)
    if (out / _NAMING).exists():
        _halve_recogniser(out, kept / _RECOGNISER)
        names.append(_RECOGNISER)
    say(f"{kept}: {', '.join(names)}, {_megabytes(kept):.1f} MB; commit them")


def _halve_recogniser(out: Path, packed: Path) -> None:
    named = Recogniser.open(out / _NAMING).half()
    packed.mkdir(parents=True, exist_ok=True)
    named.save(packed, named.state_dict())


def restore_networks(out: Path, kept: Path = KEPT) -> None:
    """Write the results that the kept networks come from, except those that are there.

    Raises:
        UserError: nothing is kept, or a file is damaged.
    """
    if not kept.exists():
        raise UserError(f"{kept} has no networks: run the first steps, and then the step `keep`")
    start = start_of(out)
    for result, bases in _FINISHED.items():
        if not (kept / inside_id(bases[-1])).exists():
            break
        if not (out / result).exists():
            unpack(kept, out / result, start, bases)
            say(f"{out / result}: {bases[-1]} from the kept networks")
    if (kept / _RECOGNISER).exists() and not (out / _NAMING).exists():
        shutil.copytree(kept / _RECOGNISER, out / _NAMING)
        say(f"{out / _NAMING}: the kept recogniser")


def pack_networks(out: Path, packed: Path = PACKED, clip: Path = CLIP, recogniser: Path = RECOGNISER) -> None:
    """Write the trained model, unless it is the package's own, its CLIP and its recogniser, in half precision.

    They replace the packed ones.

    Raises:
        UserError: one of them is not trained.
    """
    for step, result in (("clip", "clip"), ("recogniser", _NAMING)):
        if not (out / result).exists():
            raise UserError(f"{out / result} does not exist: run the step `{step}` first")
    if not (out / "unpacked.json").exists():
        _pack_model(out, packed)
    shutil.rmtree(clip, ignore_errors=True)
    shutil.copytree(out / "clip", clip)
    _halve_recogniser(out, recogniser)
    for folder in (clip, recogniser):
        say(f"{folder}: {_megabytes(folder):.1f} MB")


def _pack_model(out: Path, packed: Path) -> None:
    trained = Checkpoint.open(out / _PLAYED)
    start = Checkpoint.open(out / FITTED)
    described = Checkpoint(
        trained.folder, trained.config.replaced(about=_ABOUT, other_words=OTHER_WORDS, levels=_LEVELS)
    )
    pack(described, start, packed)
    say(f"{packed}: {_megabytes(packed):.1f} MB")
    if others := _other_stories(out):
        say(f"{others}: correct HELD_OUT in {__file__}")


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def unpack_model(out: Path, packed: Path = PACKED) -> None:
    """Put the packed model into the folders that the steps from `autoencoder` to `adapt` write.

    Raises:
        UserError: one of them has begun here, or the image encoder is not trained.
    """
    _refuse_training(out)
    encoder = out / SEEN
    if not encoder.exists():
        raise UserError(f"{encoder} does not exist: run the step `image-encoder` first")
    made_from = {"packed": packed_identity(packed), "image_encoder": Checkpoint.open(encoder).as_start()}
    ResultNotes(out / "unpacked.json").renew("unpacked", made_from, partial(_unpack, out, packed, encoder))
    say(f"the model of the package is in {out / 'unpacked'}; recogniser, claims and drift measure it")
    if others := _other_stories(out):
        say(f"{others}: on clips of these the figures are of what the model was trained on, not of held-out clips")


def _refuse_training(out: Path) -> None:
    trained = out / _PLAYED
    ours = (out / MAIN, out / FITTED) if trained.is_symlink() else ()
    for step in ("autoencoder", MAIN):
        # a killed unpacking leaves only folders
        files = (path for path in (out / step).rglob("*") if not path.is_dir())
        if any(not any(path.is_relative_to(folder) for folder in ours) for path in files):
            raise UserError(f"{out / step} holds a training: name another --out for the model of the package")


def _unpack(out: Path, packed: Path, encoder: Path) -> list[Path]:
    """Write the packed model and the start, which replace those of another package. Return their files."""
    unpacked, start, trained = out / "unpacked", out / FITTED, out / _PLAYED
    shutil.rmtree(unpacked, ignore_errors=True)
    unpack(packed, unpacked)
    if not trained.is_symlink():  # before the start, since it tells an interrupted unpacking from a training
        trained.parent.mkdir(parents=True, exist_ok=True)
        trained.symlink_to(os.path.relpath(unpacked, trained.parent), target_is_directory=True)
    shutil.rmtree(start, ignore_errors=True)
    _write_start(start, encoder, unpacked / inside_id("autoencoder"))
    return [path for folder in (unpacked, start) for path in folder.rglob("*") if path.is_file()]


def _other_stories(out: Path) -> str:
    """Name the stories that OUT/dataset holds out but the package's model was trained on; "" if there are none."""
    truths = Truths.read(out)
    here = [truths.of(turn.sample) for turn in read_texts(open_shards(out / "dataset", "val"))]
    others = sorted({(facts.film, facts.story) for facts in here} - HELD_OUT.items())
    if not others:
        return ""
    named, expected = (", ".join(f"{story} of {film}" for film, story in each) for each in (others, HELD_OUT.items()))
    return f"{out / 'dataset'} holds out the stories {named}, but the package's model was trained without {expected}"


def _write_start(start: Path, encoder: Path, autoencoder: Path) -> None:
    """Write the checkpoint of the trained image encoder with another autoencoder."""
    with writing(start) as part:
        shutil.copytree(encoder, part, copy_function=link_or_copy, dirs_exist_ok=True)
        replaced = part / inside_id("autoencoder")
        shutil.rmtree(replaced)
        shutil.copytree(autoencoder, replaced, copy_function=link_or_copy)


def draw_strip(out: Path) -> Path:
    """Play the game unless it is played, and draw the strip. Return its path."""
    folder = folder_of_game(out)
    run_command("play", "--game", GAME, "--out", folder)
    game = GameFolder.open(folder)
    turns = [
        turn_picture(f"{number}. {turn.instruction}", read_clip(game.clip_path(turn.id)))
        for number, turn in enumerate(game.turns, start=1)
    ]
    path = out / "strip.png"
    sheet(turns, _COLUMNS).save(path)
    say(f"the strip: {path}")
    return path


def folder_of_game(out: Path, packed: Path = PACKED) -> Path:
    """Return the folder of the packed model's game: another model cannot continue a game."""
    return out / "strip" / packed_identity(packed)


def turn_picture(caption: str, frames_THWC: NDArray[np.uint8]) -> Image.Image:
    """Draw a turn: three frames (BGR) above its instruction."""
    chosen = [frames_THWC[at][:, :, ::-1] for at in (0, len(frames_THWC) // 2, -1)]
    frames = Image.fromarray(np.concatenate(chosen, axis=1))
    picture = Image.new("RGB", (frames.width, frames.height + _LINES * _LINE_HEIGHT), "white")
    picture.paste(frames)
    font = ImageFont.load_default(_FONT)
    lines = textwrap.wrap(caption, width=int(frames.width / (0.5 * _FONT)))[:_LINES]
    for number, line in enumerate(lines):
        ImageDraw.Draw(picture).text((2, frames.height + number * _LINE_HEIGHT), line, fill="black", font=font)
    return picture


def sheet(turns: Sequence[Image.Image], columns: int) -> Image.Image:
    """Arrange pictures of one size in columns."""
    width, height = turns[0].width + _GAP, turns[0].height + _GAP
    rows = -(-len(turns) // columns)
    arranged = Image.new("RGB", (width * columns - _GAP, height * rows - _GAP), "white")
    for number, turn in enumerate(turns):
        arranged.paste(turn, (number % columns * width, number // columns * height))
    return arranged
