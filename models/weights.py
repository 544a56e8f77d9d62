"""Strict reading and writing of weights: safetensors only, every tensor present with its shape, none left over.

A loader that leaves a tensor random, or ignores one in the file, lets a truncated download run without an error. So
names and shapes are compared first, and all differences are reported in one error that names the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from diffusers.loaders.lora_base import LORA_ADAPTER_METADATA_KEY
from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pipeline.core.errors import UserError, shortened

Network = TypeVar("Network")
_TORCH = {"format": "pt"}


def load_tensors(module: nn.Module, path: Path, names: Iterable[str] | None = None) -> None:
    """Fill the named tensors of a module, by default all of its state, from a file with exactly these tensors.

    Raises:
        UserError: the file cannot be read, or holds other tensors.
    """
    state = module.state_dict()
    wanted = {name: state[name] for name in (state if names is None else names)}
    tensors = read_tensors(path)
    _compare(path, tensors, wanted)
    module.load_state_dict(tensors, strict=False)


def load_adapter(module: nn.Module, path: Path, *, embeddings: bool = False) -> None:
    """Fill the adapters of a network, added by peft or by diffusers.

    Args:
        path: the adapter file, with peft's names.
        embeddings: the file also holds input and output embeddings, trained in full.

    Raises:
        UserError: the file cannot be read, or holds other tensors.
    """
    tensors = read_tensors(path)
    _compare(path, tensors, adapter_tensors(module, embeddings=embeddings))
    set_peft_model_state_dict(module, tensors)


def adapter_tensors(
    module: nn.Module, state: Mapping[str, Tensor] | None = None, *, embeddings: bool = False
) -> dict[str, Tensor]:
    """Adapters of a network under peft's names, from `state`, by default the network's own."""
    tensors: dict[str, Tensor] = get_peft_model_state_dict(module, state, save_embedding_layers=embeddings)
    return tensors


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file. UserError if the file is missing, or not a complete safetensors file."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error


def is_untrained(path: Path) -> bool:
    """Return whether a file's adapters have their initial values, with all second factors zero.

    Raises:
        UserError: the file is missing, or not a complete safetensors file.
    """
    try:
        with safe_open(path, "pt") as file:
            return not any(bool(file.get_tensor(name).any()) for name in file.keys() if "lora_B" in name)  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error


def is_as_created(path: Path, norm: str) -> bool:
    """Return whether the weights of a norm in a file are all 1, their initial value.

    Raises:
        UserError: the file is missing, or not a complete safetensors file with this norm.
    """
    try:
        with safe_open(path, "pt") as file:
            return bool((file.get_tensor(norm) == 1).all())
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] = _TORCH) -> None:
    """Write a safetensors file and create its folder; equal tensors give equal bytes.

    Args:
        metadata: one entry; safetensors writes several in an undefined order.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=dict(metadata))


def adapter_metadata(adapters: LoraConfig) -> dict[str, str]:
    """Metadata of an adapter file, from which diffusers reads alpha."""
    return {LORA_ADAPTER_METADATA_KEY: json.dumps(adapters.to_dict(), indent=2, sort_keys=True, default=sorted)}


def _unreadable(path: Path, error: Exception) -> UserError:
    if isinstance(error, FileNotFoundError):
        return UserError(f"{path} is missing: the checkpoint is incomplete, copy it again")
    return UserError(f"{path} cannot be read ({error}); copy the checkpoint again")


def _compare(path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    faults = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    faults += [f"{name} is unexpected" for name in sorted(found.keys() - wanted.keys())]
    faults += [
        f"{name} is {tuple(found[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in sorted(wanted.keys() & found.keys())
        if found[name].shape != wanted[name].shape
    ]
    if faults:
        raise UserError(f"{path} does not fit its config.json ({shortened(faults)}); copy the checkpoint again")
