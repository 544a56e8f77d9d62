"""Writing of checkpoints from trained networks, atomically: the folder is either complete or absent.

`with writing(folder) as part:` writes a checkpoint. A complete folder is renamed into place, an incomplete one removed.
`checkpoint.py` describes the layout.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from peft import PeftModel
from safetensors import SafetensorError
from torch import Tensor

from models.checkpoint import (
    ADAPTER,
    DECODER_LORA,
    DECODER_OWN,
    GAME_MODEL,
    RESAMPLERS,
    SHOT_DECODER,
    SHOT_ENCODER,
    TRANSFORMER_FILE,
    Checkpoint,
)
from models.config import CONFIG, ModelConfig, inside_id
from models.game_model import GameModel
from models.hub import quietly
from models.shot_decoder import ShotDecoder, own_names
from models.weights import adapter_metadata, adapter_tensors, write_tensors
from pipeline.core.errors import DiskError, UserError, disk_errors

State = Mapping[str, Tensor]
_SETTLED_AT_ONCE = 32
"""A saved game has thousands of files, and a disk that syncs many at once takes a quarter of the time."""


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder; rename it to `folder` when the block succeeds, remove it when the block raises.

    Raises:
        UserError: `folder` exists and is not empty, or it cannot be replaced.
        DiskError: the files cannot be written, for example because the disk is full.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already: name another folder, or remove it first")
    target = folder.resolve()  # a link to an empty folder cannot be replaced, the folder can
    if target.exists() and (target == Path.cwd() or target.is_mount()):
        raise UserError(
            f"{folder} is the current folder or a disk, and cannot be replaced: name a new folder inside it, "
            f"such as {folder / 'NAME'}"
        )
    with disk_errors(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        with disk_errors(folder):
            yield part
        with ThreadPoolExecutor(_SETTLED_AT_ONCE) as threads:
            list(threads.map(_settle, part.rglob("*")))
        _settle(part)
        part.rename(target)
    except SafetensorError as error:  # of a write: readers have their own errors
        shutil.rmtree(part)
        raise DiskError(f"{folder} cannot be written ({error}); free space and run the same command again") from error
    except BaseException:
        shutil.rmtree(part)
        raise


def _settle(path: Path) -> None:
    """Make a file or folder readable for everybody, and put it on the disk."""
    if path.is_dir() or path.stat().st_nlink == 1:  # not files shared with another checkpoint
        path.chmod(0o755 if path.is_dir() else 0o644)  # safetensors creates files with mode 0600
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_rest(checkpoint: Checkpoint, folder: Path, replaced: Collection[str]) -> None:
    """Copy a checkpoint to a new folder, except its configuration and the replaced files and folders.

    Files are hard-linked if the file system supports it, because files of a checkpoint are never changed in place.
    """
    left_out = {CONFIG, *replaced}
    for path in sorted(checkpoint.folder.rglob("*")):
        name = path.relative_to(checkpoint.folder)
        if path.is_file() and not left_out & {str(name), *map(str, name.parents)}:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path, folder / name)


def link_or_copy(source: Path | str, target: Path | str) -> None:
    """Hard-link a file if the file system supports it, otherwise copy it."""
    try:
        os.link(Path(source).resolve(), target)  # resolved: the hub's cache holds symbolic links
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, target)


def save_config(folder: Path, config: ModelConfig) -> None:
    """Write `config.json`."""
    (folder / CONFIG).write_text(config.text(), encoding="utf-8")


def save_game_model(folder: Path, model: GameModel, state: State | None = None) -> set[str]:
    """Write adapters, norms, embeddings and resamplers; plain peft loads the first three. Return the parts written.

    Without adapters, the language model is written as a base. Here and below, `state` is the network's state dict if it
    was gathered from several devices.
    """
    state = model.state_dict() if state is None else state
    save_resamplers(folder, state)
    language = within(state, "language_model.")
    if isinstance(model.language_model, PeftModel):
        _save_adapters(folder, model.language_model, language)
        return {GAME_MODEL}
    base = inside_id("language_model")
    with quietly():
        model.language_model.save_pretrained(str(folder / base), state_dict=language)
    return {GAME_MODEL, base}


def save_resamplers(folder: Path, state: State) -> None:
    """Write the resamplers from a game model's state dict."""
    write_tensors(
        {name: state[name] for name in state if name.split(".")[0].endswith("_resampler")}, folder / RESAMPLERS
    )


def _save_adapters(folder: Path, language_model: PeftModel, state: State) -> None:
    adapters = language_model.peft_config["default"]
    adapters.base_model_name_or_path = None  # a path of the machine that loaded the base
    adapters.target_modules = sorted(adapters.target_modules)  # a set, whose order differs between processes
    adapters.save_pretrained(str((folder / ADAPTER).parent))
    write_tensors(adapter_tensors(language_model, state, embeddings=True), folder / ADAPTER)


def save_shot_encoder(folder: Path, state: State) -> None:
    """Write the shot encoder from its state dict."""
    write_tensors(state, folder / SHOT_ENCODER)


def save_shot_decoder(
    folder: Path, decoder: ShotDecoder, state: State | None = None, *, whole: bool = False
) -> set[str]:
    """Write the trainable parameters of the shot decoder; plain diffusers loads the adapters. Return the parts written.

    If `whole`, the base was trained too and is written without the adapters. Without adapters, its base is all.
    """
    state = decoder.state_dict() if state is None else state
    adapted = any(".lora_" in name for name in state)
    parts = {SHOT_DECODER}
    if whole or not adapted:
        _save_transformer(folder, decoder, state)
        parts.add(inside_id("transformer"))
    if adapted:
        _save_decoder_adapters(folder, decoder, state)
    return parts


def _save_decoder_adapters(folder: Path, decoder: ShotDecoder, state: State) -> None:
    metadata = adapter_metadata(decoder.peft_config["default"])
    write_tensors(adapter_tensors(decoder, state), folder / DECODER_LORA, metadata)
    write_tensors({name: state[name] for name in own_names(decoder)}, folder / DECODER_OWN)


def _save_transformer(folder: Path, decoder: ShotDecoder, state: State) -> None:
    base_folder = folder / inside_id("transformer")
    base = {name.replace(".base_layer.", "."): each for name, each in state.items() if ".lora_" not in name}
    write_tensors(base, base_folder / TRANSFORMER_FILE)
    description = json.loads(decoder.to_json_string())
    description["_class_name"] = ShotDecoder.__name__  # sharding over devices replaces the class by a generated one
    (base_folder / CONFIG).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def within(state: State, prefix: str) -> dict[str, Tensor]:
    """Entries of a state dict below a prefix such as `encoder.`, without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
