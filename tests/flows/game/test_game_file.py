"""Game files: their instructions, and errors that name the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.game.game_file import read_game_file
from pipeline.core.errors import UserError


def test_a_game_file_holds_instructions(tmp_path: Path) -> None:
    lines = "\ufeff# a game\r\nCharacter: Qiqi; Motion: fly; Background: sky.\r\n\r\n  # no\r\n ポニョ runs\u2028fast "
    (tmp_path / "game.txt").write_bytes(lines.encode())
    expected = ["Character: Qiqi; Motion: fly; Background: sky.", "ポニョ runs\u2028fast"]
    assert read_game_file(tmp_path / "game.txt") == expected
    (tmp_path / "old.txt").write_bytes(b"one\rtwo # and a half")
    assert read_game_file(tmp_path / "old.txt") == ["one", "two # and a half"]


def refuse_long(instruction: str) -> None:
    if len(instruction) > 20:
        raise UserError("too long")


def test_errors_of_a_game_file_name_the_line(tmp_path: Path) -> None:
    for content, expected in (
        (b"one\ntwo\nfa\xe7ade\n", r"game.txt, line 3 is not UTF-8"),
        ("one\ntwo\n".encode("utf-16"), r"game.txt, line 1 is not UTF-8"),
        (b"\n# nothing\n", r"game.txt holds no instruction"),
        (b"# one\n\nfine\n" + b"long " * 10, r"game.txt, line 4: too long"),
    ):
        (tmp_path / "game.txt").write_bytes(content)
        with pytest.raises(UserError, match=expected):
            read_game_file(tmp_path / "game.txt", check=refuse_long)
    for path in (tmp_path, tmp_path / "missing.txt"):
        with pytest.raises(UserError, match=r"cannot be read|not a file"):
            read_game_file(path)
