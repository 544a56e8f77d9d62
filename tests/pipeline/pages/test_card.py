"""Data card: correct counts, loading by Hugging Face, and hostile names of films and characters."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.core.config import CardSettings, Config
from pipeline.core.measurements import Bars, Box, Looks
from pipeline.core.records import Caption, FieldStretch, RecordError, Verdict
from pipeline.core.store import Dataset
from pipeline.pages.card import write_card
from pipeline.pages.report import write_report
from pipeline.publish.card_text import licence_id, plain_line
from pipeline.publish.shards import write_shards
from pipeline.reviews.clips import reviewable
from tests.support.datasets.made_dataset import CAST, MODEL, make_dataset

HOSTILE = "a | b\n# [x](http://evil.example) <script>alert(1)</script> `rm` \u202eko.mkv"


def published(root: Path, **options: Any) -> tuple[Dataset, Config]:
    dataset = make_dataset(root, **options)
    config = Config.model_validate(dataset.record.config)
    write_shards(dataset, config.shards)
    return dataset, config


def front_matter(text: str) -> dict[str, Any]:
    head: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return head


def table(text: str, first_heading: str) -> dict[str, list[str]]:
    """Rows of the Markdown table whose head begins with this text, by their first cell."""
    rows = text[text.index(f"| {first_heading} |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return {row[0]: row[1:] for row in cells}


def test_the_counts_are_those_of_the_dataset(tmp_path: Path) -> None:
    dataset, config = published(tmp_path, captioner=MODEL)
    text = write_card(dataset, config.card).read_text(encoding="utf-8")

    counts = {name: int(cells[0]) for name, cells in table(text, "Clips").items()}
    assert counts == {"cut": 20, "kept": 15, "dropped: dark": 2, "dropped: text": 2, "dropped: near-duplicate": 1}
    films = table(text, "Film")
    assert films["Kiki's Café (1989).mkv"][-3:] == ["5", "10", "8"]
    assert films["海の話.mp4"][-3:] == ["5", "10", "7"]
    splits = {name: int(cells[0]) for name, cells in table(text, "Split").items()}
    assert sum(splits.values()) == 15
    assert set(splits) == {"train", "val"}
    assert sum(int(cells[-1]) for cells in table(text, "Motion level").values()) == 15
    assert set(table(text, "Character")) == set(CAST)
    for fact in (
        "PySceneDetect 0.7.2; dissolves, fades and wipes with a small network",
        "DIS",
        MODEL,
        "who 3, what 3, actor 1",
        "webdataset 1.0.2",
        "edges: published",
    ):
        assert fact in text
    assert "rules" not in text.split("## The format")[0]


def test_doubts_about_captions_are_counted_on_both_pages(tmp_path: Path) -> None:
    dataset, config = published(tmp_path, captioner=MODEL)
    assert "Doubt" not in write_card(dataset, config.card).read_text(encoding="utf-8")
    for folder in dataset.folders():
        rows = folder.read("captions", Caption)
        doubt = {"flags": ("social alone: only <one>", "adverb against level: slowly at level 5")}
        folder.write("captions", [row.model_copy(update=doubt) if row.S else row for row in rows])
    rows = table(write_card(dataset, config.card).read_text(encoding="utf-8"), "Doubt about a caption")
    assert rows["social alone"] == rows["adverb against level"]
    assert int(rows["social alone"][0]) > 0
    page = write_report(dataset).read_text(encoding="utf-8")
    assert "social alone</" in page[page.index('data-tag="flags"') :].split("</table>")[0]


def test_flags_are_counted_and_overlays_are_said(tmp_path: Path) -> None:
    dataset, config = published(tmp_path)
    assert "with a flag" not in write_card(dataset, config.card).read_text(encoding="utf-8")
    folder = dataset.folders()[0]
    verdicts, looks = folder.read("verdicts", Verdict), folder.read("looks", Looks)
    folder.write("verdicts", [row.model_copy(update={"flags": ("logo",)}) for row in verdicts])
    logo, bars = Box(left=600, top=20, right=690, bottom=60), Bars(left=0, top=60, right=0, bottom=58)
    folder.write("looks", [row.model_copy(update={"logo_boxes": (logo,), "bars": bars}) for row in looks])
    kept = sum(row.keep for row in verdicts)
    assert f"Samples with a flag: `logo` {kept}." in write_card(dataset, config.card).read_text(encoding="utf-8")
    said = "logo 600,20 to 690,60; bars top 60, bottom 58"
    assert said in write_report(dataset).read_text(encoding="utf-8")
    assert all(clip.overlays.endswith(said) for clip in reviewable(dataset, None)[: len(looks)])


@pytest.mark.parametrize(("model", "ran"), [(MODEL, True), ("gpt-4o", False)])
def test_it_says_that_the_server_ran_code_of_the_models_repository(tmp_path: Path, model: str, ran: bool) -> None:
    dataset, config = published(tmp_path, captioner=model)
    text = write_card(dataset, config.card).read_text(encoding="utf-8")
    assert (f"{model}, served with code of the model's repository (trust-remote-code), temperature" in text) == ran


def test_card_and_report_say_what_was_done_about_fields(tmp_path: Path) -> None:
    dataset, config = published(tmp_path, captioner=MODEL)
    folder, other = dataset.folders()
    stretch = partial(FieldStretch, film_id=folder.film_id)
    rows = [
        stretch(start_seconds=0, end_seconds=12, kind="telecine"),
        stretch(start_seconds=12, end_seconds=14, kind="progressive"),
        stretch(start_seconds=14, end_seconds=17, kind="interlaced"),
        stretch(start_seconds=17, end_seconds=20, kind="telecine"),
    ]
    folder.write("fields", rows)
    said = ["telecine matched back to film frames, 0:15 of it", "interlaced video deinterlaced, 0:03 of it"]
    lines = write_card(dataset, config.card).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "of it" in line] == [f"* {folder.film.name}: {sentence}." for sentence in said]
    report = write_report(dataset).read_text(encoding="utf-8")
    assert [report.count(sentence) for sentence in said] == [1, 1]
    assert other.film.name in report


def test_a_rerun_keeps_the_builders_words_and_every_byte(tmp_path: Path) -> None:
    dataset, _ = published(tmp_path)
    card = CardSettings(title="Sea", licence="CC BY 3.0", provenance="https://example.org", notes="## Mine\n\n* so.")
    first = write_card(dataset, card).read_bytes()

    assert write_card(dataset, card).read_bytes() == first
    text = first.decode()
    assert front_matter(text)["license"] == "cc-by-3.0"
    assert "## Mine\n\n* so." in text
    assert str(tmp_path) not in text
    assert text.endswith("\n")


def test_hostile_names_break_neither_markdown_nor_yaml(tmp_path: Path) -> None:
    dataset, _ = published(tmp_path, names=(HOSTILE, 'quote " back \\ colon: - #'))
    card = CardSettings(title=HOSTILE, licence='My "own": {terms}\n---')
    text = write_card(dataset, card).read_text(encoding="utf-8")
    body = text.split("---\n", 2)[2]
    assert "<script>" not in body
    assert not re.search(r"(?<!\\)\]\(http", body)
    assert "\u202e" not in text
    assert not re.search(r"^# \[x\]", text, re.M)
    head = front_matter(text)
    assert head["license"] == "other"
    assert head["license_name"] == 'My "own": {terms} ---'
    assert head["pretty_name"].startswith("a | b # [x]")
    assert [len(cells) for cells in table(text, "Film").values()] == [6, 6, 6]


def test_a_film_that_failed_counts_what_an_earlier_build_left_of_it(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    folder = dataset.folders()[0]
    folder.save_failure(RecordError("film", "the file is gone"))
    text = write_card(dataset, CardSettings()).read_text(encoding="utf-8")
    assert table(text, "Film")["Kiki's Café (1989).mkv"][-3:] == ["5", "10", "8"]
    assert "because the last one failed: the file is gone" in text
    assert "**The captions in this dataset are made by rules, not by a language model.**" in text.split("##")[0]
    head = front_matter(text)
    assert "rule-captions" in head["tags"]
    assert head["license"] == "unknown"
    assert "| Licence of the films | **not stated by the builder** |" in text
    folder.table_path("verdicts").unlink()
    text = write_card(dataset, CardSettings()).read_text(encoding="utf-8")
    assert table(text, "Film")["Kiki's Café (1989).mkv"][-3:] == ["0", "0", "0"]


def test_only_hdr_films_have_a_sentence_about_their_colours(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    plain = write_card(dataset, CardSettings()).read_text(encoding="utf-8")
    folder = dataset.folders()[0]
    folder.save_film(folder.film.model_copy(update={"transfer": "pq"}))
    card = write_card(dataset, CardSettings()).read_text(encoding="utf-8")

    [added] = set(card.splitlines()) - set(plain.splitlines())
    assert added.startswith("* Kiki's Café (1989).mkv: HDR (PQ, BT.2020), mapped to SDR BT.709: light up to 203 cd/m²")
    page = write_report(dataset).read_text(encoding="utf-8")
    assert page.count("<li>HDR (PQ, BT.2020), mapped to SDR BT.709") == 1


def test_plain_line_has_no_breaks_and_no_reversed_writing_and_licences_are_recognised() -> None:
    assert [licence_id(written) for written in ("cc_by-sa 4.0", " MIT ", "all mine")] == ["cc-by-sa-4.0", "mit", None]
    assert plain_line("a\r\n b\x00\u2028c\u202e\u2066d ポン\t太") == "a b cd ポン 太"
