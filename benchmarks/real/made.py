"""Made transitions: two real scenes joined by FFmpeg's `xfade`, pair after pair, with a cut between the pairs.

Scenes of Big Buck Bunny and the art of one package are for tuning; its trailer and the art of the other are held out.
Every second pair joins scenes that look alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from itertools import islice, pairwise, product
from pathlib import Path
from random import Random

import av
import cv2
import numpy as np
from av.filter import Graph

from benchmarks.real.truth import Change, Film
from examples.bunny.film import fetch_bunny, fetch_trailer
from examples.world.paintings import art_folder
from examples.world.textures import Picture
from examples.world.writer import write_film
from pipeline.core.atomic import replacing

FPS, SIZE = 24, (1280, 720)
# fmt: off
KINDS = (
    "fade", "fadeblack", "fadewhite", "fadegrays", "fadefast", "fadeslow", "dissolve", "pixelize", "distance",
    "hblur", "radial", "zoomin", "wipeleft", "wiperight", "wipeup", "wipedown", "wipetl", "wipetr", "wipebl",
    "wipebr", "diagtl", "diagtr", "diagbl", "diagbr", "smoothleft", "smoothright", "smoothup", "smoothdown",
    "slideleft", "slideright", "slideup", "slidedown", "circlecrop", "rectcrop", "circleopen", "circleclose",
    "vertopen", "vertclose", "horzopen", "horzclose", "squeezeh", "squeezev", "hlslice", "hrslice", "vuslice",
    "vdslice", "hlwind", "hrwind", "vuwind", "vdwind", "coverleft", "coverright", "coverup", "coverdown",
    "revealleft", "revealright", "revealup", "revealdown",
)
# fmt: on
"""Every transition of `xfade` but `custom`."""
LENGTHS = (0.2, 0.5, 1.0, 1.5, 2.0, 2.5)
CLEAN_SECONDS = 2.2
"""Length of each scene outside the transition: room for one clip."""
PAIRS_A_FILM = 29
_TRAILER = (
    (40, 120),
    (258, 322),
    (350, 500),
    (610, 745),
    (788, 862),
    (905, 985),
    (995, 1045),
    (1055, 1112),
    (1155, 1222),
)
"""First and last frame of the trailer's scenes, by eye."""
CUTS = Path("tests/support/bbb_cuts.json")
"""Cuts of Big Buck Bunny. The title is gone by frame 1145, the credits begin at 11,728."""


@dataclass(frozen=True)
class Scene:
    """A scene to join: frames of a film, or a picture with the camera moving over it.

    Attributes:
        source: the film or the picture.
        first: first frame; for a picture, the direction of the camera.
        frames: length.
    """

    source: Path
    first: int
    frames: int

    def differs(self, other: Scene) -> bool:
        """Return false for the same scene, and for two ways over one picture."""
        return self.source != other.source or (self.source.suffix == ".mp4" and self != other)


def made_films(folder: Path, *, quick: bool) -> list[Film]:
    """Compose the films, unless an earlier run has, and return them with their truth."""
    films = []
    for name, is_held_out in (("tuning", False), ("held-out", True)):
        scenes = _scenes(is_held_out=is_held_out)
        jobs = [job for number, job in enumerate(product(KINDS, LENGTHS)) if (number // 6 + number) % 2 == is_held_out]
        Random(f"jobs {name}").shuffle(jobs)
        jobs = jobs[:PAIRS_A_FILM] if quick else jobs
        for part in range(0, len(jobs), PAIRS_A_FILM):
            path = folder / f"{name}-{part // PAIRS_A_FILM}.mp4"
            films.append(_film(path, scenes, jobs[part : part + PAIRS_A_FILM], is_held_out=is_held_out))
    return films


def _film(path: Path, scenes: Sequence[Scene], jobs: Sequence[tuple[str, float]], *, is_held_out: bool) -> Film:
    notes = path.with_suffix(".json")
    if not notes.exists():
        changes: list[Change] = []
        with replacing(path) as temporary:
            write_film(temporary, _pictures(path.stem, scenes, jobs, changes), fps=FPS, options={"crf": "18"})
        notes.write_text(json.dumps([asdict(change) for change in changes]))
    return Film(path, tuple(Change(**change) for change in json.loads(notes.read_text())), is_held_out)


def _pictures(
    seed: str, scenes: Sequence[Scene], jobs: Sequence[tuple[str, float]], changes: list[Change]
) -> Iterator[Picture]:
    """Yield the frames of all pairs, and list their changes."""
    random, count, new = Random(seed), 0, None
    for number, (kind, seconds) in enumerate(jobs):
        length = round(seconds * FPS)
        clean = round(CLEAN_SECONDS * FPS)
        long_enough = [scene for scene in scenes if scene.frames >= length + clean]
        old = random.choice([scene for scene in long_enough if new is None or scene.differs(new)])
        new = _partner(old, long_enough, random, alike=number % 2 == 1)
        if count:
            changes.append(Change("cut", count / FPS, count / FPS))
        changes.append(Change(kind, (count + clean) / FPS, (count + clean + length) / FPS))
        for picture_HWC in _joined(
            kind, length, list(_frames(old, length + clean)), list(_frames(new, length + clean))
        ):
            yield picture_HWC
            count += 1


def _partner(old: Scene, scenes: Sequence[Scene], random: Random, *, alike: bool) -> Scene:
    others = [scene for scene in scenes if scene.differs(old)]
    if not alike:
        return random.choice(others)
    return min(others, key=lambda other: float(np.abs(_colours(other) - _colours(old)).mean()))


@cache
def _colours(scene: Scene) -> np.ndarray:
    [picture_HWC] = islice(_frames(scene, 1), 1)
    return cv2.resize(picture_HWC, (8, 6), interpolation=cv2.INTER_AREA).astype(np.float32)


def _joined(kind: str, length: int, old: Sequence[Picture], new: Sequence[Picture]) -> Iterator[Picture]:
    """Yield the frames of two scenes joined by `xfade`."""
    graph = Graph()
    video = f"video_size={SIZE[0]}x{SIZE[1]}:pix_fmt=yuv420p:time_base=1/{FPS}:frame_rate={FPS}:pixel_aspect=1/1"
    inputs = [graph.add("buffer", video) for _ in range(2)]
    xfade = graph.add("xfade", f"transition={kind}:duration={length / FPS}:offset={(len(old) - length) / FPS}")
    sink = graph.add("buffersink")
    for number, source in enumerate(inputs):
        source.link_to(xfade, 0, number)
    xfade.link_to(sink)
    graph.configure()
    for source, pictures in zip(inputs, (old, new), strict=True):
        for number, picture_HWC in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture_HWC, format="bgr24").reformat(format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            source.push(frame)
        source.push(None)
    while True:
        try:
            shown = sink.pull()
        except (av.error.EOFError, av.error.BlockingIOError):
            return
        assert isinstance(shown, av.VideoFrame)
        yield _bgr(shown)


def _scenes(*, is_held_out: bool) -> list[Scene]:
    if is_held_out:
        filmed = [Scene(fetch_trailer(), first, last + 1 - first) for first, last in _TRAILER]
        art = sorted((art_folder() / "the_question/game/images").glob("bg *.jpg"))
    else:
        cuts = json.loads(CUTS.read_text())["consensus_adaptive_transnet"]
        spans = [(first + 4, last - 4) for first, last in pairwise(cuts) if 1145 <= first < last < 11_700]
        filmed = [Scene(fetch_bunny(), first, last - first) for first, last in spans]
        images = art_folder() / "demo/game/images"
        art = sorted([*images.glob("bg *.jpg"), *images.glob("concert1.png")])
    long_enough = round((CLEAN_SECONDS + min(LENGTHS)) * FPS)
    stills = [Scene(path, direction, 10 * FPS) for path in art for direction in range(4)]
    return [*(scene for scene in filmed if scene.frames >= long_enough), *stills]


def _frames(scene: Scene, count: int) -> Iterator[Picture]:
    return _moved(scene, count) if scene.source.suffix in (".jpg", ".png") else _filmed(scene, count)


def _filmed(scene: Scene, count: int) -> Iterator[Picture]:
    with av.open(str(scene.source)) as film:
        stream = film.streams.video[0]
        assert stream.time_base is not None
        start = Fraction(scene.first, FPS)
        film.seek(int(start / stream.time_base), stream=stream)
        before = float(start) - 0.5 / FPS
        shown = (frame for frame in film.decode(stream) if frame.time is not None and frame.time >= before)
        for frame in islice(shown, count):
            yield _bgr(frame)


def _bgr(frame: av.VideoFrame) -> Picture:
    return np.asarray(frame.to_ndarray(format="bgr24"), np.uint8)


def _moved(scene: Scene, count: int) -> Iterator[Picture]:
    """Yield a picture over which the camera pans or zooms slowly, in one of four ways."""
    stored_HWC = cv2.imread(str(scene.source))
    assert stored_HWC is not None
    picture_HWC = cv2.resize(stored_HWC, SIZE, interpolation=cv2.INTER_AREA)
    for number in range(count):
        way = number / (8 * FPS)
        zoom = 1.15 + (0.15 * way if scene.first == 0 else 0.0)
        across, down = ((0.0, 0.0), (0.06 * way, 0.0), (-0.06 * way, 0.02 * way), (0.0, 0.0))[scene.first]
        left, top = SIZE[0] * ((zoom - 1) / 2 + across), SIZE[1] * ((zoom - 1) / 2 + down)
        matrix = np.array([[zoom, 0, -left], [0, zoom, -top]], np.float32)
        moved_HWC = cv2.warpAffine(picture_HWC, matrix, SIZE, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        yield np.asarray(moved_HWC, np.uint8)
