"""Choice of a subtitle track: containers, files beside the film, languages, titles, pictures and other films."""

from pathlib import Path

import pytest
from av.stream import Disposition

from pipeline.core.dialogue import SpokenLine, SubtitleTrack
from pipeline.core.languages import language_of
from pipeline.core.progress import silent
from pipeline.core.records import SubtitleFile
from pipeline.stages.subtitles.tracks import read_subtitles
from tests.support.media.films import make_film
from tests.support.media.probed_films import probed
from tests.support.media.subtitled_films import TextStream, ass, ass_file, tx3g, with_tracks

SAID = [ass(1, 2, "Sosuke!", name="Ponyo"), ass(2.5, 3.5, "Ponyo?", name="Sosuke")]


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_film(tmp_path_factory.mktemp("plain") / "film.mp4", frames=96, size=(160, 90))


def read(path: Path, *beside: Path, wanted: str | None = None) -> tuple[list[SubtitleTrack], list[SpokenLine]]:
    files = [
        (SubtitleFile(ending=one.name.removeprefix("film"), source=str(one), sha256="0" * 64), one) for one in beside
    ]
    return read_subtitles(probed(path), files, wanted, None, None, silent)


def chosen(tracks: list[SubtitleTrack]) -> list[str]:
    return [track.source for track in tracks if track.chosen]


@pytest.mark.parametrize(
    ("name", "stream", "speaker"),
    [
        ("film.mkv", TextStream("ass", SAID), "Ponyo"),
        ("film.mkv", TextStream("subrip", [(1, 2, b"<i>Sosuke!</i>"), (2.5, 3.5, b"Ponyo?")]), None),
        ("film.mkv", TextStream("webvtt", [(1, 2, b"<v Ponyo>Sosuke!"), (2.5, 3.5, b"Ponyo?")]), "Ponyo"),
        ("film.mp4", TextStream("mov_text", [tx3g(1, 2, "Sosuke!"), tx3g(2.5, 3.5, "Ponyo?")]), None),
        ("film.mp4", TextStream("mov_text", [tx3g(1, 2, "Sosuke!", "utf-16"), tx3g(2.5, 3.5, "Ponyo?")]), None),
    ],
    ids=["ass", "subrip", "webvtt", "mov_text", "mov_text in UTF-16"],
)
@pytest.mark.parametrize("delay_seconds", [0, 7])
def test_text_streams(
    tmp_path: Path, film: Path, name: str, stream: TextStream, speaker: str | None, delay_seconds: float
) -> None:
    cues = [(start + delay_seconds, end + delay_seconds, text) for start, end, text in stream.cues]
    path = with_tracks(film, tmp_path / name, [TextStream(stream.codec, cues)], delay_seconds)
    tracks, lines = read(path)
    assert chosen(tracks) == ["stream 1"]
    assert [(line.start_seconds, line.end_seconds, line.text) for line in lines] == [
        (1.0, 2.0, "Sosuke!"),
        (2.5, 3.5, "Ponyo?"),
    ]
    assert (lines[0].speaker, lines[0].language) == (speaker, "ja")


def test_timed_text_that_is_not_unicode_loses_only_its_letters(tmp_path: Path, film: Path) -> None:
    stream = TextStream("mov_text", [tx3g(1, 2, "Le réveil", "latin-1"), tx3g(2.5, 3.5, "Ponyo?")])
    lines = read(with_tracks(film, tmp_path / "film.mp4", [stream]))[1]
    assert [line.text for line in lines] == ["Le r\ufffdveil", "Ponyo?"]


def test_the_language_and_the_title_choose(tmp_path: Path, film: Path) -> None:
    streams = [
        TextStream("ass", SAID, "eng", "Signs & Songs", Disposition.default),
        TextStream("ass", SAID, "eng", "Full Subtitles and Signs"),
        TextStream("ass", SAID, "jpn", "SDH"),
        TextStream("ass", SAID, "jpn"),
        TextStream("ass", SAID, "jpn", "", Disposition.forced),
        *(TextStream("ass", SAID, language) for language in ("ger", "fre", "spa", "por", "ita", "rus", "ara", "chi")),
        *(TextStream("ass", SAID, "und", f"track {number}") for number in range(7)),
    ]
    path = with_tracks(film, tmp_path / "film.mkv", streams)
    assert chosen(read(path)[0]) == ["stream 2"]  # no sound: the first track with dialogue
    assert chosen(read(path, wanted="ja")[0]) == ["stream 4"]
    assert chosen(read(path, wanted="jpn")[0]) == ["stream 4"]
    assert chosen(read(path, wanted="ko")[0]) == ["stream 14"]  # of no stated language
    tracks, lines = read(path, wanted="de")
    assert len(tracks) == 20
    assert tracks[0].remark == "signs, songs or a commentary, by its title"
    assert tracks[1].remark == "not in the language de"
    assert {line.language for line in lines} == {"de"}


def test_files_beside_the_film_come_first(tmp_path: Path, film: Path) -> None:
    path = with_tracks(film, tmp_path / "film.mkv", [TextStream("ass", SAID)])
    japanese = ass_file(
        tmp_path / "film.ja.ass", "Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,宗介", encoding="cp932"
    )
    english = tmp_path / "film.en.forced.srt"
    english.write_text("1\n00:00:01,000 --> 00:00:02,000\nHarbour\n")
    tracks, lines = read(path, english, japanese, wanted="ja")
    assert [(line.text, line.language) for line in lines] == [("宗介", "ja")]
    assert [(track.source, track.remark) for track in tracks] == [
        (".en.forced.srt", "signs, songs or a commentary, by its title"),
        (".ja.ass", None),
        ("stream 1", "another track was chosen, .ja.ass"),
    ]


@pytest.mark.parametrize(
    ("name", "language", "title"),
    [
        ("film.srt", None, None),
        ("film.ja.ass", "ja", None),
        ("film.eng.forced.srt", "en", "forced"),
        ("film.pt-BR.ass", "pt", None),
        ("film.zh-Hant-TW.srt", "zh", None),
        ("film.English.srt", "en", None),
        ("film.chs.ass", "zh", None),
        ("film.Full.JP.v2.ass", "ja", "Full v2"),
        ("film.en.hi.srt", "en", "hi"),
        ("film.sdh.srt", None, "sdh"),
        ("film.1080p.x264-Group.srt", None, "1080p x264-Group"),
    ],
)
def test_language_and_title_in_the_name_of_a_file(
    tmp_path: Path, film: Path, name: str, language: str | None, title: str | None
) -> None:
    beside = tmp_path / name
    beside.write_text("1\n00:00:01,000 --> 00:00:02,000\nSosuke!\n")
    [track] = read(film, beside)[0]
    assert (track.language, track.title) == (language, title)
    assert track.chosen is (title != "forced")


def test_subtitles_of_another_film(tmp_path: Path, film: Path) -> None:
    other = tmp_path / "film.srt"
    other.write_text("".join(f"{n}\n00:{n:02}:00,000 --> 00:{n:02}:02,000\nline {n}\n\n" for n in range(10)))
    tracks, lines = read(film, other)
    assert lines == []
    assert [track.remark for track in tracks] == ["subtitles of another film: 9 of 10 lines begin beyond the end"]
    assert tracks[0].left_out[0].model_dump() == {"rule": "beyond the end", "events": 9}


def test_a_track_without_dialogue_leaves_the_choice_to_the_next(tmp_path: Path, film: Path) -> None:
    signs = TextStream("ass", [ass(1, 2, "Harbour", style="Sign")], "jpn", "", Disposition.default)
    tracks, lines = read(with_tracks(film, tmp_path / "film.mkv", [signs, TextStream("ass", SAID)]))
    assert [track.remark for track in tracks] == ["no dialogue in it", None]
    assert [line.speaker for line in lines] == ["Ponyo", "Sosuke"]


@pytest.mark.parametrize("codec", ["dvd_subtitle", "hdmv_pgs_subtitle"])
def test_pictures_are_named(tmp_path: Path, film: Path, codec: str) -> None:
    path = tmp_path / "film.mkv"
    with_tracks(film, path, [TextStream(codec, [(1, 2, b"\0\x10")], "jpn"), TextStream("ass", SAID)])
    tracks, lines = read(path)
    assert (tracks[0].codec, tracks[0].remark) == (codec, "pictures, which need text recognition")
    assert len(lines) == 2


def test_no_subtitles_and_a_broken_file(tmp_path: Path, film: Path) -> None:
    assert read(film) == ([], [])
    broken = tmp_path / "film.srt"
    broken.write_bytes(b"\x80\xff" * 500)
    [track] = read(film, broken)[0]
    assert track.remark
    assert track.remark.startswith("cannot be read: ")


@pytest.mark.parametrize(
    ("tag", "language"), [("jpn", "ja"), ("ja-JP", "ja"), ("ger", "de"), ("und", None), (None, None), ("x?", None)]
)
def test_language_tags(tag: str | None, language: str | None) -> None:
    assert language_of(tag) == language
