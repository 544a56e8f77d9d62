"""Frames of containers that store repeats as empty packets, or no presentation times: read at their times, unharmed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.world.textures import Picture
from pipeline.video.film_reader import FilmReader
from tests.pipeline.video.test_film_reader import barcode_of
from tests.support.media.films import make_film
from tests.support.media.odd_streams import NOT_CODED, write_held, write_packed
from tests.support.media.probed_films import probed

FRAMES = 30
KEYS = {"g": "10", "keyint_min": "10"}
"""A keyframe every ten frames of the source, which is every thirty of a film in which each is shown three times."""


def read(path: Path, threads: int = 0) -> tuple[list[int], list[float], FilmReader]:
    """Barcodes and times of the frames that are read."""
    with FilmReader(path, threads) as reader:
        frames = [(barcode_of(frame), frame.seconds) for frame in reader.frames()]
    return [number for number, _ in frames], [seconds for _, seconds in frames], reader


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_film(tmp_path_factory.mktemp("source") / "film.mkv", frames=FRAMES, codec="libvpx", options=KEYS)


@pytest.mark.parametrize("threads", [1, 0])
@pytest.mark.parametrize("name", ["empty.nut", "not coded.mkv", "not coded.avi"])
def test_packets_that_repeat_a_picture_are_frames(tmp_path: Path, source: Path, name: str, threads: int) -> None:
    """Empty ones as in Theora, for which PyAV has no encoder, and those of MPEG-4 that are not coded."""
    repeat = b"" if name.startswith("empty") else NOT_CODED
    if repeat:
        source = make_film(tmp_path / "source.mkv", frames=FRAMES, codec="mpeg4", options={"bf": "0"})
    film = write_held(source, tmp_path / name, repeat)
    numbers, times, reader = read(film, threads)
    assert numbers == [number for number in range(FRAMES) for _ in range(3)]
    assert times == pytest.approx([number / 24 for number in range(3 * FRAMES)], abs=0.001)
    assert reader.damage == []
    found = probed(film)
    assert (found.frames, found.variable_rate, found.fps) == (3 * FRAMES, False, 24)


@pytest.mark.parametrize("threads", [1, 0])
def test_where_repeats_are_stored_a_gap_is_damage_up_to_the_next_keyframe(
    tmp_path: Path, source: Path, threads: int
) -> None:
    film = write_held(source, tmp_path / "film.nut", missing=range(40, 44))
    numbers, _, reader = read(film, threads)
    assert [(round(start * 24), round(end * 24)) for start, end, _ in reader.damage] == [(40, 60)]
    assert numbers == [number // 3 for number in range(90) if not 40 <= number < 60]


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 0])
@pytest.mark.parametrize("hole", [70_000, 300_000])
def test_behind_a_hole_in_an_ogg_file_reading_goes_on_at_a_keyframe(tmp_path: Path, hole: int, threads: int) -> None:
    """FFmpeg reports an error for each 65 kB without a page; the rest of the film is read all the same."""
    options = KEYS | {"b": "20M", "qmax": "4", "deadline": "realtime"}
    film = make_film(tmp_path / "film.ogv", frames=60, codec="libvpx", paint=_paint_noise, options=options)
    content = bytearray(film.read_bytes())
    middle = len(content) // 2
    content[middle : middle + hole] = bytes(hole)
    film.write_bytes(content)
    numbers, times, reader = read(film, threads)
    [(start, end, _)] = reader.damage
    lost = range(round(start * 24), round(end * 24))
    assert 25 <= lost.start <= 30 < lost.stop <= 50
    assert lost.stop % 10 == 0
    assert numbers == [number for number in range(60) if number not in lost]
    assert times == pytest.approx([number / 24 for number in numbers], abs=0.001)


def test_where_repeats_are_not_stored_a_gap_is_a_picture_that_stays(tmp_path: Path, source: Path) -> None:
    """As in a Theora film that FFmpeg has copied: it leaves the empty packets out."""
    film = write_held(source, tmp_path / "film.nut", missing={number for number in range(90) if number % 3})
    numbers, _, reader = read(film)
    assert numbers == list(range(FRAMES))
    assert reader.damage == []


@pytest.mark.parametrize("threads", [1, 0])
def test_frames_of_avi_are_read_in_the_order_of_the_decoder(tmp_path: Path, threads: int) -> None:
    options = {"bf": "2", "b-pyramid": "none", "b_strategy": "0"}
    film = make_film(tmp_path / "film.avi", options=options)
    numbers, times, reader = read(film, threads)
    assert reader.damage == []
    assert numbers == list(range(48))
    assert times == pytest.approx([number / 24 for number in numbers])
    assert (probed(film).frames, probed(film).variable_rate) == (48, False)


@pytest.mark.parametrize("threads", [1, 0])
def test_packed_b_frames_are_read_as_those_that_are_not_packed(tmp_path: Path, threads: int) -> None:
    source = make_film(tmp_path / "source.mp4", codec="mpeg4", options={"bf": "1"})
    film = write_packed(source, tmp_path / "film.avi")
    pictures = []
    for path in (source, film):
        with FilmReader(path, threads) as reader:
            pictures.append([(frame.seconds, frame.picture.to_ndarray().tobytes()) for frame in reader.frames()])
        assert reader.damage == []
    assert [picture for _, picture in pictures[0]] == [picture for _, picture in pictures[1]]
    assert [seconds for seconds, _ in pictures[1]] == pytest.approx([seconds for seconds, _ in pictures[0]])
    assert probed(film).frames == 48


def _paint_noise(number: int, picture_HWC: Picture) -> None:
    """Beside the barcode, so that the film is large."""
    beside = picture_HWC[:, 200:]
    beside[:] = np.random.default_rng(number).integers(0, 256, beside.shape, np.uint8)
