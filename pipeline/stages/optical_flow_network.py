"""Back end for any two-frame optical-flow network of ptlflow, including MemFlow; needs the extra `flow`.

A batch holds the same step of several clips. A network with a memory (MemFlow) gets the steps of a clip in order, with
marks for the clip's start and end. It clears its memory at the start, and updates it at every step but the last. Clips
in one batch stay independent, because each has its own memory.
"""

from __future__ import annotations

import contextlib
import io
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

import numpy as np

from pipeline.core.errors import UserError
from pipeline.core.hashes import weights_sha256
from pipeline.stages.optical_flow import Frames, Vectors, scaled

if TYPE_CHECKING:
    import torch

MORE_THAN_TWO_FRAMES = ("memfof", "videoflow_bof", "videoflow_mof")
INSTALL = "`make install-flow` (or `uv pip install 'animegamer-pipeline[flow]'`) installs it"


def identify_network(name: str, checkpoint: str | None) -> dict[str, Any]:
    """Return the ingredients of a measurement, network and weights, without importing the network.

    Raises:
        UserError: ptlflow is missing, or no weights are named.
    """
    try:
        ptlflow_version = version("ptlflow")
    except PackageNotFoundError:
        raise UserError(f"optical flow with {name!r} needs ptlflow: {INSTALL}; or use `--flow dis`") from None
    if checkpoint is None:
        raise UserError(
            f"optical flow with {name!r} needs weights: set `checkpoint` in [motion] to a file, "
            "or to the name of published weights that ptlflow can download, such as things or sintel"
        )
    path = Path(checkpoint)
    weights = checkpoint
    if path.is_file():
        weights = weights_sha256(path)
    elif path.suffix or len(path.parts) > 1:
        raise UserError(f"{checkpoint}: no such file; `checkpoint` in [motion] names the weights for {name!r}")
    return {"model": name, "weights": weights, "ptlflow": ptlflow_version}


class OpticalFlowNetwork:
    """Back end of a ptlflow network, on the GPU if there is one, else on the CPU, in 32-bit floats.

    TF32 stays off: with it RAFT's vectors differ by up to 0.13 px between GPU and CPU, without it by 0.0002.
    """

    colour = True
    in_threads = False

    def __init__(self, name: str, checkpoint: str | None, scale: float, batch: int) -> None:
        """Load the weights.

        Raises:
            UserError: ptlflow is missing, the name is unknown, or the checkpoint does not fit it.
        """
        identify_network(name, checkpoint)
        import torch

        self.name = name
        self.scale = scale
        self.clips_at_once = batch
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.network = _load(name, str(checkpoint)).to(self.device).eval()

    def steps(self, clips: Sequence[Frames]) -> Iterator[Vectors]:
        """Compute vectors as `OpticalFlow.steps` does."""
        import torch

        length = len(clips[0])
        before_BCHW = self._pictures([frames_THWC[0] for frames_THWC in clips])
        for end in range(1, length):
            after_BCHW = self._pictures([frames_THWC[end] for frames_THWC in clips])
            # ptlflow's MemFlow reads these two marks; other networks ignore them
            place = {"is_seq_start": end == 1, "is_seq_end": end == length - 1}
            with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                answer = self.network({"images": torch.stack((before_BCHW, after_BCHW), dim=1), "meta": place})
            vectors_B2HW = answer["flows"][:, 0].float() / self.scale
            yield vectors_B2HW.permute(0, 2, 3, 1).cpu().numpy()
            before_BCHW = after_BCHW

    def _pictures(self, frames: Sequence[Frames]) -> torch.Tensor:
        """Return one frame of each clip as the input of a ptlflow network: BGR, 0..1."""
        import torch

        pictures_BCHW = np.stack([scaled(frame_HWC, self.scale).transpose(2, 0, 1) for frame_HWC in frames])
        return torch.from_numpy(pictures_BCHW).contiguous().to(self.device).float() / 255


def _load(name: str, checkpoint: str) -> torch.nn.Module:
    ptlflow = _import_ptlflow()
    known = set(ptlflow.get_model_names()) - set(MORE_THAN_TWO_FRAMES)
    if name not in known:
        raise UserError(f"no two-frame optical-flow model {name!r}; there are dis, {', '.join(sorted(known))}")
    if Path(checkpoint).is_file():
        if not zipfile.is_zipfile(checkpoint):  # the format of torch.save
            raise UserError(f"{checkpoint}: not a torch checkpoint")
    else:
        published = getattr(ptlflow.get_model_reference(name), "pretrained_checkpoints", {})
        if checkpoint not in published:
            choice = ", ".join(published) or "none"
            raise UserError(f"{name!r} has no published weights {checkpoint!r}; it has {choice}")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # constructors print their configuration
            network: torch.nn.Module = ptlflow.get_model(name, ckpt_path=checkpoint)
    except URLError as error:
        raise UserError(f"the weights {checkpoint!r} of {name!r} cannot be downloaded: {error}") from error
    except (KeyError, RuntimeError, TypeError, UnpicklingError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{checkpoint}: does not hold ptlflow weights of {name!r} ({reason})") from error
    return network


def _import_ptlflow() -> ModuleType:
    """Import ptlflow, and suppress the output and warnings of its 90 networks."""
    noise = io.StringIO()
    with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ptlflow
        from loguru import logger
    logger.disable("ptlflow")
    module: ModuleType = ptlflow
    return module
