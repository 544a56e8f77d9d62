"""Search of clips by the likeness of their pictures, and pairs of clips alike in content.

    vectors = picture_vectors(dataset)
    likeness = vectors.likeness(query_QD)          the best of the 3 pictures of each clip and of the Q in the query
    pairs = vectors.pairs(least=0.97)

Likeness is the cosine of two vectors of the stage `embed`, -1..1. Plain numpy compares all: vectors stay on disk as
16-bit floats, and a few thousand at a time are made wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import UserError
from pipeline.core.measurements import Embedded
from pipeline.core.store import Dataset
from pipeline.reviews.casting.figures import embedded_films, encoder_of, network_file, read_vectors
from pipeline.stages.embed import PICTURE_VECTORS

_AT_ONCE, _PAIRED_AT_ONCE = 4096, 256
"""Clips compared at once, with a query and with all others."""


@dataclass(frozen=True)
class PictureVectors:
    """Vectors of the pictures of clips, film by film."""

    clip_ids: tuple[str, ...]
    parts: tuple[NDArray[np.float16], ...]
    """Of each film: shape (clips, pictures, size)."""
    network: str
    """SHA-256 of the network that made all of them."""

    def of(self, clip_id: str) -> NDArray[np.float32] | None:
        """Return the vectors of a clip, shape (pictures, size); None if it has none."""
        if clip_id not in self.clip_ids:
            return None
        place = self.clip_ids.index(clip_id)
        for start, wide_CPD in self._batches():
            if place - start < len(wide_CPD):
                found_PD: NDArray[np.float32] = wide_CPD[place - start]
                return found_PD
        raise AssertionError("fewer vectors than clips")

    def likeness(self, query_QD: NDArray[np.float32]) -> dict[str, float]:
        """Return the likeness of each clip to the closest vector of a query, by clip id. UserError for another size."""
        if self.parts and self.parts[0].shape[-1] != query_QD.shape[-1]:
            raise UserError(
                f"`[embed] words` gives vectors of size {query_QD.shape[-1]}, `[embed] pictures` of "
                f"{self.parts[0].shape[-1]}; name both halves of one network"
            )
        best = [(wide_CPD @ query_QD.T).max(axis=(1, 2)) for _, wide_CPD in self._batches()]
        return dict(zip(self.clip_ids, np.concatenate(best).tolist(), strict=True)) if best else {}

    def pairs(self, least: float) -> list[tuple[str, str, float]]:
        """Return the pairs of clips, earlier first, whose mean pictures are at least so alike; the most alike first."""
        means = [wide_CPD.mean(axis=1) for _, wide_CPD in self._batches()]
        if not means:
            return []
        mean_ND = np.concatenate(means)
        mean_ND /= np.maximum(np.linalg.norm(mean_ND, axis=1, keepdims=True), 1e-12)
        found = []
        for start in range(0, len(mean_ND), _PAIRED_AT_ONCE):
            alike_CN = mean_ND[start : start + _PAIRED_AT_ONCE] @ mean_ND[start:].T
            for one, other in np.argwhere(np.triu(alike_CN, 1) >= least).tolist():
                found.append((self.clip_ids[start + one], self.clip_ids[start + other], float(alike_CN[one, other])))
        return sorted(found, key=lambda pair: (-pair[2], pair[0], pair[1]))

    def _batches(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield the place of the first clip, and vectors of some clips as 32-bit floats."""
        start = 0
        for part_CPD in self.parts:
            for low in range(0, len(part_CPD), _AT_ONCE):
                yield start + low, np.asarray(part_CPD[low : low + _AT_ONCE], np.float32)
            start += len(part_CPD)


def picture_vectors(dataset: Dataset) -> PictureVectors:
    """Read the vectors of a dataset. Films that were not embedded, or cut again since, have none.

    Raises:
        UserError: the films were embedded by several networks, or a file cannot be read.
    """
    clip_ids: list[str] = []
    parts: list[NDArray[np.float16]] = []
    embedded, network = embedded_films(dataset, "pictures")
    for folder in embedded:
        if rows := folder.read("embedded", Embedded):
            clip_ids += [row.clip_id for row in rows]
            parts.append(read_vectors(folder.path / PICTURE_VECTORS, sum(len(row.frames) for row in rows)))
    return PictureVectors(tuple(clip_ids), tuple(parts), network)


def search(dataset: Dataset, like: str | None, words: str | None) -> dict[str, float]:
    """Return the likeness of each embedded clip to a clip, a picture or words, by clip id.

    Args:
        dataset: the dataset.
        like: id of a clip, which is left out of the result, or path of a picture.
        words: words instead.

    Raises:
        UserError: nothing was embedded, the query is neither a clip nor a picture, or its network cannot be used.
    """
    if like and words:
        raise UserError("--like and --like-words exclude each other: give one")
    vectors = picture_vectors(dataset)
    if not vectors.clip_ids:
        raise UserError("no clip has vectors; name a network as `pictures` in [embed], and build")
    if words is not None:
        found = vectors.likeness(_words(dataset, words))
    elif (of_clip_PD := vectors.of(like or "")) is not None:
        found = vectors.likeness(of_clip_PD)
        found.pop(like or "")
    else:
        found = vectors.likeness(_picture(dataset, Path(like or ""), vectors.network))
    return found


def _picture(dataset: Dataset, path: Path, network: str) -> NDArray[np.float32]:
    """Vector of a picture by the network of the dataset, shape (1, size)."""
    import cv2

    try:
        picture_HWC = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    except (OSError, cv2.error):
        picture_HWC = None
    if picture_HWC is None:
        raise UserError(f"{path} is neither the id of an embedded clip nor a picture")
    return encoder_of(dataset, "pictures", network).vectors([np.asarray(picture_HWC, np.uint8)])


def _words(dataset: Dataset, words: str) -> NDArray[np.float32]:
    """Vector of words, shape (1, size)."""
    from pipeline.stages.embedding.words import WordEncoder

    return WordEncoder(network_file(dataset, "words")).vector(words)[None]
