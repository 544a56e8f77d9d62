"""Series, season and episode of films: read from their names, and corrected by `[[films]]`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.config import Config, checked
from pipeline.core.errors import UserError
from pipeline.core.film_settings import OneFilmSettings
from pipeline.core.records import AudioTrack
from pipeline.core.store import Dataset
from pipeline.plan.build_plan import Plan, make_plan
from pipeline.plan.episodes import episode_notices, name_of_episode, with_episodes
from pipeline.plan.film_stages import planned_stages
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.stages.motion_levels import PUBLISHED_EDGES
from tests.support import records
from tests.support.media.films import make_film

EPISODES = {
    "[SubsPlease] Sousou no Frieren - 07 (1080p) [F02B9CEE].mkv": ("Sousou no Frieren", None, 7),
    "[Judas] Vinland Saga (Season 2) - S02E01.mkv": ("Vinland Saga", 2, 1),
    "Steins.Gate.S01E23.720p.BluRay.x264-GROUP.mkv": ("Steins Gate", 1, 23),
    "[HorribleSubs] Boku no Hero Academia S3 - 05 [720p].mkv": ("Boku no Hero Academia", 3, 5),
    "[FFF] Fate Zero 2nd Season - 14v2 [BD][1080p-FLAC].mkv": ("Fate Zero", 2, 14),
    "[DB]Naruto Shippuuden_-_220_(10bit_BD1080p_x265).mkv": ("Naruto Shippuuden", None, 220),
    "[VCB-Studio] Hyouka [05][Ma10p_1080p][x265_flac].mkv": ("Hyouka", None, 5),
    "One Piece - 1071.mkv": ("One Piece", None, 1071),
    "[Group] 86 - Eighty Six - 04 [1080p].mkv": ("86 - Eighty Six", None, 4),
    "Mob Psycho 100 S2E05.mkv": ("Mob Psycho 100", 2, 5),
    "Dororo (2019) - 06.mkv": ("Dororo (2019)", None, 6),
    "K-ON!! 2x05.mkv": ("K-ON!!", 2, 5),
    "進撃の巨人 第59話「壁の向こう側」.mp4": ("進撃の巨人", None, 59),
    "葬送のフリーレン 第2期 #12.mkv": ("葬送のフリーレン", 2, 12),
    "Kiki/07.mkv": ("Kiki", None, 7),
    "Kiki/07 - The Journey.mkv": ("Kiki", None, 7),
    "Mushishi/Season 2/03.mkv": ("Mushishi", 2, 3),
    "Mushishi/season1/[Group] Mushishi - 03 [1080p].mkv": ("Mushishi", 1, 3),
    "Frieren/S1/E04.mkv": ("Frieren", 1, 4),
    "Frieren E04.mkv": ("Frieren", None, 4),
    "Frieren Ep. 7.mkv": ("Frieren", None, 7),
    "Kiki - 01-02.mkv": ("Kiki", None, 1),
    "Kiki/[07] The Journey.mkv": ("Kiki", None, 7),
}
FILMS = (
    *("Kimi no Na wa.mkv", "Mob Psycho 100.mkv", "Ghost in the Shell (1995) [1080p].mkv", "Akira.1988.1080p.mkv"),
    *("Metropolis - 2001.mkv", "Lucky Star OVA.mkv", "[Group] Title - 13.5 [1080p].mkv", "big_buck_bunny_720p.mkv"),
    *("Wall-E 2008.mkv", "Wall-E.2008.1080p.mkv", "Wall E 2008.mkv"),
)


@pytest.mark.parametrize(("name", "expected"), EPISODES.items())
def test_an_episode_is_read_from_its_name_and_folders(name: str, expected: tuple[str, int | None, int]) -> None:
    assert name_of_episode(f"/shows/{name}", ()) == expected


@pytest.mark.parametrize("name", FILMS)
def test_a_film_among_episodes_is_a_film_of_its_own(name: str) -> None:
    assert name_of_episode(f"/shows/{name}", EPISODES) == (None, None, None)


@pytest.mark.parametrize("folder", ["/shows", "s3://bucket/shows"])
def test_a_last_number_counts_if_another_film_of_the_folder_has_one(folder: str) -> None:
    first, second, other = (
        records.film(name, source=f"{folder}/{name}")
        for name in ("Toradora_18_(BD).mkv", "Toradora_19_(BD).mkv", "Mob Psycho 100.mkv")
    )
    assert [film.episode for film in with_episodes([first, second, other], ())] == [18, 19, None]
    assert [film.episode for film in with_episodes([second, other], (), [first])] == [19, None], "of the dataset"
    elsewhere = records.film(first.name, source=f"{folder}/more/{first.name}")
    assert [film.episode for film in with_episodes([second, other], (), [elsewhere])] == [None, None]


def test_files_outside_the_build_count_for_no_number(tmp_path: Path) -> None:
    (tmp_path / "Toradora 18.mkv").touch()
    alone = records.film("Toradora 19.mkv", source=str(tmp_path / "Toradora 19.mkv"))
    assert with_episodes([alone], ())[0].episode is None


def test_a_film_that_was_probed_before_its_sound_tracks_were_read_is_probed_again(tmp_path: Path) -> None:
    request = BuildRequest(films=(make_film(tmp_path / "film.mp4", frames=4, sound=True),), out=tmp_path / "data")
    [film_id] = make_plan(request, Workspace(request.out)).films
    folder = Dataset(tmp_path / "data").folder(film_id)
    made = folder.film
    assert made.audio_tracks
    folder.save_film(made.model_copy(update={"audio_tracks": None, "chapters": None}))
    make_plan(request, Workspace(request.out))
    assert folder.film == made


def test_the_language_of_the_first_sound_track_is_that_of_the_film() -> None:
    tracks = [AudioTrack(codec="aac", language=code, sample_rate=48_000, channels=2) for code in ("jpn", "eng")]
    [film] = with_episodes([records.film("a.mkv", source="/a.mkv", audio_tracks=tuple(tracks))], ())
    assert film.language == "ja"


def test_blocks_of_films_correct_names_and_the_last_one_counts() -> None:
    blocks = [
        {"match": "Kiki/*", "series": "Kiki's Delivery", "season": 1},
        {"match": "[Group] Kiki - 02.mkv", "season": 2, "episode": 5, "language": "ja", "skip": ["0:00-1:30"]},
        {"match": "*Movie*", "series": "", "season": 3, "language": "en", "skip": ["5-10"]},
    ]
    films = [
        records.film(name, source=f"/shows/Kiki/{name}")
        for name in ("01.mkv", "[Group] Kiki - 02.mkv", "Kiki Movie - 03.mkv")
    ]
    named = with_episodes(films, checked({"films": blocks}, "test").films)
    names = [(film.series, film.season, film.episode) for film in named]
    assert [(film.language, film.skip) for film in named] == [
        (None, None),
        ("ja", ("0:00-1:30",)),
        ("en", ("5-10",)),
    ]
    # a block that is gone leaves nothing, also for a film of its own
    [alone] = with_episodes(named[2:], checked({"films": [{"match": "*Movie*", "series": ""}]}, "test").films)
    assert (alone.language, alone.skip) == (None, None)
    assert [film.skip for film in with_episodes(named, ())] == [None, None, None]
    assert names == [("Kiki's Delivery", 1, 1), ("Kiki's Delivery", 2, 5), (None, None, None)]


def test_a_corrected_name_makes_no_stage_run_again(tmp_path: Path) -> None:
    corrected = checked({"films": [{"match": "*", "series": "Ponyo", "season": 2, "episode": 3}]}, "test")

    def made_from(config: Config) -> list[object]:
        [film] = with_episodes([records.film("Kiki - 01.mkv")], config.films)
        names.append(film.episode_name)
        stages = planned_stages(BuildRequest(films=(film.name,), out=tmp_path, config=config), PUBLISHED_EDGES)
        return [(stage.ingredients(), stage.film_ingredients(film)) for stage in stages]

    names: list[str] = []
    assert made_from(Config()) == made_from(corrected)
    assert names == ["Kiki, episode 1", "Ponyo, season 2, episode 3"]


def test_a_range_beyond_the_end_is_named_with_its_films() -> None:
    films = [records.film(name, seconds=seconds) for name, seconds in (("Kiki.mkv", 10.0), ("Ponyo.mkv", 100.0))]
    config = checked({"selection": {"skip": ["0:20-0:30"]}}, "test")
    assert episode_notices(films, config) == [
        "skip '0:20-0:30' begins after the end of Kiki.mkv; correct it in --config"
    ]


def test_brackets_of_a_pattern_are_no_class() -> None:
    block = OneFilmSettings(match="[Group] Frieren - *")
    assert block.is_about("id", "/shows/[Group] Frieren - 07.mkv")
    assert not block.is_about("id", "/shows/G Frieren - 07.mkv")


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"match": ""},
        {"match": "a", "episode": -1},
        {"match": "a", "series": "a\nb"},
        {"match": "a", "language": "Japanese"},
    ],
)
def test_a_wrong_block_is_rejected(block: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"films\.0\."):
        checked({"films": [block]}, "my.toml")


def test_a_build_names_equal_numbers_and_unused_blocks(tmp_path: Path) -> None:
    names = ("Kiki - 01.mkv", "Kiki - 01v2.mkv", "Ponyo - 01.mkv")
    for frames, name in enumerate(names, start=8):
        make_film(tmp_path / name, frames=frames, size=(64, 48), barcode=False)

    def plan(config: Config) -> Plan:
        request = BuildRequest(films=(str(tmp_path / "*.mkv"),), out=str(tmp_path / "data"), config=config)
        return make_plan(request, Workspace(request.out))

    [twice] = plan(Config()).notices
    assert twice.startswith("Kiki, episode 1 is the number of 2 films, Kiki - 01.mkv, Kiki - 01v2.mkv; correct it in")
    blocks = [{"match": "*v2.mkv", "episode": 2}, {"match": "Totoro*", "season": 1}]
    corrected = plan(checked({"films": blocks}, "test"))
    films = [corrected.dataset.folder(film_id).film for film_id in corrected.films]
    assert [film.episode_name for film in films] == ["Kiki, episode 1", "Kiki, episode 2", "Ponyo, episode 1"]
    assert corrected.notices[0] == "[[films]] matches no film of this build: Totoro*"
    assert any("differ from the previous build: films" in notice for notice in corrected.notices[1:])
