"""Weights on disk, strictly: safetensors only, every tensor found with its shape, nothing left over.

Loading that leaves a tensor random, or drops one from the file, is how half a download plays nonsense without a word.
So names and shapes are compared first, and every difference is told in one message that names the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from diffusers.loaders.lora_base import LORA_ADAPTER_METADATA_KEY
from diffusers.utils import logging as diffusers_logging
from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from models.config import Base

Network = TypeVar("Network")
_SHOWN = 5
_TORCH = {"format": "pt"}


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message names the file and the remedy."""


def load_tensors(module: nn.Module, path: Path, names: Iterable[str] | None = None) -> None:
    """Fill the named tensors of a module from a file that holds exactly them; all of its state where none are named.

    Raises:
        CheckpointError: the file cannot be read, or holds other tensors.
    """
    state = module.state_dict()
    wanted = {name: state[name] for name in (state if names is None else names)}
    tensors = read_tensors(path)
    _compare(path, tensors, wanted)
    module.load_state_dict(tensors, strict=False)


def load_adapter(module: nn.Module, path: Path, *, embeddings: bool = False) -> None:
    """Fill the adapters of a network that peft has wrapped or diffusers has added them to.

    Args:
        module: the network, its adapters in place.
        path: the adapter file, with peft's names.
        embeddings: whether input and output embeddings were trained in full and are in the file.

    Raises:
        CheckpointError: the file cannot be read, or holds other tensors.
    """
    tensors = read_tensors(path)
    _compare(path, tensors, adapter_tensors(module, embeddings=embeddings))
    set_peft_model_state_dict(module, tensors)


def adapter_tensors(module: nn.Module, *, embeddings: bool = False) -> dict[str, Tensor]:
    """The adapters of a network under peft's names."""
    tensors: dict[str, Tensor] = get_peft_model_state_dict(module, save_embedding_layers=embeddings)
    return tensors


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file.

    Raises:
        CheckpointError: the file is not there, or is no whole safetensors file.
    """
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: the checkpoint is incomplete, copy it again") from error
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}; copy the checkpoint again") from error


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] = _TORCH) -> None:
    """Write a safetensors file, making its folder; the same bytes every time.

    Args:
        tensors: by name.
        path: where to.
        metadata: one entry: safetensors writes several in an order that changes from time to time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=dict(metadata))


def adapter_metadata(adapters: LoraConfig) -> dict[str, str]:
    """What diffusers keeps beside adapters in their file, and reads their alpha from."""
    return {LORA_ADAPTER_METADATA_KEY: json.dumps(adapters.to_dict(), indent=2, sort_keys=True, default=sorted)}


def load_base(kind: type[Network], base: Base, dtype: torch.dtype, **options: Any) -> Network:
    """Load a frozen base from a folder or the model hub, in the hub's own format.

    Raises:
        CheckpointError: it is neither in the folder nor in the cache, and cannot be fetched; or is of another kind.
    """
    with reading(base):
        where = {key: value for key in ("revision", "subfolder") if (value := getattr(base, key))}
        # transformers' and diffusers' common method
        return kind.from_pretrained(base.id, dtype=dtype, **where, **options)  # type: ignore[attr-defined, no-any-return]


@contextmanager
def quietly() -> Iterator[None]:
    """Keep the libraries' own bars and remarks off the terminal, where nothing is being downloaded."""
    shown, verbosity = (
        transformers_logging.is_progress_bar_enabled(),
        (transformers_logging.get_verbosity(), diffusers_logging.get_verbosity()),
    )
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    diffusers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity[0])
        diffusers_logging.set_verbosity(verbosity[1])
        if shown:
            transformers_logging.enable_progress_bar()


@contextmanager
def reading(base: Base) -> Iterator[None]:
    """Tell what could not be loaded and what to do, whatever the library says."""
    try:
        with quietly() if Path(base.id).is_absolute() else nullcontext():
            yield
    except (OSError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise CheckpointError(
            f"{base.id} cannot be loaded: {reason}. "
            f"Fetch it once with `hf download {base.id}`, or name a folder under `bases` in config.json"
            if not Path(base.id).is_absolute()
            else f"{base.id} cannot be loaded: {reason}. Copy the checkpoint again"
        ) from error


def _compare(path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    faults = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    faults += [f"{name} is not of this network" for name in sorted(found.keys() - wanted.keys())]
    faults += [
        f"{name} is {tuple(found[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in sorted(wanted.keys() & found.keys())
        if found[name].shape != wanted[name].shape
    ]
    if faults:
        more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise CheckpointError(
            f"{path} does not fit its config.json: {'; '.join(faults[:_SHOWN])}{more}; copy the checkpoint again"
        )
