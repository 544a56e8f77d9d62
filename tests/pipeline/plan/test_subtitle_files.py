"""Subtitle files beside films: names that belong to a film, folders on a disk, and object stores."""

from pathlib import Path

from pipeline.core.config import DialogueSettings
from pipeline.core.dialogue import SpokenLine
from pipeline.core.hashes import Hashes
from pipeline.core.progress import silent
from pipeline.core.stage import make
from pipeline.core.store import Dataset, FilmFolder
from pipeline.plan.identify import identify
from pipeline.plan.subtitle_files import SubtitleFiles, subtitles_of
from pipeline.remote.film_cache import delete_local_film, local_film
from pipeline.stages.dialogue import ReadDialogue
from tests.support.media.films import make_film
from tests.support.servers.object_store import ObjectStore

SRT = "1\n00:00:00,100 --> 00:00:00,300\n宗介!\n"


def test_files_belong_to_the_film_with_the_longest_matching_name() -> None:
    folder = ["film.mkv", "film.2.mkv", "film.2.ja.srt", "film.ja.ass", "film.SRT", "film.nfo", "films.srt", "film"]
    assert subtitles_of("film.mkv", folder) == ["film.SRT", "film.ja.ass"]
    assert subtitles_of("film.2.mkv", folder) == ["film.2.ja.srt"]
    assert subtitles_of("film.mkv", ["film.2.ja.srt", "film.mkv", "film.\udcff.srt"]) == ["film.2.ja.srt"]


def test_a_folder_that_cannot_be_listed_keeps_the_files_of_before(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mkv", frames=8, size=(64, 48), barcode=False)
    (tmp_path / "film.srt").write_text(SRT, encoding="utf-8")
    before = identify([str(film)], Dataset(tmp_path / "data")).films
    (tmp_path / "film.srt").unlink()
    (tmp_path / "film.srt").mkdir()
    found = identify([str(film)], Dataset(tmp_path / "data"))
    assert found.films == before
    assert [notice.partition(" are ")[0] for notice in found.notices] == ["film.mkv: files beside it"]


def test_a_web_server_is_not_asked_for_its_folder(tmp_path: Path) -> None:
    beside = SubtitleFiles(tmp_path, Hashes(tmp_path / "hashes.json"))
    assert beside.of("http://127.0.0.1:9/film.mkv", silent) == ()


def test_files_in_an_object_store(store: ObjectStore, tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mkv", frames=12, size=(64, 48), barcode=False)
    store.put("films/film.mkv", film.read_bytes())
    store.put("films/film.ja.srt", SRT.encode("cp932"))
    store.put("films/other/film.en.srt", SRT.encode())
    root = tmp_path / "data"
    [found] = identify([store.address("films/film.mkv")], Dataset(root)).films
    assert [file.ending for file in found.subtitle_files] == [".ja.srt"]
    folder: FilmFolder = Dataset(root).folder(found.film_id)
    make(ReadDialogue(DialogueSettings()), folder, silent, lambda one: local_film(one, silent))
    assert [line.text for line in folder.read("dialogue", SpokenLine)] == ["宗介!"]
    assert sorted(path.name for path in root.rglob("film*.*") if ".cache" in path.parts) == ["film.ja.srt", "film.mkv"]
    delete_local_film(folder)
    assert not list((root / ".cache").rglob("film*.*"))
