"""Stage `dialogue`: tables, the film's record, and what makes it run again."""

from pathlib import Path

import pytest

from pipeline.core.config import CropSettings, DialogueSettings
from pipeline.core.dialogue import SpokenLine, SubtitleTrack
from pipeline.core.film_settings import OneFilmSettings
from pipeline.core.progress import silent
from pipeline.core.records import RecordError
from pipeline.core.stage import perform, why_stale
from pipeline.core.store import Dataset, FilmFolder
from pipeline.plan.identify import identify
from pipeline.stages.crop import FindCrop
from pipeline.stages.dialogue import ReadDialogue
from tests.support.media.beeping_films import add_sound, beeps
from tests.support.media.films import make_film
from tests.support.media.subtitled_films import TextStream, ass, ass_file, with_tracks

STAGE = ReadDialogue(DialogueSettings())
EVENT = "Dialogue: 0,0:00:00.50,0:00:01.00,Default,Ponyo,0,0,0,,宗介!"


def identified(root: Path, film: Path) -> FilmFolder:
    """Film as the plan of a build leaves it."""
    [found] = identify([str(film)], Dataset(root)).films
    return Dataset(root).folder(found.film_id)


def spoken(folder: FilmFolder) -> set[str | None]:
    return {line.language for line in folder.read("dialogue", SpokenLine)}


@pytest.fixture
def film(tmp_path: Path) -> Path:
    plain = make_film(tmp_path / "plain.mp4", frames=48, size=(160, 90))
    streams = [TextStream("ass", [ass(0.5, 1, "Sosuke!", name="Ponyo")], "eng", "Full")]
    return with_tracks(plain, tmp_path / "film.mkv", streams)


def test_the_lines_of_the_container(tmp_path: Path, film: Path) -> None:
    folder = identified(tmp_path / "data", film)
    assert perform(STAGE, folder)
    assert [(row.said, row.language) for row in folder.read("dialogue", SpokenLine)] == [("Ponyo: Sosuke!", "en")]
    [track] = folder.read("subtitles", SubtitleTrack)
    assert (track.source, track.chosen, track.lines) == ("stream 1", True, 1)
    [inside] = folder.film.text_tracks or ()
    assert (inside.codec, inside.language, inside.title) == ("ass", "en", "Full")
    assert not perform(STAGE, folder)


@pytest.mark.parametrize(
    ("wanted", "speech", "sound", "chosen", "reason"),
    [
        (None, "ja", None, "ja", "speech"),
        (None, None, "jpn", "ja", "sound"),
        (None, None, "ko", "en", "sound"),  # the film has no such sound
        (None, "ja", "en", "ja", "speech"),
        ("en", "ja", "ja", "en", "dialogue.language"),
    ],
)
def test_the_language_of_the_speech_comes_first(
    tmp_path: Path, wanted: str | None, speech: str | None, sound: str | None, chosen: str, reason: str
) -> None:
    plain = make_film(tmp_path / "plain.mp4", frames=48, size=(160, 90))
    tracks = [(beeps(2, ()), 0.0)] * 2
    dubbed = add_sound(plain, tmp_path / "dubbed.mkv", tracks, languages={0: "eng", 1: "jpn"})
    streams = [TextStream("ass", [ass(0.5, 1, "Hi")], language) for language in ("kor", "jpn", "eng")]
    folder = identified(tmp_path / "data", with_tracks(dubbed, tmp_path / "film.mkv", streams))
    perform(STAGE, folder)
    assert spoken(folder) == {"en"}  # as the first track of the sound
    films = (OneFilmSettings(match="*.mkv", language=speech), OneFilmSettings(match="other.mkv", language="ko"))
    stage = ReadDialogue(DialogueSettings(language=wanted), films, sound)
    assert reason in (why_stale(stage, folder) or "")
    perform(stage, folder)
    assert spoken(folder) == {chosen}


def test_only_this_stage_depends_on_files_beside_the_film(tmp_path: Path, film: Path) -> None:
    crop = FindCrop(CropSettings())
    folder = identified(tmp_path / "data", film)
    perform(crop, folder)
    perform(STAGE, folder)
    for language in ("ja", "ja-JP"):  # a new file, then one of another name
        for old in tmp_path.glob("*.ass"):
            old.unlink()
        ass_file(tmp_path / f"film.{language}.ass", EVENT)
        folder = identified(tmp_path / "data", film)
        assert "files" in (why_stale(STAGE, folder) or "")
        perform(STAGE, folder)
        assert [row.text for row in folder.read("dialogue", SpokenLine)] == ["宗介!"]
    ass_file(tmp_path / "film.ja-JP.ass", EVENT, EVENT.replace("0:00:00.50", "0:00:00.25"))
    with pytest.raises(RecordError, match=r"its subtitles .ja-JP.ass have changed since the build was planned"):
        STAGE.run(folder, silent)
    folder = identified(tmp_path / "data", film)
    assert "files" in (why_stale(STAGE, folder) or "")
    assert why_stale(crop, folder) is None
    moved = film.rename(tmp_path / "moved.mkv")
    (tmp_path / "film.ja-JP.ass").rename(tmp_path / "moved.ja-JP.ass")
    perform(STAGE, folder := identified(tmp_path / "data", moved))
    assert folder.film.subtitle_files[0].source.endswith("moved.ja-JP.ass")
