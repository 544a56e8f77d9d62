"""Notes of training folders: those of every version are read, and folders of other ingredients are refused."""

import json
from pathlib import Path

import pytest

from pipeline.core.errors import UserError
from training.folder_note import note, refuse_another

PHASE = {"data": "aa bb", "start": "cc", "recipe": '{"steps":3}'}
FIT = {"start": "cc", "data": {"train": "aa", "val": "bb"}, "settings": {"clips": {"rate": 2e-3, "steps": 900}}}
OLDER = [
    (PHASE, '{"data":"aa bb","start":"cc","recipe":"{\\"steps\\":3}"}'),
    (FIT, json.dumps(FIT)),
]
"""Ingredients and their notes as written by earlier versions: of a phase, and of the autoencoder phase."""


@pytest.mark.parametrize(("ingredients", "written"), OLDER)
def test_a_folder_of_an_earlier_version_is_continued(
    tmp_path: Path, ingredients: dict[str, object], written: str
) -> None:
    path = tmp_path / "made_from.json"
    path.write_text(written)
    refuse_another(tmp_path, ingredients)
    note(tmp_path, ingredients)
    assert path.read_text() == written


def test_the_note_of_a_new_folder_can_be_read_by_earlier_versions(tmp_path: Path) -> None:
    refuse_another(tmp_path / "new", FIT)
    assert not (tmp_path / "new").exists()
    note(tmp_path / "new", FIT)
    assert json.loads((tmp_path / "new" / "made_from.json").read_text()) == FIT
    refuse_another(tmp_path / "new", FIT)


def test_an_ingredient_that_an_older_note_lacks_is_not_compared(tmp_path: Path) -> None:
    note(tmp_path, PHASE)
    ordered = {**PHASE, "order": "one two"}
    refuse_another(tmp_path, ordered, later=("order",))
    note(tmp_path, ordered)
    refuse_another(tmp_path, ordered, later=("order",))
    with pytest.raises(UserError, match="was begun with another order"):
        refuse_another(tmp_path, {**PHASE, "order": "two one"}, later=("order",))


def test_a_folder_of_other_ingredients_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    note(tmp_path, FIT)
    other = {**FIT, "start": "dd", "settings": {"clips": {"rate": 1e-3, "steps": 900}}}
    with pytest.raises(UserError, match=r"was begun with another settings.clips.rate and another start: name another"):
        refuse_another(tmp_path, other)


@pytest.mark.parametrize("damaged", ["", "{", "[]"])
def test_a_damaged_note_is_an_error_with_a_remedy(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "made_from.json").write_text(damaged)
    with pytest.raises(UserError, match=rf"made_from.json is damaged: remove {tmp_path} to train it again"):
        refuse_another(tmp_path, PHASE)
