"""Checks at launch, before anything is encoded: captions, frames, instructions, neighbours, whole batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from models.tokens import MOST_INSTRUCTION_TOKENS, instruction_ids, shipped_tokenizer
from pipeline.core.errors import UserError
from pipeline.publish.samples import is_by_rules_alone
from training.config import LoopSettings, Recipe, WindowSettings
from training.data.phrasing import wordings
from training.data.turns import RecordedTurn
from training.data.windows import Windows

_MOST_REPEATED = 20
"""Largest factor by which windows of one length may be repeated more often than windows of one turn."""


def check_dataset(turns: Sequence[RecordedTurn], recipe: Recipe, source: str) -> None:
    """Check that the training clips of a dataset go with a recipe.

    Raises:
        UserError: they do not; the message says how to fix it.
    """
    check_captions(turns, source)
    check_frames(turns, recipe.model.shot_decoder.frames, source)
    if recipe.game.loop.steps:
        check_instructions(turns, source)
        check_windows(turns, recipe.game.windows, source)


def check_captions(turns: Sequence[RecordedTurn], source: str, part: str = "") -> None:
    """Check that the clips have captions by a model or a person.

    Args:
        part: name of the clips' part of the dataset, if they are not all of it.

    Raises:
        UserError: no clip has a caption, or all captions are by rules, which know neither characters nor actions, and
            no review has added a subject.
    """
    captioned = [turn for turn in turns if turn.instruction]
    remedy = "build it again with a captioner that is a model: `captions.captioner`"
    what = f"{source}{part and f', {part},'}"
    if not captioned:
        raise UserError(f"{what} has no captions to learn from: {remedy}")
    if by_rules_alone(captioned) == len(captioned):
        raise UserError(
            f"{what} has captions by rules only, without characters and actions: {remedy}, or label its clips"
            f" with `animegamer review {source}`"
        )


def by_rules_alone(turns: Iterable[RecordedTurn]) -> int:
    """Return the number of clips with an instruction that names neither character nor subject, as rules write it."""
    return sum(is_by_rules_alone(turn.sample.caption) for turn in turns if turn.instruction)


def check_frames(turns: Sequence[RecordedTurn], frames: int, source: str) -> None:
    """Check that the clips have the frames of the shot decoder, or one less.

    Raises:
        UserError: a clip has another number of frames.
    """
    if others := {turn.sample.frames for turn in turns} - {frames - 1, frames}:
        raise UserError(
            f"{source} has clips of {others.pop()} frames, but this model takes {frames - 1} or {frames}: set "
            "`clips.frames` and build again"
        )


def check_batch(phase: str, loop: LoopSettings, processes: int) -> None:
    """Check that the processes can share a batch evenly. UserError if they cannot, with the nearest batches."""
    share, rest = divmod(loop.batch_size, processes)
    if rest:
        nearest = " or ".join(str(each * processes) for each in (share, share + 1) if each)
        raise UserError(
            f"{phase}: {processes} processes cannot share a batch of {loop.batch_size}: set its batch_size to {nearest}"
        )


def check_instructions(turns: Sequence[RecordedTurn], source: str) -> None:
    """Check that the instructions fit into a prompt, also in the other words in which they are trained.

    Raises:
        UserError: one is too long; the message names its clip.
    """
    tokenizer = None
    for turn in turns:
        for text in wordings(turn) if turn.instruction else ():
            if len(text.encode()) <= MOST_INSTRUCTION_TOKENS:
                continue  # a token has at least one byte
            tokenizer = tokenizer or shipped_tokenizer()
            try:
                instruction_ids(tokenizer, text)
            except UserError as error:
                remedy = "with fewer or shorter names, or drop the clip (`animegamer review`)"
                raise UserError(f"{source}, clip {turn.clip_id}: {error}, {remedy}") from error


def check_windows(turns: Sequence[RecordedTurn], settings: WindowSettings, source: str) -> None:
    """Check that enough turns have the past turns of the longest windows.

    Raises:
        UserError: windows of one length are too few, so that each of them would be repeated too often.
    """
    windows = Windows(turns, settings)
    enough = [reached for reached in windows.reached if reached * _MOST_REPEATED >= len(windows)]
    if len(enough) < settings.most_turns:
        found = dict(enumerate(windows.reached, start=1)).get(len(enough) + 1, 0)
        neighbours = f"{found} of {len(windows)} turns have {len(enough)} past turns in a row"
        raise UserError(
            f"{source} has too few neighbours for windows: {neighbours}. Set game.windows.most_turns = "
            f"{max(1, len(enough))} (play then sees as many turns), raise game.windows.most_gap (now "
            f"{settings.most_gap}), or build a dataset that keeps more clips"
        )
