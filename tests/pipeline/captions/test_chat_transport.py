"""Chat transport: the model that answers must be the one that was asked."""

from __future__ import annotations

import pytest

from pipeline.captions.chat_protocol import is_same_model


@pytest.mark.parametrize(
    ("answered", "asked", "same"),
    [
        ("OpenGVLab/InternVL2-26B", "internvl2-26b", True),
        ("/models/InternVL2-26B/", "OpenGVLab/InternVL2-26B", True),
        ("gpt-4o-2024-08-06", "gpt-4o", True),
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("/models/InternVL2-26B@main", "OpenGVLab/InternVL2-26B", True),
        ("org/InternVL2-26B@refs/pr/1", "internvl2-26b", True),
        ("InternVL2-26B@main", "InternVL2-26B@46f3797", False),
        ("InternVL2-8B@main", "InternVL2-26B", False),
        ("gpt-4o-mini", "gpt-4o", False),
        ("InternVL2-26B-AWQ", "InternVL2-26B", False),
        ("InternVL2-8B", "InternVL2-26B", False),
        ("i", "InternVL2-26B", False),
    ],
)
def test_a_model_is_known_by_its_name_with_a_folder_a_date_or_a_revision(answered: str, asked: str, same: bool) -> None:
    assert is_same_model(answered, asked) == same
