"""Lines of dialogue among events: signs, songs and effects by rule, times, and hostile text."""

import time

import pytest

from pipeline.stages.subtitles.files import SubtitleError, decoded, parse
from pipeline.stages.subtitles.lines import Found, spoken_lines
from tests.support.media.subtitled_films import ASS_HEADER


def found(text: str, film_seconds: float = 100, start_seconds: float = 0) -> Found:
    events, _ = parse(text)
    return spoken_lines(events, start_seconds=start_seconds, film_seconds=film_seconds, language="ja")


def events(*lines: str) -> str:
    return ASS_HEADER + "\n".join(lines)


SPOKEN = "Dialogue: 0,0:00:01.00,0:00:02.50,Default,Ponyo,0,0,0,,Sosuke, {\\i1}where\\Nare{\\i0} you?"


@pytest.mark.parametrize(
    ("rule", "event"),
    [
        ("comment", "Comment: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,to do"),
        ("drawing", r"Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,{\an7\p1}m 0 0 l 100 0 100 100{\p0}"),
        ("sign by style", "Dialogue: 0,0:00:03.00,0:00:04.00,Signs - Top,,0,0,0,,Harbour"),
        ("sign by style", "Dialogue: 0,0:00:03.00,0:00:04.00,EpisodeTitle,,0,0,0,,The Sea"),
        ("song by style", "Dialogue: 0,0:00:03.00,0:00:04.00,OP2-Romaji,,0,0,0,,umi no okaasan"),
        ("sign by position", r"Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,{\pos(320,40)}Shop"),
        ("sign by position", r"Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,{\move(0,0,9,9)}Bus"),
        ("karaoke", r"Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,{\k20}po{\k30}nyo"),
        ("song by notes", "Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,♪ Ponyo, Ponyo ♪"),
        ("sound", "Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,（ドアの開く音）"),
        ("empty", r"Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,{\an8}"),
        ("no length", "Dialogue: 0,0:00:04.00,0:00:03.00,Default,,0,0,0,,backwards"),
        ("no length", "Dialogue: 0,-0:00:04.00,-0:00:03.00,Default,,0,0,0,,before the film"),
        ("too long", "Dialogue: 0,0:00:03.00,0:01:04.00,Default,,0,0,0,,subtitles by a group"),
        ("too long", "Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,," + "word " * 200),
        ("beyond the end", "Dialogue: 0,0:01:40.00,0:01:41.00,Default,,0,0,0,,another film"),
        ("repeated", SPOKEN.replace("Dialogue: 0", "Dialogue: 1")),
    ],
)
def test_events_that_are_no_dialogue(rule: str, event: str) -> None:
    result = found(events(SPOKEN, event))
    assert [line.text for line in result.lines] == ["Sosuke, where are you?"]
    assert result.left_out == {rule: 1}


def test_a_line_of_a_style_that_only_resembles_a_sign_is_kept() -> None:
    result = found(events(SPOKEN.replace("Default", "Designer-Edited")))
    assert [(line.speaker, line.start_seconds, line.end_seconds) for line in result.lines] == [("Ponyo", 1.0, 2.5)]


def test_positions_say_nothing_if_most_lines_have_one() -> None:
    placed = [rf"Dialogue: 0,0:00:0{n}.00,0:00:0{n}.90,Default,,0,0,0,,{{\pos(320,400)}}line {n}" for n in range(3)]
    result = found(events(*placed, SPOKEN))
    assert not result.by_position
    assert len(result.lines) == 4


def test_times_are_those_of_the_film() -> None:
    result = found(events(SPOKEN, SPOKEN.replace("1.00", "0.10").replace("Sosuke", "Papa")), 1.0, start_seconds=1.2)
    assert [(line.start_seconds, line.end_seconds) for line in result.lines] == [(0.0, 1.0), (0.0, 1.0)]


def test_overlapping_lines_are_both_kept() -> None:
    result = found("1\n00:00:01,000 --> 00:00:03,000\nOne\n\n2\n00:00:02,000 --> 00:00:04,000\nTwo\n")
    assert [line.text for line in result.lines] == ["One", "Two"]


def test_webvtt() -> None:
    text = (
        "WEBVTT\n\nNOTE by a person\n\nSTYLE\n::cue { color: red }\n\nfirst cue\n00:01.000 --> 00:02.000 line:0\n"
        "<v Ponyo>Ham &amp; <i>noodles</i>!\n\nNOTE ham\n\n00:00:03.000 --> 00:00:04.000\n<v.loud Sosuke M>Yes\n"
    )
    lines = found(text).lines
    assert [(line.speaker, line.text) for line in lines] == [("Ponyo", "Ham & noodles!"), ("Sosuke M", "Yes")]


def test_webvtt_with_times_in_cues_and_times_that_are_not_padded() -> None:
    """As YouTube and Microsoft Teams write them."""
    text = (
        "WEBVTT\n\n6e2b/12-0\n0:0:1.5 --> 0:0:2.250\n<v Lisa>Ham.</v>\n\n"
        "01:03.000 --> 01:04,000\nBig-<00:01:03.500>a <00:01:03.800>pizza\n"
    )
    lines = found(text).lines
    assert [(line.start_seconds, line.end_seconds, line.text) for line in lines] == [
        (1.5, 2.25, "Ham."),
        (63.0, 64.0, "Big-a pizza"),
    ]


def test_ssa() -> None:
    text = " [V4 Styles]\n [Events]\n Dialogue: Marked=0,0:00:01.00,0:00:02.00,Default,Ponyo,0000,0000,0000,,Hi"
    assert [(line.speaker, line.text) for line in found(text).lines] == [("Ponyo", "Hi")]


JAPANESE = (
    "1\n00:00:01,000 --> 00:00:02,000\n宗介、どこにいるの?\n\n"
    "2\n00:00:03,000 --> 00:00:04,000\nポニョ、そうすけ、すき!\n"
)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "cp932", "euc_jp", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_encodings(encoding: str) -> None:
    lines = found(decoded(JAPANESE.replace("\n", "\r\n").encode(encoding))).lines
    assert [line.text for line in lines] == ["宗介、どこにいるの?", "ポニョ、そうすけ、すき!"]


@pytest.mark.parametrize(
    ("language", "encoding", "said"),
    [
        ("fr", "cp1252", "Où es-tu, garçon ?"),
        ("pl", "cp1250", "Gdzie jesteś, żółwiu?"),
        ("tr", "cp1254", "Neredesin çocuğum? Şimdi gidelim."),
        ("he", "cp1255", "איפה אתה? אני אוהב אותך."),
        ("en", "cp1256", "أين أنت؟ أنا أحبك."),
        (None, "cp1256", "أين أنت؟ أنا أحبك."),
        (None, "cp1253", "Πού είσαι; Πάμε σπίτι."),
        ("th", "cp874", "คุณอยู่ที่ไหน ฉันรักคุณ"),
        (None, "cp1251", "Где ты? Пойдём домой."),
    ],
)
def test_encodings_of_other_languages(language: str | None, encoding: str, said: str) -> None:
    text = f"1\n00:00:01,000 --> 00:00:02,000\n{said}\n"
    assert [line.text for line in found(decoded(text.encode(encoding), language)).lines] == [said]


@pytest.mark.parametrize("text", ["", "\0\0", "a letter", "[Script Info]\n"])
def test_a_file_without_events(text: str) -> None:
    with pytest.raises(SubtitleError, match="no events"):
        parse(text)


def test_hostile_files() -> None:
    bad = [
        "Dialogue: 0,soon,later,Default,,0,0,0,,no times",
        "Dialogue: 0," + "9" * 6000 + ":00:01.00,0:00:02.00,Default,,0,0,0,,a time of thousands of digits",
        "Dialogue: 0,0:00:01.00",
        "Dialogue: 0,0:00:0,4.00,0:00:05.00,Default,,0,0,0,,a comma in a time",
    ]
    odd = [
        "Dialogue: x,0:00:05.00,0:00:06.00,Default,../../etc/passwd,x,x,x,,{\\fs99999999}big {\\fn../../font}path",
        "Dialogue: 0,0:00:07.00,0:00:08.00,Default,a\x1b[31mb,0,0,0,,red\x1b[31m\u202eturned\x00 <b>bold</b>",
    ]
    text = events("[Fonts]", "fontname: ../../x.ttf", "Style: Bad,x,y,z", *bad, *odd).replace("&H00FFFFFF", "&Hpurple")
    readable, unreadable = parse(text)
    assert unreadable == 4
    lines = spoken_lines(readable, start_seconds=0, film_seconds=100, language=None).lines
    assert [(line.speaker, line.text) for line in lines] == [
        ("../../etc/passwd", "big path"),
        ("a[31mb", "red[31mturned <b>bold</b>"),
    ]


@pytest.mark.slow
def test_many_lines_and_many_braces_are_fast() -> None:
    line = "Dialogue: 0,0:%02d:%02d.%02d,0:59:59.00,Default,,0,0,0,,{\\i1}line %d"
    many = [line % (n // 6000, n // 100 % 60, n % 100, n) for n in range(100_000)]
    braces = ["Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,," + "{" * 200_000] * 5
    started = time.process_time()
    result = found(events(*many, *braces), film_seconds=4000)
    assert result.left_out["too long"] > 90_000
    assert time.process_time() - started < 20
