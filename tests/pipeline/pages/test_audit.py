"""Audit on data card and report: its figures, names that are no markup, and a dataset without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.config import CardSettings, checked
from pipeline.core.progress import silent
from pipeline.core.store import Dataset
from pipeline.pages.card import write_card
from pipeline.pages.report import write_report
from pipeline.plan.publish import is_published, publish_stages
from pipeline.publish.shards import write_shards
from tests.support.audits import answer, start_audit
from tests.support.datasets.built_dataset import copy_of_built
from tests.support.datasets.made_dataset import MODEL, make_dataset

HOSTILE = "an|na <script>alert(1)</script>"


def audited(dataset: Dataset, reviewer: str = "anna", wrong: int = 1) -> None:
    """Judge MA of all clips; the first ones are wrong."""
    sample = start_audit(dataset, blind=True)
    answer(dataset, "MA", *["sideways"] * wrong, *[...] * (len(sample.spans) - wrong), reviewer=reviewer)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    dataset = make_dataset(tmp_path / "data", captioner=MODEL)
    write_shards(dataset, checked(dataset.record.config, "test").shards)
    return dataset


def pages(dataset: Dataset) -> tuple[str, str]:
    written = write_card(dataset, CardSettings()), write_report(dataset)
    return written[0].read_text(encoding="utf-8"), written[1].read_text(encoding="utf-8")


def test_both_pages_show_the_figures_of_an_audit(dataset: Dataset) -> None:
    before = pages(dataset)
    assert all("audit" not in page.lower() for page in before)
    audited(dataset, HOSTILE)
    audited(dataset, "ben", wrong=3)
    card, report = pages(dataset)
    for fact in ("| MA | lemma | 80.0% | 80.0 to 80.0% | 15 | 15 |", "| MA | 15 | 86.7% | 0."):
        assert fact in card
    assert "15 clips labelled of 15 drawn from 15, blind to the machine's answers" in card
    assert "an\\|na" in card, "a reviewer's name is no markup"
    assert "ben (15)" in card
    section = report[report.index('<section id="audit"') :].split("</section>")[0]
    assert '<th scope="row">MA</th><td>lemma</td><td class="number">80.0%</td>' in section
    assert "86.7%" in section
    assert "<script>alert" not in card + report


@pytest.mark.slow
def test_new_answers_make_the_pages_be_written_and_never_the_shards(tmp_path: Path) -> None:
    dataset = Dataset(copy_of_built(tmp_path)[1])
    config = checked(dataset.record.config, "test")

    def published() -> dict[str, bool]:
        return {step.name: step.run(dataset, silent) for step in publish_stages(config)}

    assert is_published(dataset, config)
    audited(dataset)
    assert not is_published(dataset, config)
    pages_alone = {"selection": False, "shards": False, "report": True}
    assert published() == pages_alone
    assert "## Audit" in (dataset.root / "README.md").read_text(encoding="utf-8")
    assert is_published(dataset, config)
    audited(dataset, "ben")
    assert published() == pages_alone
    assert not any(published().values())
