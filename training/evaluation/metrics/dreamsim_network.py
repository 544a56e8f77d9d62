"""DreamSim, the ensemble of the package `dreamsim`, from a folder that the package has once filled.

The package loads its weights through torch's hub cache, and fetches what is missing while it loads. So the folder is
checked first, and an incomplete one is an error: evaluation fetches nothing by itself. The folder holds code of DINO's
repository that the package runs; it has to come from a place that you trust.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from training.evaluation.metrics.network_sources import check_dreamsim
from training.evaluation.metrics.networks import (
    Embeddings,
    NetworkError,
    Picture,
    embedded,
    is_untrained,
    squares,
    weights_hash,
)

_SIDE = 224


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
        rows: Tensor = self.network.embed(squares(pictures, _SIDE).float().to(self._device) / 255)
        return rows


def load_dreamsim(folder: Path, device: str = "cpu") -> DreamSim:
    """Load the ensemble.

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
