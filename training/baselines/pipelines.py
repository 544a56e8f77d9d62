"""Strict loading of diffusers pipelines from a folder or the model hub, and of the adapters of their transformers.

diffusers loads any pipeline found in a folder and fills missing tensors with random values. Here a pipeline of another
kind and a missing tensor are errors with a remedy, as for the bases of the model.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from diffusers import CogVideoXTransformer3DModel, DiffusionPipeline
from diffusers.utils import logging
from peft import LoraConfig, set_peft_model_state_dict
from torch import Tensor, nn
from transformers.utils import cached_file

from models.config import Base
from models.hub import hub_options, reading
from models.shot_decoder import own_names, unfreeze_for_adaptation
from models.weights import adapter_tensors, load_tensors, read_tensors, write_tensors
from pipeline.core.errors import UserError, shortened

LORA = "pytorch_lora_weights.safetensors"
ADALN = "adaln.safetensors"
_PREFIX = "transformer."
"""Prefix of a transformer's adapter names in diffusers' adapter files for pipelines."""
_TARGETS = ["to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"]
"""Attention projections of CogVideoX and FLUX; the second half is FLUX's, for its text."""
_REMEDY = "`base` in baseline.json"

Pipeline = TypeVar("Pipeline", bound=DiffusionPipeline)


def load_pipeline(kind: type[Pipeline], base: Base, dtype: torch.dtype, *leave_out: str) -> Pipeline:
    """Load a pipeline.

    Args:
        kind: class of the published pipeline.
        leave_out: components to skip, such as `transformer`.

    Raises:
        UserError: it is missing, cannot be fetched, is of another kind, incomplete, or a pickle.
    """
    with reading(base, _REMEDY):
        parts: dict[str, Any] = dict.fromkeys(leave_out)
        for name, (library, class_name) in _listed(kind, base).items():
            if name in leave_out or library not in ("diffusers", "transformers"):
                continue
            found = getattr(importlib.import_module(library), class_name)
            if isinstance(found, type) and issubclass(found, nn.Module):
                parts[name] = _load_network(found, inside(base, name), dtype)
        with _without_bar():
            pipeline: Pipeline = kind.from_pretrained(base.id, **hub_options(base), **parts)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def load_part(kind: type[Pipeline], name: str, base: Base, dtype: torch.dtype) -> Any:
    """Load one network of a pipeline; otherwise as `load_pipeline`."""
    with reading(base, _REMEDY):
        library, class_name = _listed(kind, base)[name]
        return _load_network(getattr(importlib.import_module(library), class_name), inside(base, name), dtype)


@contextmanager
def _without_bar() -> Iterator[None]:
    """Disable diffusers' progress bar, which would count the networks already loaded."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def sizes_of(base: Base, name: str) -> dict[str, Any]:
    """Return the configuration of one network of a pipeline; UserError if there is none."""
    with reading(base, _REMEDY):
        part = inside(base, name)
        sizes: dict[str, Any] = json.loads(Path(cached_file(part.id, "config.json", **hub_options(part))).read_bytes())
    return sizes


def inside(base: Base, name: str) -> Base:
    """Return the location of one component of a pipeline."""
    return base.model_copy(update={"subfolder": f"{base.subfolder}/{name}".lstrip("/")})


def _listed(kind: type[Pipeline], base: Base) -> dict[str, tuple[str, str]]:
    """Return the components of a pipeline, each with the library and the name of its class."""
    path = cached_file(base.id, "model_index.json", **hub_options(base))
    index = json.loads(Path(path).read_text(encoding="utf-8"))
    if index.get("_class_name") != kind.__name__:
        raise ValueError(f"it is a {index.get('_class_name')}, where a {kind.__name__} is needed")
    pairs = {name: value for name, value in index.items() if isinstance(value, list) and len(value) == 2}
    return {name: (library, class_name) for name, (library, class_name) in pairs.items() if library}


def _load_network(kind: Any, base: Base, dtype: torch.dtype) -> Any:
    network, report = kind.from_pretrained(
        base.id, **hub_options(base), dtype=dtype, use_safetensors=True, output_loading_info=True
    )
    faults = [f"{name} is missing" for name in sorted(report["missing_keys"])]
    faults += [f"{name} has another shape" for name, *_ in sorted(report["mismatched_keys"])]
    if faults:
        raise ValueError(f"{base.subfolder} is not a complete {kind.__name__}: {shortened(faults)}")
    return network


def keep_positions(transformer: CogVideoXTransformer3DModel, frames: int) -> None:
    """Truncate the position table of a CogVideoX trained on 49 frames, for generating fewer frames.

    For another number of frames diffusers computes a new table in every call, from sines and cosines even if the
    published table was learned, as in 5B image-to-video. A shorter shot uses the positions of its frames in the long
    one. Rotary positions alone need no table.
    """
    embedding = transformer.patch_embed
    if not hasattr(embedding, "pos_embedding"):
        return
    # persistent or not, as before; without rotary positions this is the only table
    latent_frames = (frames - 1) // embedding.temporal_compression_ratio + 1
    patch = embedding.patch_size
    patches = (embedding.sample_height // patch) * (embedding.sample_width // patch)
    tokens = embedding.max_text_seq_length + latent_frames * patches
    if tokens > embedding.pos_embedding.shape[1]:
        raise UserError(f"it has positions for {embedding.sample_frames} frames, not for {frames}")
    embedding.pos_embedding = embedding.pos_embedding[:, :tokens].clone()
    embedding.sample_frames = frames


def add_adapters(transformer: nn.Module, rank: int, *, adaln: bool) -> None:
    """Add new adapters in float32 to every attention projection; initially they have no effect.

    They are applied at full weight (alpha equals the rank), as diffusers assumes for a file without metadata. With
    `adaln`, the parameters of the shot decoder's adaptation are trainable; otherwise the adapters alone.
    """
    transformer.requires_grad_(False)
    transformer.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=_TARGETS))  # type: ignore[operator]
    if adaln:
        unfreeze_for_adaptation(transformer)
    for parameter in transformer.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def save_adapters(
    folder: Path, transformer: nn.Module, state: Mapping[str, Tensor] | None = None, *, adaln: bool
) -> None:
    """Write adapters as diffusers' `load_lora_weights` reads them, and the adaLN as a second file.

    `state` replaces the transformer's state if it was averaged, or gathered from several devices.
    """
    tensors = adapter_tensors(transformer, state)
    write_tensors({_PREFIX + name: tensor for name, tensor in tensors.items()}, folder / LORA)
    if adaln:
        state = transformer.state_dict() if state is None else state
        write_tensors({name: state[name] for name in own_names(transformer)}, folder / ADALN)


def load_adapters(folder: Path, transformer: nn.Module, rank: int, *, adaln: bool) -> None:
    """Add the adapters of a file to a transformer, and fill its adaLN: in float32, and its only trainable parameters.

    Raises:
        UserError: the file cannot be read, or its tensors do not fit this transformer and rank.
    """
    add_adapters(transformer, rank, adaln=adaln)
    wanted = {_PREFIX + name: tensor.shape for name, tensor in adapter_tensors(transformer).items()}
    found = read_tensors(folder / LORA)
    faults = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    faults += [f"{name} is not of this pipeline" for name in sorted(found.keys() - wanted.keys())]
    faults += [f"{name} has another shape" for name in wanted if name in found and found[name].shape != wanted[name]]
    if faults:
        raise UserError(f"{folder / LORA} does not fit its baseline.json: {shortened(faults)}")
    set_peft_model_state_dict(transformer, {name.removeprefix(_PREFIX): found[name] for name in found})
    if adaln:
        load_tensors(transformer, folder / ADALN, own_names(transformer))
