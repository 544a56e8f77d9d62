"""Report: correct numbers, deterministic bytes, and warnings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.core.records import RecordError, Verdict
from pipeline.core.store import Dataset
from pipeline.pages.report import write_report
from pipeline.pages.summary import summarise
from pipeline.publish.coverage import totals
from pipeline.publish.samples import kept_clips
from pipeline.publish.vocabulary import Vocabulary
from tests.support.datasets.dialogue import line, write_dialogue
from tests.support.datasets.made_dataset import CAST, make_dataset


def test_the_coverage_adds_up_to_the_length_of_the_films(made: Dataset) -> None:
    page = (made.root / "report.html").read_text(encoding="utf-8")
    table = page[page.index('id="ledger-title"') :].split("</section>")[0]
    rows = dict(re.findall(r'<tr data-fate="([^"]+)">.*?<td class="number total">([\d.,]+)</td>', table))

    assert set(rows) == {
        "kept", "dropped: dark", "dropped: text", "dropped: near-duplicate", "dropped: scene edge",
        "dropped: shorter than a clip", "failed: 12 packets could not be decoded",
    }  # fmt: skip
    assert rows["kept"] == "30.0"
    assert rows["failed: 12 packets could not be decoded"] == "3.0"
    length = sum(folder.film.duration_seconds for folder in made.folders())
    assert sum(map(float, rows.values())) == pytest.approx(length, abs=0.05 * len(rows))
    assert f'id="ledger-sum">{length:.1f}<' in table
    for film in summarise(made).films:
        assert sum(totals(film.spans).values()) == pytest.approx(film.film.duration_seconds, abs=1 / 24)


def test_the_numbers_are_those_of_the_dataset(made: Dataset) -> None:
    page = (made.root / "report.html").read_text(encoding="utf-8")

    figures = dict(re.findall(r"<dt>([A-Z][\w ]+)</dt><dd>([\d,]+)<small>", page))
    assert figures == {"Films": "2", "Scenes": "10", "Clips cut": "20", "Kept": "15", "Dropped": "5", "Samples": "15"}
    level_rows = re.findall(r'<tr data-level="\d">(.*?)</tr>', page)
    levels = [re.findall(r'<td class="number">(.*?)</td>', row) for row in level_rows]
    assert sum(int(kept) for *_, kept, _ in levels) == 15
    assert [int(cut) for *_, cut in levels] == [4, 4, 4, 4, 4]
    cast = page[page.index('data-tag="characters"') :].split("</table>")[0]
    assert [name for name in CAST if name in cast] == list(CAST)
    assert "made by rules" not in page
    assert str(made.root) not in page


def test_the_splits_are_those_of_the_shards(made: Dataset) -> None:
    summary = summarise(made)
    samples = [
        one.sample
        for folder in made.folders()
        for one in kept_clips(folder, made.record, summary.config.shards, Vocabulary())
    ]
    assert {clip.clip.clip_id: clip.split for clip in summary.kept} == {one.clip_id: one.split for one in samples}
    assert {one.split for one in samples} == {"train", "val"}


def test_a_level_that_holds_most_clips_is_warned_about(tmp_path: Path, made: Dataset) -> None:
    assert "animegamer calibrate" not in (made.root / "report.html").read_text(encoding="utf-8")
    dataset = make_dataset(tmp_path)
    for folder in dataset.folders():
        verdicts = folder.read("verdicts", Verdict)
        folder.write("verdicts", [verdict.model_copy(update={"level": 2}) for verdict in verdicts])
    page = write_report(dataset).read_text(encoding="utf-8")
    assert "Level 2 holds 100.0 % of the kept clips: `animegamer calibrate` fits the edges" in page


def test_an_unfinished_dataset_has_a_report(tmp_path: Path) -> None:
    assert "No film has been added yet" in write_report(Dataset(tmp_path / "empty")).read_text(encoding="utf-8")
    dataset = make_dataset(tmp_path, films=1, scenes=2, captioner="rules")
    page = write_report(dataset).read_text(encoding="utf-8")
    assert "Measured in none of them: cast on screen, subject, environment, characters interact" in page
    assert write_report(dataset).read_text(encoding="utf-8") == page
    dataset.folders()[0].table_path("verdicts").unlink()
    page = write_report(dataset).read_text(encoding="utf-8")
    assert "made by rules, not by a language model" in page
    assert 'data-fate="dropped: not judged yet"' in page


def test_a_film_that_failed_last_time_is_shown_with_its_samples_and_a_warning(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1)
    folder = dataset.folders()[0]
    before = summarise(dataset).films[0]
    folder.save_failure(RecordError(folder.film_id, "the file is gone"))
    [seen] = summarise(dataset).films
    assert (seen.clips, seen.spans, seen.scenes) == (before.clips, before.spans, before.scenes)
    warning = "shown as an earlier build left it, because the last one failed: the file is gone"
    assert seen.warnings == (*before.warnings, warning)
    page = write_report(dataset).read_text(encoding="utf-8")
    assert f"<li>{warning}</li>" in page
    assert "failed: the file is gone" not in page.replace(warning, "")

    folder.table_path("verdicts").unlink()
    [seen] = summarise(dataset).films
    assert (seen.clips, seen.warnings) == ((), before.warnings)
    assert [(span.fate, span.reason) for span in seen.spans] == [("failed", "the file is gone")]


def test_a_film_used_in_part_still_adds_up(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1)
    folder = dataset.folders()[0]
    record = folder.stage_record("cut")
    assert record is not None
    folder.save_stage_record(record.model_copy(update={"ingredients": {"film": {"end_seconds": 13.5}}}))
    page = write_report(dataset).read_text(encoding="utf-8")

    assert re.search(r'data-fate="dropped: past --end">.*?total">9.0<', page)
    assert 'id="ledger-sum">22.5<' in page
    assert 'data-seconds="13.5"' in page, "the strip shows the part that was used"
    assert "used up to 0:14" in page


def test_the_report_names_subtitles_and_what_they_leave_out(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=1)
    write_dialogue(dataset.folders()[0], line(2.5, 3.5, "宗介!", speaker="Ponyo"))
    page = write_report(dataset).read_text(encoding="utf-8")
    assert "Subtitles, .ja.ass (ASS, ja): dialogue, 1 line; left out: sign by style 3" in page
    assert page.count('"Ponyo: \\u5b97\\u4ecb!"') + page.count('"Ponyo: 宗介!"') == 1


def test_the_title_names_a_series_once(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, films=3)
    for folder in dataset.folders()[:2]:
        folder.save_film(folder.film.model_copy(update={"series": "Kiki"}))
    untitled = {**dataset.record.config, "card": {}}
    dataset.save(dataset.record.model_copy(update={"config": untitled}))
    assert summarise(dataset).title == f"Kiki, {dataset.folders()[2].film.name}"
