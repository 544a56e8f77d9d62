"""Game file: one instruction per line, read and checked without the networks.

Both forms of an instruction reach the game model unchanged. The first has the format of the training captions:

    # a line that starts with a hash is a comment
    Character: Qiqi; Motion: slowly fly over the sea; Background: morning sky.
    Or free text: she meets Ponyo on the beach and they hug.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.core.errors import UserError


def check_folder(path: Path) -> None:
    """Raise a UserError if the folder of a game, `--out`, is a file."""
    if path.is_file():
        raise UserError(f"{path} is a file; name another --out")


def read_game_file(path: Path, check: Callable[[str], object] | None = None) -> list[str]:
    """Read the instructions of a game file in order; blank lines and comments are skipped.

    Args:
        path: UTF-8 text, with or without a byte order mark, with LF, CRLF or CR line ends.
        check: called with each instruction; a UserError from it is raised again with file and line.

    Raises:
        UserError: the file cannot be read, is not UTF-8, or holds no instruction; or `check` rejected one.
    """
    instructions = []
    for number, line in enumerate(_text_of(path).split("\n"), start=1):
        instruction = line.strip()
        if not instruction or instruction.startswith("#"):
            continue
        if check:
            try:
                check(instruction)
            except UserError as error:
                raise UserError(f"{path}, line {number}: {error}") from error
        instructions.append(instruction)
    if not instructions:
        raise UserError(f"{path} holds no instruction; write one per line, such as `Character: Qiqi; Motion: fly.`")
    return instructions


def _text_of(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file; give a text file with one instruction per line")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line} is not UTF-8 text; save the file as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
