"""Weights on disk, strictly: safetensors only, every tensor found with its shape, nothing left over.

Loading that leaves a tensor random, or drops one from the file, is how half a download plays nonsense without a word.
So names and shapes are compared first, and every difference is told in one message that names the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from diffusers.loaders.lora_base import LORA_ADAPTER_METADATA_KEY
from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pipeline.core.errors import UserError

Network = TypeVar("Network")
_SHOWN = 5
_TORCH = {"format": "pt"}


def load_tensors(module: nn.Module, path: Path, names: Iterable[str] | None = None) -> None:
    """Fill the named tensors of a module from a file that holds exactly them; all of its state where none are named.

    Raises:
        UserError: the file cannot be read, or holds other tensors.
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
        UserError: the file cannot be read, or holds other tensors.
    """
    tensors = read_tensors(path)
    _compare(path, tensors, adapter_tensors(module, embeddings=embeddings))
    set_peft_model_state_dict(module, tensors)


def adapter_tensors(
    module: nn.Module, state: Mapping[str, Tensor] | None = None, *, embeddings: bool = False
) -> dict[str, Tensor]:
    """The adapters of a network under peft's names, out of the given state or else the network's own."""
    tensors: dict[str, Tensor] = get_peft_model_state_dict(module, state, save_embedding_layers=embeddings)
    return tensors


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file.

    Raises:
        UserError: the file is not there, or is no whole safetensors file.
    """
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: the checkpoint is incomplete, copy it again") from error
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}; copy the checkpoint again") from error


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


def _compare(path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    faults = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    faults += [f"{name} is not of this network" for name in sorted(found.keys() - wanted.keys())]
    faults += [
        f"{name} is {tuple(found[name].shape)}, not {tuple(wanted[name].shape)}"
        for name in sorted(wanted.keys() & found.keys())
        if found[name].shape != wanted[name].shape
    ]
    if faults:
        raise UserError(f"{path} does not fit its config.json: {shortened(faults)}; copy the checkpoint again")


def shortened(faults: list[str]) -> str:
    """The first few faults in one line."""
    more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    return "; ".join(faults[:_SHOWN]) + more
