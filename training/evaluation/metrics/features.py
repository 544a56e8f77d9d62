"""Features of clips, cached by content: each clip is decoded once for all extractors.

    EVALUATION/features/<extractor>/<sha256 of the clip>.safetensors

Files are written atomically and never changed, so an interrupted run resumes. Memory holds the pictures of a few clips
and no features, so its use does not grow with the number of clips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from pipeline.core.atomic import replacing
from pipeline.core.config import MotionSettings
from pipeline.core.errors import UserError
from pipeline.core.records import RecordError
from pipeline.stages.motion import flow_model_of, measure_frames, open_optical_flow
from pipeline.video.clip_files import read_clip_in_part
from training.evaluation.metrics.appearance import hashes_of
from training.evaluation.metrics.networks import Picture, PictureNetwork
from training.evaluation.played import content_hash

FRAMES = 8
"""Frames of a clip that networks see, evenly spaced from the first to the last."""
CLIPS_AT_ONCE = 8

Feature = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class ClipPictures:
    """Pictures of a clip: the luma of all frames, FRAMES of them as RGB, and all as BGR if an extractor needs them."""

    gray_THW: Picture
    some: Sequence[Picture]
    all_THWC: Picture | None


class Extractor(Protocol):
    """Extraction of features from the pictures of clips."""

    identity: str
    """Folder of the features; equal identities, equal features."""
    needs_colour: bool
    """True if it needs all frames in colour."""

    def describe(self, clips: Sequence[ClipPictures]) -> list[Feature]:
        """Return the features of each clip."""
        ...


class EmbeddedFrames:
    """Embeddings of some frames by a network: `frames`, [F, D]."""

    needs_colour = False

    def __init__(self, network: PictureNetwork) -> None:
        self._network = network
        self.identity = f"{network.identity}-{FRAMES}"

    def describe(self, clips: Sequence[ClipPictures]) -> list[Feature]:
        """Embed the frames of all clips together."""
        rows_ND = self._network.embed([picture for clip in clips for picture in clip.some])
        ends = np.cumsum([len(clip.some) for clip in clips])[:-1]
        return [{"frames": frames_FD} for frames_FD in np.split(rows_ND, ends)]


class HashedFrames:
    """Hashes of some frames: `hashes`, [F, 32]."""

    identity = f"hashes-1-{FRAMES}"
    needs_colour = False

    def describe(self, clips: Sequence[ClipPictures]) -> list[Feature]:
        """Hash the frames of each clip."""
        return [{"hashes": hashes_of(clip.some)} for clip in clips]


class ClipMotions:
    """Motion as the stage `motion` of a dataset measures it: `scope_px` and the number of `drawings`.

    Args:
        size: width and height of the dataset's clips, in whose pixels its level edges are measured. Other clips are
            first scaled to this number of pixels, in proportion. None measures each clip in its own pixels.
    """

    def __init__(self, settings: MotionSettings, size: tuple[int, int] | None = None) -> None:
        self._flow = open_optical_flow(settings)
        self._background_px = settings.background_px
        self._size = size
        self.flow_model = flow_model_of(settings)
        self.identity = f"motion-{self.flow_model.replace(':', '-')}-{settings.background_px:g}"
        if size:
            self.identity += "-{}x{}".format(*size)
        self.needs_colour = self._flow.colour

    def describe(self, clips: Sequence[ClipPictures]) -> list[Feature]:
        """Measure the clips, one at a time."""
        measured: list[Feature] = []
        for clip in clips:
            frames = clip.all_THWC if clip.all_THWC is not None and self._flow.colour else clip.gray_THW
            if self._size:
                frames = with_pixels(frames, self._size[0] * self._size[1])
            [motion] = measure_frames([frames], self._flow, self._background_px)
            measured.append({"scope_px": np.array([motion.scope_px]), "drawings": np.array([motion.unique_frames])})
        return measured


def with_pixels(frames: Picture, pixels: int) -> Picture:
    """Scale frames, [T, H, W] or [T, H, W, C], to this number of pixels, in proportion."""
    height, width = frames.shape[1:3]
    factor = math.sqrt(pixels / (height * width))
    size = (round(width * factor), round(height * factor))
    if size == (width, height):
        return frames
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    return np.stack([cv2.resize(frame, size, interpolation=how) for frame in frames])


class Features:
    """Cache of features."""

    def __init__(self, root: Path, extractors: Sequence[Extractor]) -> None:
        self._root = root
        self.extractors = extractors

    def fill(self, clips: Iterable[Path], done: Callable[[int], None] = lambda _: None) -> int:
        """Extract the features that the cache lacks, and return the number of clips that were decoded.

        Args:
            done: called with the number of clips checked.

        Raises:
            UserError: a clip cannot be read, or the cache cannot be written.
        """
        decoded = seen = 0
        remaining, in_colour = iter(clips), any(extractor.needs_colour for extractor in self.extractors)
        decode = partial(decode_clip, in_colour=in_colour)
        with ThreadPoolExecutor() as threads:
            while batch := list(islice(remaining, CLIPS_AT_ONCE)):
                hashes = dict(zip(threads.map(content_hash, batch), batch, strict=True))
                lacking = {sha256: path for sha256, path in hashes.items() if self._lacking(sha256)}
                pictures = dict(zip(lacking, threads.map(decode, lacking.values()), strict=True))
                for extractor in self.extractors:
                    self._extract(extractor, pictures)
                decoded, seen = decoded + len(lacking), seen + len(batch)
                done(seen)
        return decoded

    def of(self, extractor: Extractor, sha256: str) -> Feature:
        """Return the features of a clip, by its content. UserError if the file is damaged."""
        path = self._path(extractor, sha256)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path} is damaged ({error}); delete it, and measure again") from error

    def _extract(self, extractor: Extractor, pictures: Mapping[str, ClipPictures]) -> None:
        hashes = [sha256 for sha256 in pictures if not self._path(extractor, sha256).exists()]
        if not hashes:
            return
        features = extractor.describe([pictures[sha256] for sha256 in hashes])
        for sha256, arrays in zip(hashes, features, strict=True):
            with replacing(self._path(extractor, sha256)) as temporary:
                save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary)

    def _lacking(self, sha256: str) -> bool:
        return any(not self._path(extractor, sha256).exists() for extractor in self.extractors)

    def _path(self, extractor: Extractor, sha256: str) -> Path:
        return self._root / extractor.identity / f"{sha256}.safetensors"


def decode_clip(path: Path, in_colour: bool = False) -> ClipPictures:
    """Decode a clip once for all extractors. UserError if it cannot be read."""
    try:
        gray_THW, colour = read_clip_in_part(path, range if in_colour else evenly)
    except RecordError as error:
        raise UserError(f"{path}: {error.reason}; play the game again, or replace the file") from error
    some_FHWC = colour[evenly(len(gray_THW))] if in_colour else colour
    return ClipPictures(gray_THW, list(some_FHWC[..., ::-1]), colour if in_colour else None)


def evenly(count: int) -> list[int]:
    """Indices of at most FRAMES frames of `count`, evenly spaced from the first to the last."""
    return sorted({round(index) for index in np.linspace(0, count - 1, FRAMES)})
