"""Notes of training folders: folders of other ingredients are refused."""

import json
from pathlib import Path

import pytest

from pipeline.core.errors import UserError
from training.phase_folder import check_made_from, note_made_from

FIT = {"start": "cc", "data": {"train": "aa", "val": "bb"}, "settings": {"clips": {"rate": 2e-3, "steps": 900}}}
"""Ingredients of the autoencoder phase."""


def test_a_folder_of_the_same_ingredients_goes_on(tmp_path: Path) -> None:
    check_made_from(tmp_path / "new", FIT)
    assert not (tmp_path / "new").exists()
    note_made_from(tmp_path / "new", FIT)
    assert json.loads((tmp_path / "new" / "made_from.json").read_text()) == FIT
    check_made_from(tmp_path / "new", FIT)


def test_a_folder_of_other_ingredients_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    note_made_from(tmp_path, FIT)
    other = {**FIT, "start": "dd", "settings": {"clips": {"rate": 1e-3, "steps": 900}}}
    with pytest.raises(UserError, match=r"was begun with another settings.clips.rate and another start: name another"):
        check_made_from(tmp_path, other)


@pytest.mark.parametrize("damaged", ["", "{", "[]"])
def test_a_damaged_note_is_an_error_with_a_remedy(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "made_from.json").write_text(damaged)
    with pytest.raises(UserError, match=rf"made_from.json is damaged: remove {tmp_path} to train it again"):
        check_made_from(tmp_path, FIT)
