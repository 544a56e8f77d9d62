"""Note of what a folder of training was begun with (`made_from.json`): begun with something else, it is refused."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from pipeline.core.atomic import write_json
from pipeline.core.errors import UserError
from pipeline.core.ingredients import Ingredients, changed, read_note

_NOTE = "made_from.json"


def refuse_another(folder: Path, ingredients: Ingredients) -> None:
    """Compare the ingredients with those that the folder was begun with, if it was begun.

    Raises:
        UserError: they differ, or the note is damaged.
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
    """Note what the folder is begun with, unless that is noted already."""
    if not (folder / _NOTE).exists():
        write_json(folder / _NOTE, ingredients)
