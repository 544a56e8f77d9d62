"""Strict loader of frozen bases, from a folder or the model hub: right kind, no code run, no tensor missing.

A stranger's checkpoint may name any repository of the hub. We fetch only published bases for it. For any other base,
the user must have put it into the hub's cache, or name it in an option.

transformers and diffusers fill missing tensors at random, and build a network of another kind with only a warning. Here
both are errors with a remedy.

Some bases exist only as pickles (`pytorch_model.bin`). If there are no safetensors, we read the pickle and log a
warning. Both libraries pass `weights_only` to torch, which rejects every pickle of more than tensors and runs no code.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from diffusers import ConfigMixin
from diffusers.utils import logging as diffusers_logging
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import HFValidationError
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from safetensors import SafetensorError
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import extract_commit_hash

from models.config import TOKENIZER_FILES, Base, Component, read_settings
from pipeline.core.errors import UserError, memory_fault, shortened

Network = TypeVar("Network", bound=nn.Module)

_KINDS: dict[Component, tuple[str, ...]] = {
    "language_model": ("mistral",),
    "transformer": ("CogVideoXTransformer3DModel", "ShotDecoder"),
    "autoencoder": ("AutoencoderKLCogVideoX",),
    "text_encoder": ("t5",),
    "image_encoder": ("clip", "clip_vision_model"),
}
"""Kinds accepted in a base's `config.json`: `model_type` in transformers, `_class_name` in diffusers."""
_UNUSED: dict[Component, str] = {
    "language_model": r".*rotary_emb\.inv_freq",
    "text_encoder": r"(decoder|lm_head)\..*|encoder\.embed_tokens\.weight",
    "image_encoder": r"(text_model|text_projection|visual_projection)\..*|logit_scale|.*position_ids|"
    r"(text|visual)_projection\.weight",
}
"""Tensors that a base's file may hold and we do not load: its other half, and tables derived from its sizes."""


PUBLISHED = frozenset(
    {
        "mistralai/Mistral-7B-Instruct-v0.1",
        "zai-org/CogVideoX-2b",
        "laion/CLIP-ViT-B-16-laion2B-s34B-b88K",
        "zai-org/CogVideoX-5b-I2V",
        "black-forest-labs/FLUX.1-dev",
        "stabilityai/stable-diffusion-xl-base-1.0",
    }
)
"""Bases of the published model and of the baselines, by hub id."""
IN_CONFIG = "`bases` in config.json"
_LOG = logging.getLogger(__name__)
_STEMS = {True: ("model", "pytorch_model"), False: ("diffusion_pytorch_model", "diffusion_pytorch_model")}
"""Names of a base's safetensors and of its pickle without suffix, for transformers (True) and diffusers (False)."""


def load_base(component: Component, kind: type[Network], base: Base, dtype: torch.dtype, **options: Any) -> Network:
    """Load a frozen base in the hub's format from a folder or the model hub.

    Raises:
        UserError: it is neither in the folder nor in the cache and cannot be fetched, or it is of another kind,
            incomplete, with other tensors, or a pickle with more than tensors.
    """
    with reading(base):
        _check_kind(component, base)
        if pickled := _only_pickled(kind, base):
            _LOG.warning("%s has no safetensors: %s is read as a pickle of tensors, no code run", base.id, pickled)
        # the method is common to transformers and diffusers
        network, report = kind.from_pretrained(  # type: ignore[attr-defined]
            base.id, **hub_options(base), dtype=dtype, use_safetensors=not pickled, output_loading_info=True, **options
        )
        _check_report(component, kind, report)
    if isinstance(network, ConfigMixin):
        network.register_to_config(_name_or_path=None)  # no path of this machine: checkpoints are given away
    return network  # type: ignore[no-any-return]


def load_tokenizer(base: Base, named: str = IN_CONFIG) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a base from a folder or the model hub; `named` is the setting that names the base.

    Raises:
        UserError: it is neither in the folder nor in the cache, and cannot be fetched, or it is damaged.
    """
    with reading(base, named), reading_tokenizer():
        place = _tokenizer_place(base)
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(place.id, **hub_options(place))
    return tokenizer


def _tokenizer_place(base: Base) -> Base:
    """Location of a base's tokenizer. ValueError if it has none: transformers would make one without words."""
    place = base.model_copy(update={"subfolder": base.tokenizer_subfolder or base.subfolder})
    if not any(_is_there(place, name) for name in TOKENIZER_FILES):
        inside = f" in {place.subfolder}" if place.subfolder else ""
        raise ValueError(f"it has no tokenizer{inside}: one of {', '.join(TOKENIZER_FILES)}")
    return place


def _only_pickled(kind: type[nn.Module], base: Base) -> str:
    """Return the name of a base's pickle if it has no safetensors; empty if it has some, or neither."""
    safe, pickled = _STEMS[issubclass(kind, PreTrainedModel)]
    if any(_is_there(base, f"{safe}.safetensors{end}") for end in ("", ".index.json")):
        return ""
    names = (f"{pickled}.bin{end}" for end in ("", ".index.json"))
    return next((name for name in names if _is_there(base, name)), "")


def _is_there(base: Base, name: str) -> bool:
    """Return whether a base has a file; one on the hub is fetched, since it is the file to load."""
    missing = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    return cached_file(base.id, name, **hub_options(base), **missing) is not None


def check_base(component: Component, base: Base) -> None:
    """Check, without reading its weights, that a base is a network of the right kind, with a tokenizer for texts.

    Raises:
        UserError: it is another network, cannot be found, or is a text encoder without a tokenizer.
    """
    with reading(base):
        _check_kind(component, base)
        if component == "text_encoder":
            _tokenizer_place(base)


def hub_options(base: Base) -> dict[str, str]:
    """Revision and subfolder as keyword arguments of `from_pretrained`; unset ones are left out."""
    return {name: value for name in ("revision", "subfolder") if (value := getattr(base, name))}


def pinned(base: Base, named: str = IN_CONFIG) -> Base:
    """Pin a base to the commit in the hub's cache. A folder, or a base with a revision, is returned unchanged.

    Raises:
        UserError: as `reading` raises it; `named` is the setting that names the base.
    """
    with reading(base, named):
        commit = extract_commit_hash(_config_path(base), base.revision)
    return base.model_copy(update={"revision": commit})


def _config_path(base: Base) -> str:
    path: str | None = cached_file(base.id, "config.json", **hub_options(base))
    if path is None:  # the library's answer for some folders
        raise ValueError("it has no config.json")
    return path


def _check_kind(component: Component, base: Base) -> None:
    """Raise ValueError for another kind in `config.json`, before a large network of that kind is built at random."""
    description = json.loads(read_settings(Path(_config_path(base))))
    if not isinstance(description, dict):
        raise ValueError("its config.json is not an object")
    kind = description.get("_class_name") or description.get("model_type")
    if kind not in _KINDS[component]:
        raise ValueError(f"it is a {kind}, where {component} must be {' or '.join(_KINDS[component])}")


def _check_report(component: Component, kind: type[Network], report: Mapping[str, Any]) -> None:
    """Raise ValueError for missing, mismatched or unexpected tensors, which the library would only report."""
    unused = re.compile(_UNUSED.get(component, "(?!)"))
    faults = [f"{name} is missing" for name in sorted(report["missing_keys"]) if component != "transformer"]
    faults += [f"{name} has another shape" for name, *_ in sorted(report["mismatched_keys"])]
    faults += [f"{name} is unexpected" for name in sorted(report["unexpected_keys"]) if not unused.fullmatch(name)]
    if faults:
        raise ValueError(f"not a complete {kind.__name__}: {shortened(faults)}")


@contextmanager
def quietly() -> Iterator[None]:
    """Disable the progress bars and warnings of transformers and diffusers, for work without a download."""
    shown = transformers_logging.is_progress_bar_enabled()
    verbosity = transformers_logging.get_verbosity(), diffusers_logging.get_verbosity()
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
def reading_tokenizer() -> Iterator[None]:
    """Raise every error of a block that only reads a tokenizer as a ValueError: the library has no error for those."""
    try:
        yield
    except (OSError, ValueError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(f"its tokenizer is damaged ({type(error).__name__}: {error})") from error


@contextmanager
def reading(base: Base, named: str = IN_CONFIG) -> Iterator[None]:
    """Raise the libraries' loading errors as UserError with a remedy.

    Args:
        named: the setting that names the base. If it is an option (`--clip`), the user has named the base.

    Raises:
        UserError: the base cannot be loaded; or the user has neither named nor fetched it, and it is not `PUBLISHED`.
    """
    is_folder = Path(base.id).is_absolute() or os.path.isdir(base.id)  # noqa: PTH112 - Path raises for long names
    if not is_folder:
        _refuse_unknown(base, named)
    try:
        with quietly() if is_folder else nullcontext():
            yield
    except (OSError, ValueError, RuntimeError, SafetensorError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        if _is_pickle_with_code(error):
            reason = "its weights are a pickle that could run code"
            remedy = f"Name a base with safetensors under {named}"
        elif memory_fault(error):
            reason = "its sizes take more memory than this machine has"
            remedy = "Correct the sizes in its config.json, or take a machine with more memory"
        elif is_folder:
            if not os.path.exists(base.id):  # noqa: PTH110 - the library takes it for an id
                reason = "there is no such folder"
            remedy = f"Copy the folder again, or name another under {named}"
        else:
            remedy = (
                f"Fetch it once with `hf download {base.id}` (after `hf auth login`, if its page asks to accept "
                f"terms), or name a folder under {named}"
            )
        raise UserError(f"{base.id} cannot be loaded: {reason}. {remedy}") from error


def _refuse_unknown(base: Base, named: str) -> None:
    """Raise UserError for an id that is none, or that must not be fetched unasked."""
    try:
        validate_repo_id(base.id)
    except HFValidationError:
        raise UserError(f"{base.id[:100]!r} is no folder and no id of the model hub: name one under {named}") from None
    is_fetched = (Path(HF_HUB_CACHE) / repo_folder_name(repo_id=base.id, repo_type="model")).is_dir()
    if base.id not in PUBLISHED and not named.startswith("--") and not is_fetched:
        raise UserError(
            f"{base.id} is not fetched unasked: {named} names it, and it is no published base. If you trust it, fetch "
            f"it with `hf download {base.id}`; otherwise name a folder under {named}"
        )


def _is_pickle_with_code(error: BaseException | None) -> bool:
    """Return whether an error, or the one it came from, is torch's refusal of a pickle of more than tensors."""
    while error and not isinstance(error, pickle.UnpicklingError):
        error = error.__cause__ or error.__context__
    return error is not None
