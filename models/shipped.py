"""Checkpoint that comes with the package: a model of a small drawn world, packed in `models/mini`.

    models/mini/config.json                  as in every checkpoint, and so the other files; in half precision
    models/mini/game_model/resamplers.safetensors
    models/mini/shot_encoder.safetensors
    models/mini/bases/NAME/                  of the networks that a game needs; the language model without embeddings
    models/mini/vocabulary.safetensors       the rows of the embeddings that training changed or play reads

The tokenizer is not in it, since a package that is always installed has it. `shipped()` unpacks the checkpoint into the
user's cache folder the first time, and then opens it like any other. Embeddings of words that training never showed
are zero there: the model reads nothing into them.

Shapes: V vocabulary, R rows kept, H width of the language model.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import get_args

import torch
from platformdirs import user_cache_path
from torch import Tensor

from models.checkpoint import PLAYED, RESAMPLERS, SHOT_ENCODER, TOKENIZER, Checkpoint, identity_of
from models.checkpoint_writer import copy_rest, save_config, writing
from models.config import CONFIG, TOKENIZER_FILES, Component, inside_id
from models.tokens import LEGAL_IDS, VOCABULARY, shipped_tokenizer
from models.weights import read_tensors, write_tensors
from pipeline.core.errors import DiskError, UserError, disk_errors

PACKED = Path(__file__).parent / "mini"
_VOCABULARY_FILE = "vocabulary.safetensors"
_LANGUAGE_FILE = f"{inside_id('language_model')}/model.safetensors"
_TOKENIZER_FILE = f"{TOKENIZER}/tokenizer.json"
_ALL: tuple[Component, ...] = get_args(Component)
_INPUT, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


def shipped(packed: Path = PACKED) -> Checkpoint:
    """Open the checkpoint of the package, unpacked at the first call, and again if a file of it was removed.

    Raises:
        UserError: the package has none, or its files are damaged, or the cache folder cannot be written.
    """
    if not (packed / CONFIG).exists():
        raise UserError(f"{packed} has no checkpoint: install the package again, or name a checkpoint")
    folder = _cache_folder() / f"mini-{packed_identity(packed)}"
    if not _is_whole(folder, packed):
        with disk_errors(folder):
            if folder.exists():
                shutil.rmtree(folder)
        try:
            unpack(packed, folder)
        except OSError:
            if not _is_whole(folder, packed):  # another process may have been faster
                raise
    return Checkpoint.open(folder)


def _cache_folder() -> Path:
    """Return the user's cache folder; DiskError if it cannot be created."""
    try:
        return user_cache_path("animegamer", ensure_exists=True)
    except OSError as error:
        raise DiskError(
            f"the cache folder {user_cache_path('animegamer')} cannot be created ({error.strerror}); give access to "
            "it, or choose another folder with XDG_CACHE_HOME=FOLDER"
        ) from error


def _is_whole(folder: Path, packed: Path) -> bool:
    """Return whether an unpacked checkpoint has all its files: cleaners of caches remove single ones."""
    names = {str(path.relative_to(packed)) for path in packed.rglob("*") if path.is_file()} - {_VOCABULARY_FILE}
    return all((folder / name).is_file() for name in names | {_TOKENIZER_FILE})


def packed_identity(packed: Path = PACKED) -> str:
    """Hash of the files of a packed checkpoint. UserError if a file cannot be read."""
    return identity_of(sorted(path for path in packed.rglob("*") if path.is_file()))


def pack(
    checkpoint: Checkpoint, start: Checkpoint, packed: Path = PACKED, bases: Collection[Component] = PLAYED
) -> None:
    """Replace the packed checkpoint by the parts that play needs of a checkpoint with networks that were trained whole.

    Args:
        start: the checkpoint from which its game model was trained; embeddings equal in both were never used.
        bases: bases to pack, of a checkpoint that is not trained to the end. The shot encoder comes with the
            transformer, and the resamplers with the language model.
    """
    shutil.rmtree(packed, ignore_errors=True)
    with writing(packed) as part:
        save_config(part, checkpoint.config)
        names = [SHOT_ENCODER] if "transformer" in bases else []
        for base in map(inside_id, bases):
            files = (path.name for path in (checkpoint.folder / base).iterdir())
            names += sorted(f"{base}/{name}" for name in files if name not in TOKENIZER_FILES)
        for name in names:
            _copy_halved(checkpoint.folder / name, part / name)
        if "language_model" in bases:
            _pack_game_model(checkpoint.folder, start.folder, part)


def _pack_game_model(trained: Path, start: Path, packed: Path) -> None:
    _copy_halved(trained / RESAMPLERS, packed / RESAMPLERS)
    language = read_tensors(trained / _LANGUAGE_FILE)
    inputs_VH, outputs_VH = language.pop(_INPUT), language.pop(_OUTPUT)
    begun_VH = read_tensors(start / _LANGUAGE_FILE)[_INPUT]
    used_R = (inputs_VH.half() != begun_VH.half()).any(dim=1).nonzero()[:, 0]  # a training may begin from packed rows
    legal_R = torch.tensor(sorted({identifier for legal in LEGAL_IDS for identifier in legal}))
    write_tensors(_halved(language), packed / _LANGUAGE_FILE)
    rows = _rows("input", inputs_VH, used_R) | _rows("output", outputs_VH, legal_R)
    write_tensors(rows, packed / _VOCABULARY_FILE)


def unpack(
    packed: Path, folder: Path, start: Checkpoint | None = None, bases: Collection[Component] = _ALL
) -> Checkpoint:
    """Write a packed checkpoint as an ordinary one, still in half precision.

    Args:
        start: untrained checkpoint that has what was not packed, for further training.
        bases: bases to take, and what `pack` packs with them.

    Raises:
        UserError: a file is damaged, or the folder exists.
    """
    with writing(folder) as part:
        if start:
            copy_rest(start, part, {TOKENIZER})
        for path in sorted(each for each in packed.rglob("*") if each.is_file()):
            if not _is_of(str(path.relative_to(packed)), bases):
                continue
            target = part / path.relative_to(packed)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # a file of the start, shared with it
            shutil.copyfile(path, target)
        if (part / _VOCABULARY_FILE).exists():
            _unpack_vocabulary(part, start)
        shipped_tokenizer().save_pretrained(str(part / TOKENIZER))
    return Checkpoint.open(folder)


def _is_of(name: str, bases: Collection[Component]) -> bool:
    """Return whether a packed file belongs to some of the bases, or to all."""
    with_bases: Mapping[str, Component] = {
        SHOT_ENCODER: "transformer",
        RESAMPLERS: "language_model",
        _VOCABULARY_FILE: "language_model",
    }
    if name in with_bases:
        return with_bases[name] in bases
    return name == CONFIG or any(name.startswith(f"{inside_id(base)}/") for base in bases)


def _unpack_vocabulary(part: Path, start: Checkpoint | None) -> None:
    rows, language = read_tensors(part / _VOCABULARY_FILE), read_tensors(part / _LANGUAGE_FILE)
    begun = read_tensors(start.folder / _LANGUAGE_FILE) if start else {}
    for name, kind in ((_INPUT, "input"), (_OUTPUT, "output")):
        rows_RH = rows[f"{kind}_rows"]
        whole_VH = begun[name].half() if begun else rows_RH.new_zeros(VOCABULARY, rows_RH.shape[1])
        language[name] = whole_VH.index_copy_(0, rows[f"{kind}_ids"], rows_RH)
    write_tensors(language, part / _LANGUAGE_FILE)
    (part / _VOCABULARY_FILE).unlink()


def _rows(kind: str, matrix_VH: Tensor, ids_R: Tensor) -> dict[str, Tensor]:
    return {f"{kind}_ids": ids_R, f"{kind}_rows": matrix_VH[ids_R].half()}


def _copy_halved(source: Path, target: Path) -> None:
    """Copy a file, a file of weights in half precision."""
    if source.suffix == ".safetensors":
        write_tensors(_halved(read_tensors(source)), target)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _halved(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.half() for name, tensor in tensors.items()}
