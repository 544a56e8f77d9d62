"""Networks that compare pictures, and pictures with texts: CLIP by transformers or open_clip, and DreamSim.

    load_clip("openai/clip-vit-base-patch16", "cuda")           by id, fetched once
    load_clip("/weights/clip", "cpu")                           a folder in the format of transformers
    load_clip("open-clip:/weights/laion", "cpu")                a folder, or an id, in the format of open_clip
    load_dreamsim(Path("/weights/dreamsim"), "cpu")             a folder that the package `dreamsim` has once filled

Embeddings have unit length, so that their dot product is the cosine. A picture is squeezed to the network's square, not
cropped: a crop of a wide frame would cut off the figures at its sides.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPModel

from models.config import Base
from models.hub import load_tokenizer, reading
from models.shot_encoder import CLIP_MEAN, CLIP_STD
from pipeline.core.errors import UserError
from training.evaluation.metrics.network_sources import OPEN_CLIP, check_dreamsim

Picture = NDArray[np.uint8]
"""RGB, HWC."""
Embeddings = NDArray[np.float32]
"""[N, D], rows of unit length."""

_AT_ONCE = 64
_DREAMSIM_SIDE = 224


class NetworkError(UserError):
    """A network cannot be loaded; the message names the remedy."""


class PictureNetwork(Protocol):
    """Embeddings of pictures."""

    @property
    def identity(self) -> str:
        """Name and hash of the weights; also a folder's name. Equal identities, equal embeddings."""
        ...

    @property
    def is_untrained(self) -> bool:
        """True if the weights are random."""
        ...

    def embed(self, pictures: Sequence[Picture]) -> Embeddings:
        """Embed pictures of any sizes."""
        ...


class TextNetwork(PictureNetwork, Protocol):
    """Embeddings of pictures and texts in one space."""

    def embed_texts(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; a text that is too long is cut off."""
        ...


class Clip:
    """CLIP of transformers, in evaluation mode."""

    def __init__(self, network: CLIPModel, tokenizer: Any, device: str) -> None:
        self._network = network.requires_grad_(False).eval().to(device)
        self._tokenizer = tokenizer
        self._device = device
        self._side: int = network.config.vision_config.image_size
        self._most_tokens: int = network.config.text_config.max_position_embeddings
        self.identity = f"clip-{weights_hash(network)}"
        self.is_untrained = is_untrained(network)

    def embed(self, pictures: Sequence[Picture]) -> Embeddings:
        """Embed pictures of any sizes."""
        return embedded(pictures, self._pictures)

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; a text that is too long is cut off."""
        tokens = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self._most_tokens, return_tensors="pt"
        ).to(self._device)
        states = self._network.text_model(**tokens).pooler_output
        return unit_rows(self._network.text_projection(states))

    def _pictures(self, pictures: Sequence[Picture]) -> Tensor:
        pixels_BCHW = normalized(squares(pictures, self._side), CLIP_MEAN, CLIP_STD).to(self._device)
        states: Tensor = self._network.vision_model(pixel_values=pixels_BCHW).pooler_output
        return self._network.visual_projection(states)  # type: ignore[no-any-return]


class OpenClip:
    """CLIP of open_clip, in evaluation mode."""

    def __init__(self, network: Any, tokenizer: Callable[[list[str]], Tensor], device: str) -> None:
        self._network = network
        self._network.requires_grad_(False).eval().to(device)
        self._tokenizer = tokenizer
        self._device = device
        side: int | tuple[int, int] = self._network.visual.image_size
        self._side = side if isinstance(side, int) else side[0]
        self.identity = f"open-clip-{weights_hash(network)}"
        self.is_untrained = is_untrained(network)

    def embed(self, pictures: Sequence[Picture]) -> Embeddings:
        """Embed pictures of any sizes."""
        return embedded(pictures, self._pictures)

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; a text that is too long is cut off."""
        return unit_rows(self._network.encode_text(self._tokenizer(list(texts)).to(self._device)))

    def _pictures(self, pictures: Sequence[Picture]) -> Tensor:
        mean, std = self._network.visual.image_mean, self._network.visual.image_std
        pixels_BCHW = normalized(squares(pictures, self._side), mean or CLIP_MEAN, std or CLIP_STD)
        return self._network.encode_image(pixels_BCHW.to(self._device))  # type: ignore[no-any-return]


def load_clip(source: str, device: str = "cpu") -> TextNetwork:
    """Load a CLIP by id, or from a folder.

    Raises:
        UserError: it cannot be found or fetched, is incomplete or another network, or open_clip is not installed.
    """
    if source.startswith(OPEN_CLIP):
        return _load_open_clip(source.removeprefix(OPEN_CLIP), device)
    base = Base(id=str(Path(source).absolute()) if Path(source).is_dir() else source)
    with reading(base, "--clip"):
        network, report = CLIPModel.from_pretrained(base.id, dtype=torch.float32, output_loading_info=True)
        if faults := sorted([*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])]):
            raise ValueError(f"not a whole CLIP: {faults[0]} is missing or has another shape ({len(faults)} such)")
    return Clip(network, load_tokenizer(base, "--clip"), device)


def _load_open_clip(source: str, device: str) -> OpenClip:
    try:
        import open_clip
    except ImportError as error:
        raise NetworkError("open_clip is not installed; `make install-evaluate`, or the extra `evaluate`") from error
    name = f"local-dir:{Path(source).absolute()}" if Path(source).is_dir() else f"hf-hub:{source}"
    try:
        network = open_clip.create_model(name, device="cpu")
        return OpenClip(network, open_clip.get_tokenizer(name), device)
    except (OSError, ValueError, RuntimeError, SafetensorError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise NetworkError(f"{source} cannot be loaded by open_clip: {reason}. Name its folder, or its id") from error


def squares(pictures: Sequence[Picture], side: int) -> Tensor:
    """Squeeze pictures to squares: uint8 [N, 3, side, side]."""
    how = [cv2.INTER_AREA if min(picture.shape[:2]) >= side else cv2.INTER_CUBIC for picture in pictures]
    resized = [cv2.resize(each, (side, side), interpolation=by) for each, by in zip(pictures, how, strict=True)]
    return torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2)


def normalized(pictures_NCHW: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Scale uint8 pictures to 0..1, and then each channel by a mean and a deviation."""
    mean_C11, std_C11 = (torch.tensor(each).view(3, 1, 1) for each in (mean, std))
    return (pictures_NCHW.float() / 255 - mean_C11) / std_C11


@torch.inference_mode()
def embedded(pictures: Sequence[Picture], network: Callable[[Sequence[Picture]], Tensor]) -> Embeddings:
    """Embed pictures, a limited number at once, as rows of unit length."""
    parts = (pictures[start : start + _AT_ONCE] for start in range(0, len(pictures), _AT_ONCE))
    return np.concatenate([unit_rows(network(part)) for part in parts])


def unit_rows(rows_ND: Tensor) -> Embeddings:
    """Scale rows to unit length, as an array on the CPU."""
    array: Embeddings = functional.normalize(rows_ND.float(), dim=-1).cpu().numpy()
    return array


def is_untrained(network: nn.Module) -> bool:
    """Return whether every layer norm still has its initial scale of 1, which training changes at once."""
    norms = [module for module in network.modules() if isinstance(module, nn.LayerNorm)]
    return bool(norms) and all(bool((norm.weight == 1).all()) for norm in norms)


def weights_hash(network: nn.Module) -> str:
    """Hash of a network's tensors with their names, twelve digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:12]


class DreamSim:
    """Ensemble of DreamSim; the dot product of two embeddings is the similarity, 1 - distance."""

    def __init__(self, network: Any, device: str) -> None:
        self.network = network
        self._device = device
        self.identity = f"dreamsim-{weights_hash(network)}"
        self.is_untrained = is_untrained(network)

    def embed(self, pictures: Sequence[Picture]) -> Embeddings:
        """Embed pictures of any sizes."""
        return embedded(pictures, self._pictures)

    def _pictures(self, pictures: Sequence[Picture]) -> Tensor:
        rows: Tensor = self.network.embed(squares(pictures, _DREAMSIM_SIDE).float().to(self._device) / 255)
        return rows


def load_dreamsim(folder: Path, device: str = "cpu") -> DreamSim:
    """Load the ensemble.

    The package would fetch missing files while it loads, but evaluation must not use the network. So an incomplete
    folder is an error. The package runs code of DINO's repository from the folder, so the folder must come from a
    source that you trust.

    Raises:
        UserError: the package is not installed, or the folder is incomplete or damaged.
    """
    try:
        from dreamsim import dreamsim
    except ImportError as error:
        raise NetworkError("DreamSim is not installed; `make install-evaluate`, or the extra `evaluate`") from error
    check_dreamsim(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints the folder's name
            network, _ = dreamsim(pretrained=True, device=device, cache_dir=str(folder.absolute()))
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise NetworkError(f"{folder}: DreamSim cannot be loaded: {reason}. Fetch the folder again") from error
    return DreamSim(network, device)
