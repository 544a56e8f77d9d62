"""Casts of single films: a folder of folders in the cast folder, named after the film's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.captions.cast import Cast, load_cast, reference_pictures
from pipeline.core.errors import UserError
from pipeline.core.stage import ingredients_of
from pipeline.core.store import FilmEntry
from tests.pipeline.captions.test_cast import BLUE, GREEN, RED, draw, share_of, sheet_of
from tests.support import records
from tests.support.media.painted_clips import captions_of, make_cast, make_screened_film, stage_for
from tests.support.servers.caption_server import Answer, CaptionServer, Request, good_answer

PONYO, KIKI = records.film("ponyo.mkv"), records.film("Kiki (1989).MKV")


def make_casts(folder: Path) -> Cast:
    draw(folder / "Ponyo" / "a.png", RED)
    draw(folder / "Sosuke" / "a.png", RED)
    draw(folder / "kiki (1989)" / "Jiji" / "a.png", GREEN)
    draw(folder / "kiki (1989)" / "Sosuke" / "a.png", BLUE)
    return load_cast(folder)


def test_a_film_has_its_own_characters_besides_those_of_all_films(tmp_path: Path) -> None:
    cast = make_casts(tmp_path)
    assert cast.of(PONYO) == cast
    own = cast.of(KIKI)
    assert (cast.names, own.names) == (("Ponyo", "Sosuke"), ("Jiji", "Ponyo", "Sosuke"))
    assert cast.all_names == ("Ponyo", "Sosuke", "Jiji")
    assert share_of(sheet_of(cast), BLUE) < 0.01
    assert share_of(sheet_of(own), BLUE) > 0.1  # as it looks in this film


def test_a_film_has_its_own_look_of_a_character_spelled_in_another_case(tmp_path: Path) -> None:
    draw(tmp_path / "kiki (1989)" / "sosuke" / "a.png", BLUE)
    draw(tmp_path / "Sosuke" / "a.png", RED)
    own = load_cast(tmp_path).of(KIKI)
    assert own.names == ("sosuke",)
    assert share_of(sheet_of(own), RED) == 0


def test_reference_pictures_are_those_of_all_films_and_of_single_ones(tmp_path: Path) -> None:
    make_casts(tmp_path)
    pictures = reference_pictures(tmp_path)
    assert {name: len(found) for name, found in pictures.items()} == {"Ponyo": 1, "Sosuke": 2, "Jiji": 1}
    assert [each.getpixel((60, 80)) for each in pictures["Sosuke"]] == [RED, BLUE]


def test_two_folders_of_one_film_are_refused(tmp_path: Path) -> None:
    draw(tmp_path / "kiki" / "Jiji" / "a.png", GREEN)
    draw(tmp_path / "Kiki" / "Tombo" / "a.png", RED)
    with pytest.raises(UserError, match="the second folder of this film"):
        load_cast(tmp_path)


def test_a_film_may_borrow_a_character_by_a_link_in_the_cast_folder(tmp_path: Path) -> None:
    cast = tmp_path / "cast"
    draw(cast / "ponyo 2" / "Lisa" / "a.png", GREEN)
    draw(cast / "kiki (1989)" / "Jiji" / "a.png", RED)
    (cast / "kiki (1989)" / "Lisa").symlink_to("../ponyo 2/Lisa", target_is_directory=True)
    assert load_cast(cast).of(KIKI).names == ("Jiji", "Lisa")
    (cast / "kiki (1989)" / "Mei").symlink_to(draw(tmp_path / "Mei" / "a.png").parent, target_is_directory=True)
    with pytest.raises(UserError, match="leads out of the cast folder"):
        load_cast(cast)


def test_characters_of_single_films_are_enough(tmp_path: Path) -> None:
    draw(tmp_path / KIKI.film_id / "Jiji" / "a.png", GREEN)
    cast = load_cast(tmp_path)
    assert (cast.of(PONYO).names, cast.of(KIKI).names) == ((), ("Jiji",))


def test_a_cast_that_belongs_to_no_film_is_named(tmp_path: Path) -> None:
    draw(tmp_path / "totoro" / "Mei" / "a.png", GREEN)
    cast = make_casts(tmp_path)
    entries = [FilmEntry(film_id=film.film_id, name=film.name, sha256=film.sha256) for film in (PONYO, KIKI)]
    assert cast.without_film(entries) == ["totoro"]


def test_the_cast_of_one_film_changes_the_captions_of_that_film_only(tmp_path: Path) -> None:
    folder, cast = make_screened_film(tmp_path, 1), make_cast(tmp_path / "cast", "Ponyo")
    before = ingredients_of(stage_for("http://127.0.0.1:1/v1", cast), folder)
    draw(tmp_path / "cast" / "another" / "Mei" / "a.png", GREEN)
    other = stage_for("http://127.0.0.1:1/v1", load_cast(tmp_path / "cast"))
    assert ingredients_of(other, folder) == before
    draw(tmp_path / "cast" / "film" / "Aki" / "a.png", GREEN)  # the film is film.mp4
    draw(tmp_path / "cast" / "film" / "Bo" / "a.png", GREEN)

    def third(request: Request) -> Answer:
        reply = good_answer(request)
        return Answer("[Number]1[Index]3[Others]0") if "[Index]" in reply.text else reply

    with CaptionServer(third) as server:
        stage = stage_for(server.address, load_cast(tmp_path / "cast"))
        assert ingredients_of(stage, folder) != before
        assert captions_of(stage, folder)[0].characters == ("Ponyo",)
        assert "1 = Aki\n2 = Bo\n3 = Ponyo" in server.requests[0].text
