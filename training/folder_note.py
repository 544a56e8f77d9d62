"""Ingredients of a training folder (`made_from.json`): resuming with different ingredients is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from pipeline.core.atomic import write_json
from pipeline.core.errors import UserError
from pipeline.core.ingredients import Ingredients, changed, read_note

_NOTE = "made_from.json"


def refuse_another(
    folder: Path,
    ingredients: Ingredients,
    compared: Callable[[Ingredients], Ingredients] = lambda same: same,
) -> None:
    """Compare the ingredients with those noted in the folder, if there is a note.

    Args:
        folder: the training folder.
        ingredients: those of now.
        compared: function that leaves out ingredients which may change in the same folder.

    Raises:
        UserError: the ingredients differ, or the note is damaged.
    """
    try:
        before = read_note(folder / _NOTE)
    except ValidationError as error:
        raise UserError(f"{folder / _NOTE} is damaged: remove {folder} to train it again") from error
    if before is None:
        return
    if names := changed(compared(before), compared(ingredients)):
        raise UserError(
            f"{folder} was begun with another {' and another '.join(names)}: name another --out, or remove that "
            "folder to train it again"
        )


def note(folder: Path, ingredients: Ingredients) -> None:
    """Write the ingredients into the folder, unless they are noted already."""
    if read_note(folder / _NOTE) != ingredients:
        write_json(folder / _NOTE, ingredients)
