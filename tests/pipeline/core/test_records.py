"""Records and ids: accepted and refused values, and tables on disk."""

import pickle
import re
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import ValidationError

from pipeline.core.dialogue import LeftOut, SpokenLine, SubtitleTrack
from pipeline.core.measurements import Box, ClipSound, Embedded, FoundFigure
from pipeline.core.records import (
    Caption,
    Clip,
    Crop,
    Damage,
    FieldStretch,
    HashedPicture,
    Record,
    RecordError,
    Reviewed,
    SpanCaption,
    arrow_schema,
    make_clip_id,
    make_film_id,
    slug,
)
from pipeline.core.store import TABLES, FilmFolder
from tests.support import records

CLIP = records.clip(
    start_seconds=1.5, scene=3, index=7, fps=Fraction(24000, 1001), frames=3, bytes=1234, sha256="ab" * 32
)
ROWS: dict[str, list[Record]] = {
    "crop": [records.crop(top=20, width=320, height=140, frames_used=58, warnings=("one", "two"))],
    "scenes": [records.scene(end_seconds=1.5), records.scene(scene=1, start_seconds=1.5, opened_by="fade")],
    "damage": [Damage(film_id="f", start_seconds=1.25, end_seconds=2, reason="undecodable: “é” \n")],
    "fields": [FieldStretch(film_id="f", start_seconds=0, end_seconds=2.5, kind="telecine")],
    "hashes": [HashedPicture(seconds=0.25, hash="0f" * 32), HashedPicture(seconds=0.5, hash="")],
    "clips": [CLIP],
    "subtitles": [
        SubtitleTrack(
            **{"source": ".ja.ass", "codec": "ass", "language": "ja", "title": None, "chosen": True, "remark": None},
            lines=1,
            left_out=(LeftOut(rule="sign by style", events=3),),
        )
    ],
    "dialogue": [SpokenLine(start_seconds=1.25, end_seconds=2, text="宗介!", speaker="ポニョ", language="ja")],
    "sound": [
        ClipSound(
            clip_id="f-1-000000000",
            language="jpn",
            sample_rate=48_000,
            channels=2,
            loudness_lufs=loudness,
            silent_share=0.25,
            speech_share=0.5,
            bytes=26_000,
            sha256="0" * 64,
            muxed_sha256="f" * 64,
        )
        for loudness in (-23.1, None)
    ],
    "embedded": [Embedded(clip_id="c", frames=(2, 8, 13))],
    "figures": [
        FoundFigure(clip_id="c", frame=8, label="person", score=0.75, box=Box(left=1, top=2, right=30, bottom=40))
    ],
    "looks": [
        records.looks("c", light=90.5, still_share=0, text_share=None, text_lines=None, hashes=("0" * 16, "f" * 16))
    ],
    "motion": [records.motion("c", 7.03125, camera_px=0.5)],
    "captions": [
        Caption(clip_id="c", source="rules"),
        Caption(clip_id="d", source="a model", S="Ponyo", SC=0, ET=1, ST=-1, characters=("Ponyo", "Sōsuke")),
        Caption(clip_id="e", source="a model", characters=(), reviewed=True, fault="no JSON", raw_who="?"),
    ],
    "spans": [SpanCaption(clip_id="c wan", source="a model", S="Ponyo", preset="wan", made_from="0f" * 8)],
    "carried": [Caption(clip_id="b", source="m", S="fox", flags=("copied: a",))],
    "reviewed": [
        Reviewed(clip_id="c", fields=("MD", "SC", "characters"), keep=None, MD="run", characters=("ポニョ",)),
        Reviewed(clip_id="d", fields=(), keep=False),
    ],
    "screened": [records.verdict("c")],
    "verdicts": [records.verdict("c", "dark", "text", level=5, duplicate_of="d")],
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Kiki's Delivery (1989).mkv", "kiki-s-delivery-1989"),
        ("plain", "plain"),
        ("a film with spaces.mp4", "a-film-with-spaces"),
        ("Movie.S01E01.1080p.mkv", "movie-s01e01-1080p"),
        ("two\nlines\tand tab.mp4", "two-lines-and-tab"),
        ("Amélie — Ünïcode.mp4", "amelie-unicode"),
        ("千と千尋の神隠し.mkv", "film"),
        ("../../etc/passwd", "passwd"),
        ("..", "film"),
        ("../", "film"),
        ("C:\\films\\Akira.avi", "akira"),
        (".hidden", "hidden"),
        (".hidden.mkv", "hidden"),
        ("", "film"),
        ("---.mp4", "film"),
        ("nul\0byte.mp4", "nul-byte"),
        ("x" * 300 + ".mkv", "x" * 48),
        ("y" * 47 + "-tail.mkv", "y" * 47),
    ],
)
def test_any_name_becomes_a_safe_slug(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_film_ids_distinguish_files_of_one_name_with_different_content() -> None:
    ids = {make_film_id("Akira.mkv", digit * 64) for digit in "0123456789abcdef"}
    assert "akira-00000000" in ids
    assert len(ids) == 16
    assert all(re.fullmatch(r"[a-z0-9-]+", film_id) for film_id in ids)


def test_clip_ids_count_milliseconds_and_sort_by_time() -> None:
    assert make_clip_id("akira-00000000", 0) == "akira-00000000-000000000"
    assert make_clip_id("akira-00000000", 83.4166) == "akira-00000000-000083417"
    starts = [0.0, 1.999, 10.0, 599.5, 7200.25]
    ids = [make_clip_id("akira-00000000", start) for start in starts]
    assert ids == sorted(ids)


@pytest.mark.parametrize("table", TABLES)
def test_records_survive_the_disk(tmp_path: Path, table: str) -> None:
    folder = FilmFolder(tmp_path / "film-01234567")
    folder.write(table, ROWS[table])
    assert folder.read(table, TABLES[table]) == ROWS[table]


def test_arrow_types_follow_the_fields() -> None:
    schema = arrow_schema(Clip)
    assert schema.field("fps").type == pa.string()
    assert schema.field("source_frames").type == pa.list_(pa.int64())
    assert not schema.field("clip_id").nullable
    caption = arrow_schema(Caption)
    assert (caption.field("ST").type, caption.field("ST").nullable) == (pa.int64(), True)
    assert (caption.field("characters").type, caption.field("reviewed").type) == (pa.list_(pa.string()), pa.bool_())


def test_a_rate_in_any_notation_is_an_exact_fraction() -> None:
    def rate(value: object) -> Fraction:
        return Clip.model_validate({**CLIP.model_dump(), "fps": value}).fps

    assert rate("24000/1001") == rate(Fraction(24000, 1001)) == Fraction(24000, 1001)
    assert rate(25) == rate("25") == rate(25.0) == 25
    assert rate(23.976) == Fraction(2997, 125)
    assert CLIP.model_dump(mode="json")["fps"] == "24000/1001"


def test_records_refuse_unknown_fields() -> None:
    with pytest.raises(ValidationError, match="colour"):
        Crop.model_validate({**ROWS["crop"][0].model_dump(), "colour": "red"})
    with pytest.raises(ValidationError, match="frozen"):
        CLIP.frames = 4  # type: ignore[misc]
    with pytest.raises(ValidationError, match="finite"):
        records.motion(scope_px=float("nan"))


def test_a_record_error_names_the_record_and_survives_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(RecordError("akira-00000000", "no video stream")))
    assert (error.record_id, error.reason) == ("akira-00000000", "no video stream")
    assert str(error) == "akira-00000000: no video stream"
