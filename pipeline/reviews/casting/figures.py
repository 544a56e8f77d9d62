"""Figures of a dataset with their vectors, as the stage `embed` left them, and pictures cut out of the clips.

    figures = read_figures(dataset)
    label_N = clusters(figures.vectors_ND, figures.usual_likeness())
    pictures = cut_out(dataset, figures.items[:3])

Without a detector of figures and an encoder of characters, each embedded picture stands for its one figure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.captions.cast import reference_pictures
from pipeline.core.config import recorded
from pipeline.core.embed_settings import NetworkRole
from pipeline.core.errors import UserError
from pipeline.core.measurements import Embedded, FoundFigure
from pipeline.core.records import Clip
from pipeline.core.store import Dataset, FilmFolder
from pipeline.stages.embed import FIGURE_VECTORS, PICTURE_VECTORS, Embed
from pipeline.stages.embedding.network_files import NetworkFiles, check_pins, find_network
from pipeline.video.clip_files import read_frames
from pipeline.video.containers import Picture

if TYPE_CHECKING:
    from pipeline.stages.embedding.networks import OnnxPictureEncoder

Shares = tuple[float, float, float, float]
WHOLE: Shares = (0.0, 0.0, 1.0, 1.0)
SAME_BOX = 0.5
"""Least overlap, as the share of two boxes that both cover, at which they show one figure."""
_TOGETHER = 0.1
"""Share of clips whose pictures may fall into different clusters."""
_FEW_LIKENESS = 0.9
"""Usual likeness where no clip has two pictures to compare."""


@dataclass(frozen=True)
class Figure:
    """A figure on a picture of a clip."""

    film_sha256: str
    clip: Clip
    frame: int
    """Number of the picture among the clip's frames."""
    box: Shares
    """Left, top, right and bottom as shares of the picture's width and height."""

    @property
    def seconds(self) -> float:
        """Time of the picture in the film."""
        return self.clip.start_seconds + float(self.frame / self.clip.fps)

    @property
    def pixels(self) -> tuple[int, int, int, int]:
        """Its box in pixels of the clip."""
        sides = (self.clip.width, self.clip.height) * 2
        left, top, right, bottom = (round(share * side) for share, side in zip(self.box, sides, strict=True))
        return left, top, right, bottom


@dataclass(frozen=True)
class Figures:
    """Figures film by film in time order."""

    items: tuple[Figure, ...]
    vectors_ND: NDArray[np.float32]
    """Vector of length 1 of each."""
    by_detector: bool
    """False: each item is a whole picture."""
    network: str
    """SHA-256 of the network that made all vectors."""

    def usual_likeness(self) -> float:
        """Return the likeness at which the figures of 9 in 10 clips stay together, from one picture to the next."""
        by_picture = groupby(
            range(len(self.items)), lambda place: (self.items[place].clip.clip_id, self.items[place].frame)
        )
        found = []
        for ((before, _), ones), ((clip_id, _), others) in pairwise((key, list(places)) for key, places in by_picture):
            near = product(ones, others) if before == clip_id else ()
            same = [pair for pair in near if overlap(*(self.items[place].box for place in pair)) >= SAME_BOX]
            found += [float(self.vectors_ND[one] @ self.vectors_ND[other]) for one, other in same]
        return float(np.quantile(found, _TOGETHER)) if found else _FEW_LIKENESS


def read_figures(dataset: Dataset, films: Collection[str] = ()) -> Figures:
    """Read the figures of a dataset, or of some films by id.

    Films that were cut after they were embedded have none, nor have films without a detector beside films with one.

    Raises:
        UserError: nothing was embedded, the films were embedded by different networks, or a file cannot be read.
    """
    embedded, network = embedded_films(dataset, "characters", films)
    if not (by_detector := bool(embedded)):
        embedded, network = embedded_films(dataset, "pictures", films)
    if not embedded:
        raise UserError(
            f"{dataset.root}: no clip has vectors; name `pictures`, or `figures` and `characters`, in [embed]; build"
        )
    sha256 = {entry.film_id: entry.sha256 for entry in dataset.record.films}
    items: list[Figure] = []
    parts: list[NDArray[np.float32]] = []
    for folder in embedded:
        clips = {clip.clip_id: clip for clip in folder.read("clips", Clip)}
        own = list((_of_detector if by_detector else _of_pictures)(folder, clips, sha256[folder.film_id]))
        if own:
            vectors = read_vectors(folder.path / (FIGURE_VECTORS if by_detector else PICTURE_VECTORS), len(own))
            items += own
            parts.append(vectors.reshape(len(own), -1).astype(np.float32))
    return Figures(tuple(items), np.concatenate(parts) if parts else np.zeros((0, 1), np.float32), by_detector, network)


def embedded_films(dataset: Dataset, role: NetworkRole, films: Collection[str] = ()) -> tuple[list[FilmFolder], str]:
    """Return the films with vectors by a network of this role, all or some by id, and its hash; empty without any.

    Raises:
        UserError: the films were embedded by different networks.
    """
    folders = [folder for folder in dataset.folders() if not films or folder.film_id in films]
    found = {folder.film_id: network for folder in folders if (network := networks_of(folder).get(role))}
    if len(set(found.values())) > 1:
        raise UserError(f"{dataset.root}: its films were embedded by different networks; build all with one `[embed]`")
    return [folder for folder in folders if folder.film_id in found], next(iter(found.values()), "")


def reference_vectors(dataset: Dataset, figures: Figures, folder: Path) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of the pictures in a cast folder by name, by the network of the figures.

    Raises:
        UserError: the folder cannot be used, or the network is not the one that made the figures' vectors.
    """
    encoder = encoder_of(dataset, "characters" if figures.by_detector else "pictures", figures.network)
    return {
        name: encoder.vectors([np.asarray(picture)[..., ::-1] for picture in pictures])
        for name, pictures in reference_pictures(folder).items()
    }


def encoder_of(dataset: Dataset, role: NetworkRole, sha256: str) -> OnnxPictureEncoder:
    """Return the network of pictures that the last build named. UserError if it named none, or one of another hash."""
    from pipeline.stages.embedding.networks import OnnxPictureEncoder

    files = network_file(dataset, role)
    if files.sha256 != sha256:
        raise UserError(f"{files.source} is not the network that embedded the clips; build again, or restore it")
    return OnnxPictureEncoder(files)


def network_file(dataset: Dataset, role: NetworkRole) -> NetworkFiles:
    """Return the files of a network that the last build named. UserError if it named none, or has another one."""
    source = recorded(dataset.record.config, dataset.root).embed.named().get(role)
    if source is None:
        raise UserError(f"the last build named no network as `{role}` in [embed]; name one, and build")
    found = find_network(source, role, fetch=True)
    check_pins(dataset.root, [found], record=False)
    return found


def networks_of(folder: FilmFolder) -> dict[str, str]:
    """Return the hashes of the networks that embedded the clips of a film; empty without vectors of these clips."""
    embedded, cut = folder.stage_record(Embed.name), folder.stage_record("cut")
    if embedded is None or cut is None or embedded.ingredients["upstream"] != {"cut": cut.result}:
        return {}
    return {role: made[0] for role, made in embedded.ingredients["embed"].items() if role != "least_score" and made}


def read_vectors(path: Path, count: int) -> NDArray[np.float16]:
    """Return so many vectors on disk: shape (..., size). UserError if the file has another number, or is damaged."""
    try:
        vectors: NDArray[np.float16] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); run `animegamer build` to make it again") from error
    if vectors.ndim < 2 or vectors.size != count * vectors.shape[-1]:
        raise UserError(f"{path}: does not fit its table; delete it and build again")
    return vectors


def overlap(one: Shares, other: Shares) -> float:
    """Return the share of two boxes that both cover."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    both = max(0.0, width) * max(0.0, height)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return both / (areas - both) if areas > both else 0.0


def cut_out(dataset: Dataset, figures: Sequence[Figure]) -> Iterator[tuple[int, Picture]]:
    """Yield the place of each figure, clip by clip, and its picture, BGR uint8. Raises RecordError."""
    places = defaultdict(list)
    for place, figure in enumerate(figures):
        places[figure.clip.clip_id].append(place)
    for own in places.values():
        clip = figures[own[0]].clip
        path = dataset.folder(clip.film_id).clip_path(clip.clip_id)
        frames_THWC = read_frames(path, partial(_frames, [figures[place] for place in own]), clip.width, clip.height)
        for place, picture_HWC in zip(own, frames_THWC, strict=True):
            left, top, right, bottom = figures[place].pixels
            yield place, picture_HWC[top:bottom, left:right]


def figure_counts(folder: FilmFolder) -> dict[str, int]:
    """Return the most figures on a picture of each clip of a film, by clip id; empty if no detector looked for them."""
    if "figures" not in networks_of(folder):
        return {}
    counts = Counter((row.clip_id, row.frame) for row in folder.read("figures", FoundFigure))
    most = dict.fromkeys((row.clip_id for row in folder.read("embedded", Embedded)), 0)
    for (clip_id, _), count in counts.items():
        most[clip_id] = max(most[clip_id], count)
    return most


def _frames(figures: Sequence[Figure], _: int) -> list[int]:
    return [figure.frame for figure in figures]


def _of_detector(folder: FilmFolder, clips: dict[str, Clip], sha256: str) -> Iterator[Figure]:
    for row in folder.read("figures", FoundFigure):
        clip, box = clips[row.clip_id], row.box
        sides = (clip.width, clip.height) * 2
        shares = [side / whole for side, whole in zip((box.left, box.top, box.right, box.bottom), sides, strict=True)]
        yield Figure(sha256, clip, row.frame, (shares[0], shares[1], shares[2], shares[3]))


def _of_pictures(folder: FilmFolder, clips: dict[str, Clip], sha256: str) -> Iterator[Figure]:
    for row in folder.read("embedded", Embedded):
        yield from (Figure(sha256, clips[row.clip_id], frame, WHOLE) for frame in row.frames)
