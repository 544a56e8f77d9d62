"""Ingredients of a training folder (`made_from.json`): resuming with different ingredients is an error."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from pipeline.core.atomic import write_json
from pipeline.core.errors import UserError
from pipeline.core.ingredients import Ingredients, changed, read_note

_NOTE = "made_from.json"


def refuse_another(folder: Path, ingredients: Ingredients) -> None:
    """Compare the ingredients with those noted in the folder, if there is a note.

    Raises:
        UserError: the ingredients differ, or the note is damaged.
    """
    try:
        before = read_note(folder / _NOTE)
    except ValidationError as error:
        raise UserError(f"{folder / _NOTE} is damaged: remove {folder} to train it again") from error
    if before is not None and (names := changed(before, ingredients)):
        raise UserError(
            f"{folder} was begun with another {' and another '.join(names)}: name another --out, or remove that "
            "folder to train it again"
        )


def note(folder: Path, ingredients: Ingredients) -> None:
    """Write the ingredients into the folder, unless it already has a note."""
    if not (folder / _NOTE).exists():
        write_json(folder / _NOTE, ingredients)
