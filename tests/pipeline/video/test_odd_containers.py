"""Frames of containers that store repeats as empty packets, or no presentation times: read at their times, unharmed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.video.film_reader import FilmReader
from tests.pipeline.video.test_film_reader import numbers_and_times
from tests.support.media.films import corrupt, make_film
from tests.support.media.odd_streams import write_packed
from tests.support.media.probed_films import probed

HELD = Path(__file__).parents[2] / "support/media/held.ogv"
"""Ogg Theora of 61 frames at 24 fps, 44 of them empty packets: patterns of FFmpeg's, coded by libtheora."""
TIMES = [number / 24 for number in range(61)]


@pytest.mark.parametrize("threads", [1, 0])
def test_empty_packets_of_theora_show_the_picture_before_again(threads: int) -> None:
    with FilmReader(HELD, threads) as reader:
        frames = list(reader.frames())
    assert [frame.seconds for frame in frames] == pytest.approx(TIMES)
    assert [frame.ordinal for frame in frames] == list(range(61))
    assert len({id(frame.picture) for frame in frames}) == 17
    assert reader.damage == []
    film = probed(HELD)
    assert (film.frames, film.variable_rate, film.fps) == (61, False, 24)


@pytest.mark.parametrize("threads", [1, 0])
def test_what_ogg_has_lost_is_damage_up_to_the_next_keyframe(tmp_path: Path, threads: int) -> None:
    film = corrupt(Path(shutil.copy(HELD, tmp_path / "film.ogv")), 0.5, 0.52)
    with FilmReader(film, threads) as reader:
        kept = [frame.seconds for frame in reader.frames()]
    [(start, end, _)] = reader.damage
    assert end == 1.0
    assert kept == pytest.approx([time for time in TIMES if not start <= time < end])
    assert 40 < len(kept) < 61


@pytest.mark.parametrize("threads", [1, 0])
def test_frames_of_avi_are_read_in_the_order_of_the_decoder(tmp_path: Path, threads: int) -> None:
    options = {"bf": "2", "b-pyramid": "none", "b_strategy": "0"}
    film = make_film(tmp_path / "film.avi", options=options)
    numbers, times, _ = numbers_and_times(film, threads)
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
