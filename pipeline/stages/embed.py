"""Embeddings of a film's clips: vectors of three pictures each, and of the figures on them.

The stage reads the clips alone. Vectors have length 1 and are stored as 16-bit floats, `pictures.npy` in the order of
the table `embedded`, and `figures.npy` in the order of the table `figures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pipeline.core.atomic import replacing
from pipeline.core.embed_settings import EmbedSettings, NetworkRole
from pipeline.core.measurements import Box, Embedded, FoundFigure
from pipeline.core.progress import Progress
from pipeline.core.records import Clip
from pipeline.core.stage import Outcome, Resources, Stage, attempt_each
from pipeline.core.store import FilmFolder
from pipeline.stages.embedding.network_files import PREPARATION, NetworkFiles, check_pins, find_network
from pipeline.video.clip_files import read_clip_in_part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.stages.embedding.networks import FigureDetector, PictureEncoder

PICTURES = 3
"""Pictures of a clip that are embedded."""
PICTURE_VECTORS, FIGURE_VECTORS = "pictures.npy", "figures.npy"


@dataclass(frozen=True)
class Embed(Stage):
    """Stage `embed`: the tables `embedded` and `figures`, and the vectors."""

    name: ClassVar[str] = "embed"
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("cut",)

    settings: EmbedSettings
    threads: int = 1
    failed_limit: float = 0.1
    fetch: bool = True
    """True: fetch networks from the hub that this machine lacks."""

    @property
    def resources(self) -> Resources:
        """One CPU per thread."""
        return Resources(cpus=self.threads or 1)

    def networks(self) -> dict[NetworkRole, NetworkFiles]:
        """Files of the networks by their key in the settings. Raises UserError if one cannot be found."""
        return {role: find_network(source, role, fetch=self.fetch) for role, source in self.settings.named().items()}

    def ingredients(self) -> dict[str, Any]:
        """Hash of each network and of the settings beside it; not its name."""
        found = self.networks()
        files = {
            role: [one.sha256, *(file.read_text("utf-8") for name, file in one.beside.items() if name == PREPARATION)]
            for role, one in found.items()
            if role != "words"
        }
        return {"embed": {**files, **({"least_score": self.settings.least_score} if "figures" in found else {})}}

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Embed every clip of the film.

        Raises:
            UserError: a network cannot be used, or differs from the one that the dataset was made with.
            RecordError: more than `failed_limit` of the clips cannot be read.
        """
        networks = self.networks()
        check_pins(folder.path.parent.parent, networks.values(), record=False)
        embedder = _Embedder.of(networks, self.settings.least_score)
        clips = folder.read("clips", Clip)

        def embed(clip: Clip) -> _EmbeddedClip:
            return embedder.embed(clip.clip_id, folder.clip_path(clip.clip_id))

        done, failures = attempt_each(
            clips, embed, threads=self.threads, failed_limit=self.failed_limit, progress=progress
        )
        files = []
        vectors = {
            PICTURE_VECTORS: [one.pictures_PD for one in done if one.pictures_PD is not None],
            FIGURE_VECTORS: [one.figures_ND for one in done if one.figures_ND is not None and len(one.figures_ND)],
        }
        for name, parts in vectors.items():
            if parts:
                _write(folder.path / name, np.stack(parts) if name == PICTURE_VECTORS else np.concatenate(parts))
                files.append(name)
            else:
                (folder.path / name).unlink(missing_ok=True)
        return Outcome(
            tables={
                "embedded": [one.row for one in done],
                "figures": [figure for one in done for figure in one.figures],
            },
            failures=failures,
            files=tuple(files),
        )


@dataclass(frozen=True)
class _EmbeddedClip:
    row: Embedded
    figures: tuple[FoundFigure, ...]
    pictures_PD: NDArray[np.float32] | None
    figures_ND: NDArray[np.float32] | None


@dataclass(frozen=True)
class _Embedder:
    """The networks of a build, which threads share."""

    pictures: PictureEncoder | None
    detector: FigureDetector | None
    characters: PictureEncoder | None

    @classmethod
    def of(cls, networks: Mapping[NetworkRole, NetworkFiles], least_score: float) -> _Embedder:
        from pipeline.stages.embedding.networks import OnnxPictureEncoder, YoloDetector

        return cls(
            pictures=OnnxPictureEncoder(files) if (files := networks.get("pictures")) else None,
            detector=YoloDetector(files, least_score) if (files := networks.get("figures")) else None,
            characters=OnnxPictureEncoder(files) if (files := networks.get("characters")) else None,
        )

    def embed(self, clip_id: str, path: Path) -> _EmbeddedClip:
        frames: list[int] = []

        def choose(length: int) -> Sequence[int]:
            frames.extend((2 * number + 1) * length // (2 * PICTURES) for number in range(PICTURES))
            return frames

        _, pictures_PHWC = read_clip_in_part(path, choose)
        row = Embedded(clip_id=clip_id, frames=tuple(frames))
        pictures_PD = self.pictures.vectors(list(pictures_PHWC)) if self.pictures else None
        figures, crops = [], []
        for frame, picture_HWC in zip(frames, pictures_PHWC, strict=True):
            for figure in self.detector.figures(picture_HWC) if self.detector else ():
                left, top, right, bottom = figure.box
                box = Box(left=left, top=top, right=right, bottom=bottom)
                figures.append(
                    FoundFigure(clip_id=clip_id, frame=frame, label=figure.label, score=figure.score, box=box)
                )
                crops.append(picture_HWC[top:bottom, left:right])
        figures_ND = self.characters.vectors(crops) if self.characters and crops else None
        return _EmbeddedClip(row, tuple(figures), pictures_PD, figures_ND)


def _write(path: Path, vectors: NDArray[np.float32]) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, vectors.astype(np.float16))
