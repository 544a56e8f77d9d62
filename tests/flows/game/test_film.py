"""Film of a game: enlarged, faded where the place stays, with captions, and no longer than it takes."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from flows.game.film import FADE_FRAMES, GIF_TURNS, Film
from flows.game.film_captions import FilmCaptions, told
from flows.game.folder import GameFolder
from flows.game.play_file import play_turn
from flows.game.records import GameError, GameSettings
from models.turns import stays
from pipeline.core.progress import silent
from pipeline.video.clip_files import read_clip
from tests.support.networks.painted_engine import PaintedEngine

SETTINGS = GameSettings(seed=7, checkpoint="painted", window_turns=4, fps=8)
WALK = "Character: Mika; Motion: {}; Background: {}."


def begun(path: Path, instructions: list[str]) -> GameFolder:
    """A game of instructions in a row."""
    folder = GameFolder.create(path / "game", SETTINGS)
    parent = None
    for instruction in instructions:
        parent = play_turn(folder, PaintedEngine(), instruction, parent).id
    return folder


def colours(frames_THWC: np.ndarray) -> np.ndarray:
    """Mean colour of each frame, [T, C]."""
    return frames_THWC.reshape(len(frames_THWC), -1, 3).mean(axis=1)


def test_a_film_is_enlarged_and_fades_only_where_the_place_stays(tmp_path: Path) -> None:
    story = [WALK.format("walk", "daytime beach"), WALK.format("run", "night beach"), WALK.format("run", "shrine")]
    folder = begun(tmp_path, story)
    seen: list[tuple[int, int]] = []
    frames_THWC = read_clip(Film(folder, "0003").make(lambda done, total: seen.append((done, total))))
    assert frames_THWC.shape == (51, 384, 576, 3)
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    first, second, third = (colours(read_clip(folder.clip_path(turn.id))) for turn in folder.turns)
    shown = colours(frames_THWC)
    for place, share in enumerate((0.25, 0.5, 0.75)):
        np.testing.assert_allclose(shown[17 + place], share * second[place] + (1 - share) * first[-1], atol=4)
    np.testing.assert_allclose(shown[17 + FADE_FRAMES : 34], second[FADE_FRAMES:], atol=4)
    np.testing.assert_allclose(shown[34:], third, atol=4)  # another place: no fade


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (WALK.format("walk", "daytime beach"), "Motion: run; Background: Beach.", True),
        (WALK.format("walk", "beach"), WALK.format("walk", "beach at dusk"), False),
        (WALK.format("walk", "midnight beach"), WALK.format("walk", "mid beach"), False),
        (WALK.format("walk", "beach"), "Character: Mika; Motion: walk.", False),
        ("she walks", "she walks", False),
    ],
)
def test_a_turn_stays_only_if_both_name_the_place(before: str, after: str, *, same: bool) -> None:
    assert stays(before, after) is same


def test_captions_stand_under_the_picture_and_long_ones_wrap(tmp_path: Path) -> None:
    long = "Mika walks along the beach " * 5
    folder = begun(tmp_path, [WALK.format("walk", "beach"), long])
    plain, captioned = (read_clip(Film(folder, "0002", captions=each).make(silent)) for each in (False, True))
    height = plain.shape[1]
    assert captioned.shape[1] > height
    assert (np.abs(captioned[:, :height].astype(int) - plain).mean()) < 2
    bands_THW = captioned[[0, 17], height:].max(axis=3) > 128
    one, several = bands_THW.any(axis=2)
    assert 0 < one.sum() < several.sum() / 2, "the second caption has more lines"
    assert told(WALK.format("walk", "beach")) == "Mika · walk · beach"


def test_words_wider_than_a_line_and_texts_without_spaces_wrap() -> None:
    for text in ("x" * 90, "ミカは浜辺を歩く" * 8):
        one, several = (FilmCaptions([each], 576) for each in (text[:8], text))
        assert several.height > one.height
        bands = several.picture(text)
        assert bands.shape == (several.height, 576, 3)
        assert not (bands[:, -8:].max(axis=2) > 128).any(), "nothing is cut off at the right"
    cut = FilmCaptions(["word " * 400], 576)
    assert cut.height < 7 * 1.35 * 22 + 22


def test_a_gif_shows_the_last_turns_in_the_colours_of_the_shots(tmp_path: Path) -> None:
    folder = begun(tmp_path, [f"turn {number}" for number in range(2)])
    path = Film(folder, "0002", "gif").make(silent)
    with av.open(str(path)) as film:
        frames_THWC = np.stack([frame.to_ndarray(format="bgr24") for frame in film.decode(video=0)])
        assert film.streams.video[0].average_rate == Fraction(25, 3)  # 12 hundredths of a second
    assert frames_THWC.shape == (34, 256, 384, 3)
    expected = np.concatenate([read_clip(folder.clip_path(turn.id)) for turn in folder.turns])
    np.testing.assert_allclose(colours(frames_THWC), colours(expected), atol=3)
    assert path.read_bytes()[:6] == b"GIF89a"
    assert b"NETSCAPE2.0" in path.read_bytes()[:1000], "it repeats"
    assert GIF_TURNS >= 20, "a game with an end fits"


def test_a_film_is_made_once_and_a_stopped_or_damaged_one_leaves_nothing(tmp_path: Path) -> None:
    folder = begun(tmp_path, [f"turn {number}" for number in range(3)])
    first = Film(folder, "0001").make(silent)
    written = first.stat().st_ino
    assert Film(folder, "0001").make(silent).stat().st_ino == written

    def stop(done: int, _: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    before = {path.name for path in folder.path.iterdir()}
    with pytest.raises(KeyboardInterrupt):
        Film(folder, "0002").make(stop)
    folder.clip_path("0003").write_bytes(b"damaged")
    with pytest.raises(GameError, match="turn 0003: "):
        Film(folder, "0003").make(silent)
    with pytest.raises(GameError, match="has no turn"):
        Film(folder, "0009").make(silent)
    assert {path.name for path in folder.path.iterdir()} == before
    os.utime(first, (0, 0))
    Film(folder, "0002").make(silent)
    assert [path.name for path in folder.path.glob("film-*")] == ["film-0002.plain.mp4"], "unused ones go"
