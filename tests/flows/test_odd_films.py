"""One build of films with odd streams: each comes out right or is refused by name, and no other film suffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from examples.world.textures import Picture
from examples.world.writer import write_film
from flows.engine import run
from pipeline.core.config import checked
from pipeline.core.records import Clip, Damage, Scene
from pipeline.core.store import Dataset, FilmFolder
from pipeline.plan.request import BuildRequest
from pipeline.publish.verify import verify
from tests.support.media.colour_films import write_coded
from tests.support.media.cut_films import barcodes
from tests.support.media.films import paint_pictures
from tests.support.media.odd_streams import PART, SIZE, without_packets, write_joined
from tests.support.media.woven_films import interlaced, telecined

pytestmark = pytest.mark.slow

NTSC = Fraction(30_000, 1001)
INTERLACED = {"options": {"x264-params": "interlaced=1"}}
SETTINGS = {"looks": {"text": False}, "clips": {"width": 360, "height": 240}}


def pictures(count: int = PART, *scenes: int) -> list[Picture]:
    return list(paint_pictures(count, SIZE, scenes=(0, *scenes)))


def mixed_rates(path: Path) -> None:
    """Scenes of 24, 30000/1001 and again 24 frames a second in one stream."""
    steps = [Fraction(1, 24)] * 60 + [1 / NTSC] * 75 + [Fraction(1, 24)] * 60
    times = [sum(steps[:number], Fraction(0)) for number in range(len(steps))]
    write_film(path, pictures(195, 60, 135), fps=24, times=times)


def hybrid(path: Path) -> None:
    """Telecine, then video of whole frames, then telecine with the other field first."""
    film = pictures(200, 64, 136)
    video = [*telecined(film[:64]), *film[64:136], *telecined(film[136:], top_first=False)]
    write_film(path, video, fps=NTSC, **INTERLACED)  # type: ignore[arg-type]


GOOD: dict[str, Callable[[Path], object]] = {
    "rates.mkv": mixed_rates,
    "sizes.ts": lambda path: write_joined(path, (640, 360)),
    "sizes of one shape.mkv": lambda path: write_joined(path, (240, 180), Fraction(4, 3)),
    "flagged.mkv": lambda path: write_film(path, pictures(), fps=24, **INTERLACED),  # type: ignore[arg-type]
    "not flagged.mkv": lambda path: write_film(path, interlaced(pictures(2 * PART)), fps=24),
    "hybrid.mkv": hybrid,
    "reserved tags.mkv": lambda path: write_coded(path, pictures(), "untagged 601", (3, 3, 3)),
    "contradictory tags.mkv": lambda path: write_coded(path, pictures(), "709", (9, 1, 1)),
}
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "shapes.ts": (
        lambda path: write_joined(path, (240, 180)),
        "its pictures change from 1.78:1 to 1.33:1 at 0:00:02; split the file there",
    ),
    "no packets.mp4": (without_packets, "its video stream holds no frames"),
    "no packets.mkv": (without_packets, "its video stream holds no frames"),
    "no frames.mp4": (partial(without_packets, sound=False), "its video stream holds no frames"),
    "no frames.mkv": (partial(without_packets, sound=False), "not a video file, or damaged at its start"),
    "sound.mp4": (partial(without_packets, video=False), "no video stream in it, only audio"),
    "empty.mp4": (Path.touch, "the file is empty (zero bytes); download or copy it again"),
}


@dataclass(frozen=True)
class Built:
    """The dataset of one build of all these films, and the lines of its message."""

    dataset: Dataset
    message: list[str]

    def folder(self, name: str) -> FilmFolder:
        return next(folder for folder in self.dataset.folders() if folder.film.name == name)

    def fields(self, name: str) -> tuple[str, ...] | None:
        return self.folder(name).film.fields


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    from flows.dataset import build_dataset

    place = tmp_path_factory.mktemp("odd")
    makers = {**GOOD, **{name: make for name, (make, _) in REFUSED.items()}}
    for name, make in makers.items():
        make(place / name)
    films = tuple(str(place / name) for name in sorted(makers))
    request = BuildRequest(films=films, out=str(place / "data"), config=checked(SETTINGS, "test"))
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        state = run(build_dataset, request)
    assert state.is_failed()
    return Built(Dataset(place / "data"), (state.message or "").splitlines())


@pytest.mark.parametrize("name", REFUSED)
def test_a_film_that_cannot_be_used_is_refused_by_name(built: Built, name: str) -> None:
    [line] = [line for line in built.message if name in line]
    assert REFUSED[name][1] in line


def test_no_other_film_fails(built: Built) -> None:
    assert len(built.message) == len(REFUSED), built.message
    assert verify(built.dataset) == []


@pytest.mark.parametrize("name", [name for name in GOOD if name != "not flagged.mkv"])
def test_the_clips_show_the_frames_that_they_name(built: Built, name: str) -> None:
    folder = built.folder(name)
    assert folder.read("damage", Damage) == []
    clips = folder.read("clips", Clip)
    assert {clip.scene for clip in clips} == {row.scene for row in folder.read("scenes", Scene)}
    restart = PART if name.startswith("sizes") else 1000  # the numbers of the second part begin anew
    for clip in clips:
        assert barcodes(folder, clip) == [number % restart for number in clip.source_frames]


def test_times_follow_each_rate(built: Built) -> None:
    clips = built.folder("rates.mkv").read("clips", Clip)
    assert [clip.start_seconds for clip in clips] == pytest.approx([2 / 24, 2.5 + 2 / 29.97, 5 + 2 / 24], abs=0.01)
    [warning] = built.folder("rates.mkv").film.warnings
    assert warning.startswith("variable rate")


def test_fields_follow_the_pictures_and_not_the_flags(built: Built) -> None:
    assert (built.folder("flagged.mkv").film.interlaced, built.fields("flagged.mkv")) == (True, ("progressive",))
    assert built.folder("not flagged.mkv").film.interlaced is False
    assert built.fields("not flagged.mkv") == ("interlace undone",)
    assert built.fields("hybrid.mkv") == ("telecine undone", "progressive")


def test_colours_of_odd_tags_are_decided(built: Built) -> None:
    assert built.folder("reserved tags.mkv").film.transfer == "untagged"
    assert built.folder("contradictory tags.mkv").film.transfer == "bt709"
