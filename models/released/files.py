"""Published weight files: discovery in a download, and safe reading of their pickled tensors.

A download of the hub repository has two folders for each of the two characters, one with the language half and one with
the decoder half. They are pickled PyTorch files of 29 and 27 GB, mapped from disk: data is read when a tensor is used.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline.core.errors import UserError

LANGUAGE_FOLDER, LANGUAGE_FILE = "MLLM-", "pytorch_model.bin"
DECODER_FOLDER, DECODER_FILE = "VDM_Decoder-", "mp_rank_00_model_states.pt"
_LATEST, _STEP, _LONGEST_STEP = "latest", "10000", 100
_UNNAMED = ""

# The decoder half also holds numpy's random state: an array that needs only these globals.
_ARRAYS: list[Any] = [
    (np._core.multiarray._reconstruct, f"numpy.{core}.multiarray._reconstruct")  # type: ignore[attr-defined]
    for core in ("core", "_core")
] + [np.ndarray, np.dtype, np.dtypes.UInt32DType]


def find_files(source: Path, character: str | None = None) -> tuple[Path, Path]:
    """Find the two files of one published model.

    Args:
        source: a download of the hub repository, complete or partial; or a folder with the two files.
        character: the published model, named by the suffix of its folders; required if there are several.

    Returns:
        The file of the language half and the file of the decoder half.

    Raises:
        UserError: no published weights, several models and no `character`, or only one half.
    """
    languages = _language_files(source)
    decoders = _decoder_files(source)
    if not languages and not decoders:
        raise UserError(
            f"{source} holds no published weights: expected {LANGUAGE_FOLDER}NAME/{LANGUAGE_FILE} and "
            f"{DECODER_FOLDER}NAME/{_STEP}/{DECODER_FILE}, as in the hub repository TencentARC/AnimeGamer"
        )
    name = _choose(source, sorted({*languages, *decoders} - {_UNNAMED}), character)
    language = languages.get(name, languages.get(_UNNAMED))
    decoder = decoders.get(name, decoders.get(_UNNAMED))
    if language is None:
        raise UserError(f"{source / (LANGUAGE_FOLDER + name) / LANGUAGE_FILE} is missing: fetch it too")
    if decoder is None:
        missing = source / (DECODER_FOLDER + name) / _STEP / DECODER_FILE
        raise UserError(f"{missing} is missing: fetch it too")
    return language, decoder


def open_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a pickled PyTorch file, mapped from disk; no code in the file is run.

    Raises:
        UserError: an incomplete file, one that cannot be read without running its code, or one without a state dict.
    """
    try:
        with torch.serialization.safe_globals(_ARRAYS):
            # the published files exist only in this format; weights_only runs none of their code
            content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)  # noqa: TID251
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} holds Python objects besides tensors, and reading them would run its code: refused. "
            "Fetch the published file again"
        ) from error
    except (RuntimeError, OSError, EOFError) as error:
        raise UserError(
            f"{path} is not a complete PyTorch file ({_size(path)} bytes): fetch it again; a file of a few "
            f"hundred bytes is a Git LFS pointer, fetched without Git LFS ({_first_line(error)})"
        ) from error
    state = content.get("module", content) if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"{path} holds no state dict of tensors: it is not the published file")
    return dict(state)


def _language_files(source: Path) -> dict[str, Path]:
    folders = {_UNNAMED: source, **_folders(source, LANGUAGE_FOLDER)}
    return {name: folder / LANGUAGE_FILE for name, folder in folders.items() if (folder / LANGUAGE_FILE).is_file()}


def _decoder_files(source: Path) -> dict[str, Path]:
    """Find the decoder files. The step's number is in a separate file, which a partial download may lack."""
    found = {}
    for name, folder in {_UNNAMED: source, **_folders(source, DECODER_FOLDER)}.items():
        for path in (folder / _step(folder / _LATEST) / DECODER_FILE, folder / DECODER_FILE):
            if path.is_file():
                found[name] = path
                break
    return found


def _step(latest: Path) -> str:
    """Return the name of the folder of the published step, from the file that holds it."""
    if not latest.is_file():
        return _STEP
    with latest.open("rb") as file:
        name = file.read(_LONGEST_STEP + 1).decode(errors="replace").strip()
    if len(name) > _LONGEST_STEP or not name.isascii() or not name.isprintable():
        raise UserError(f"{latest}: not the name of a folder, such as {_STEP}; fetch the file again")
    return name


def _folders(source: Path, prefix: str) -> dict[str, Path]:
    return {path.name.removeprefix(prefix): path for path in sorted(source.glob(f"{prefix}*")) if path.is_dir()}


def _choose(source: Path, names: list[str], character: str | None) -> str:
    if character is not None:
        if character not in names:
            raise UserError(f"{source} has no weights of {character!r}, only of: {', '.join(names) or 'one model'}")
        return character
    if len(names) > 1:
        raise UserError(f"{source} holds several models: say which character, one of {', '.join(names)}")
    return names[0] if names else _UNNAMED


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
