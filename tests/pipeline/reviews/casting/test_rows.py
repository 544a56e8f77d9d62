"""Rows of figures: names that outlive another network, another cut and a torn line, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.core.embed_settings import EmbedSettings
from pipeline.core.errors import UserError
from pipeline.core.records import Clip
from pipeline.core.store import Dataset
from pipeline.reviews.applied import load_reviews
from pipeline.reviews.casting.characters import characters_of, write_characters, write_references
from pipeline.reviews.casting.figures import read_figures, reference_vectors
from pipeline.reviews.casting.rows import REACH, Casting, InvalidActionError, Row
from pipeline.reviews.decisions import Decision, append_decisions
from tests.support import onnx_networks as onnx
from tests.support.datasets.embedded import LEFT, RIGHT, embed, embedded_dataset
from tests.support.datasets.made_dataset import make_dataset


def casting_of(dataset: Dataset, reviewer: str = "anna") -> Casting:
    return Casting(dataset, read_figures(dataset), reviewer)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return embedded_dataset(tmp_path)


def named(casting: Casting) -> dict[tuple[str, ...], set[int]]:
    return {row.names: set(row.figures) for row in casting.rows() if row.does == "name"}


def means(casting: Casting, rows: Sequence[Row]) -> NDArray[np.float32]:
    return np.stack([casting.figures.vectors_ND[list(row.figures)].mean(axis=0) for row in rows])


def test_rows_share_out_all_figures_and_names_join_them(dataset: Dataset) -> None:
    casting = casting_of(dataset)
    rows = casting.rows()
    assert sorted(place for row in rows for place in row.figures) == list(range(len(casting.figures.items))) != []
    assert len(rows) > 2
    casting.act("name", rows[0].figures, ["Hana"])
    casting.act("name", rows[1].figures, ["hana"])
    casting.act("discard", rows[2].figures)
    assert named(casting) == {("Hana",): {*rows[0].figures, *rows[1].figures}}
    known_KD = means(casting, rows[:2])
    still_open = [row for row in casting.rows() if row.is_open]
    reaches = (means(casting, still_open) @ known_KD.T).max(axis=1) >= 1 - REACH * (1 - casting.least)
    assert [row.proposal for row in still_open] == [("Hana",) if near else None for near in reaches]
    casting.undo()
    casting.undo()
    assert named(casting) == {("Hana",): set(rows[0].figures)}
    assert casting.undo()
    assert not casting.undo()
    assert casting.rows() == rows


def test_split_and_merge_are_kept_and_undone(dataset: Dataset) -> None:
    casting = casting_of(dataset)
    row = casting.rows()[0]
    casting.split(row.figures)
    parts = [set(each.figures) for each in casting.rows() if set(each.figures) <= set(row.figures)]
    assert len(parts) == 2
    assert casting_of(dataset).rows() == casting.rows()
    casting.act("group", row.figures)
    assert set(row.figures) in [set(each.figures) for each in casting.rows()]
    casting.undo()
    casting.undo()
    assert casting.rows()[0] == row


def test_accepting_near_proposals_is_one_action(dataset: Dataset) -> None:
    casting = casting_of(dataset)
    casting.act("name", casting.rows()[0].figures, ["Hana"])
    before = casting.rows()
    accepted = casting.accept()
    assert accepted == sum(row.near for row in before if row.is_open)
    if accepted:
        casting.undo()
    assert casting.rows() == before


def test_names_outlive_another_network_and_another_cut(dataset: Dataset, tmp_path: Path) -> None:
    casting = casting_of(dataset)
    chosen = [place for row in casting.rows()[:2] for place in row.figures]
    casting.act("name", chosen, ["Hana"])
    embed(dataset, EmbedSettings(pictures=str(onnx.picture_encoder(tmp_path / "other.onnx", seed=5))))
    assert named(casting_of(dataset)) == {("Hana",): set(chosen)}
    (folder,) = dataset.folders()
    moved = [clip.model_copy(update={"start_seconds": clip.start_seconds + 0.2}) for clip in folder.read("clips", Clip)]
    folder.write("clips", moved)
    assert named(casting_of(dataset)) == {("Hana",): set(chosen)}
    far = [clip.model_copy(update={"start_seconds": clip.start_seconds + 500}) for clip in moved]
    folder.write("clips", far)
    assert named(casting_of(dataset)) == {}


def test_a_torn_line_costs_only_itself(dataset: Dataset) -> None:
    casting = casting_of(dataset)
    first, second, *_ = casting.rows()
    casting.act("name", first.figures, ["Hana"])
    casting.act("name", second.figures, ["Toki"])
    casting.file.write_bytes(casting.file.read_bytes()[:-40])
    again = casting_of(dataset)
    assert (again.faults, named(again)) == (1, {("Hana",): set(first.figures)})
    again.act("name", second.figures, ["Toki"])
    assert named(casting_of(dataset)) == {("Hana",): set(first.figures), ("Toki",): set(second.figures)}


def test_characters_wait_for_all_figures_and_reviews_win(tmp_path: Path) -> None:
    dataset, review = embedded_dataset(tmp_path, [LEFT, RIGHT]), tmp_path / "review.jsonl"
    casting = casting_of(dataset)
    assert casting.figures.by_detector
    clip = casting.figures.items[0].clip
    own = [place for place, figure in enumerate(casting.figures.items) if figure.clip.clip_id == clip.clip_id]
    assert len(own) == 6
    casting.act("name", own[::2], ["Søren"])
    assert characters_of(casting.figures, casting.standings()) == ({}, {clip.clip_id})
    casting.act("name", own[1::2], ["Hana"])
    written = write_characters(dataset, review, casting)
    assert (written.clips, written.lines, written.waiting) == (1, 1, 0)
    assert write_characters(dataset, review, casting).lines == 0
    standing = load_reviews(dataset, review).standings[clip.clip_id]["characters"]
    assert (standing.value, standing.reviewer) == (("Hana", "Søren"), "cast: anna")
    sha256 = dataset.record.films[0].sha256
    decision = {"time": "2020-01-01T00:00:00Z", "reviewer": "ben", "film_sha256": sha256, "field": "characters"}
    span = {"start_seconds": clip.start_seconds, "end_seconds": clip.end_seconds}
    append_decisions(review, [Decision.model_validate(decision | span | {"value": ["Hana"]})])
    standing = load_reviews(dataset, review).standings[clip.clip_id]["characters"]
    assert (standing.value, standing.reviewer, standing.conflict) == (("Hana",), "ben", False)
    casting.undo()
    assert write_characters(dataset, review, casting).lines == 1
    append_decisions(review, [Decision.model_validate(decision | span)])
    assert clip.clip_id not in load_reviews(dataset, review).standings


def test_nobody_is_said_and_a_discarded_picture_says_nothing(dataset: Dataset) -> None:
    casting = casting_of(dataset)
    places = range(6)
    casting.act("name", places[:3])
    casting.act("discard", places[3:])
    first = casting.figures.items[0].clip.clip_id
    assert characters_of(casting.figures, casting.standings()) == ({first: ()}, set())


def test_pictures_of_characters_are_replaced_but_those_of_others_stay(dataset: Dataset, tmp_path: Path) -> None:
    casting, folder = casting_of(dataset), tmp_path / "cast"
    (folder / "Toki").mkdir(parents=True)
    (folder / "Toki" / "mine.png").write_bytes(b"a picture")
    rows = casting.rows()
    casting.act("name", rows[0].figures, ["Hana"])
    casting.act("name", rows[1].figures, ["Toki"])
    casting.act("name", rows[2].figures, ["Hana", "Toki"])
    assert write_references(dataset, folder, casting) == min(4, len(rows[0].figures))
    first = {path.name for path in (folder / "Hana").iterdir()}
    assert [path.name for path in (folder / "Toki").iterdir()] == ["mine.png"]
    casting.undo()
    casting.undo()
    casting.undo()
    casting.act("name", rows[-1].figures, ["Hana"])
    write_references(dataset, folder, casting)
    assert not first & {path.name for path in (folder / "Hana").iterdir()}


def test_figures_are_matched_to_a_cast_folder(tmp_path: Path) -> None:
    dataset = embedded_dataset(tmp_path)
    casting = casting_of(dataset)
    rows = casting.rows()
    casting.act("name", rows[0].figures, ["Hana"])
    write_references(dataset, tmp_path / "cast", casting)
    casting.undo()
    references = reference_vectors(dataset, casting.figures, tmp_path / "cast")
    matched = Casting(dataset, casting.figures, "anna", references).rows()
    assert {row.proposal for row in matched} <= {("Hana",), None}
    likest = max(matched, key=lambda row: row.likeness)
    assert set(likest.figures) == set(rows[0].figures)
    assert [row.near for row in matched] == sorted(row.near for row in matched)
    onnx.picture_encoder(tmp_path / "pictures.onnx", seed=9)
    with pytest.raises(UserError, match="network"):
        reference_vectors(dataset, casting.figures, tmp_path / "cast")


@pytest.mark.parametrize("name", ["a/b", "", "x" * 65, " ", ".hidden", "two\nlines"])
def test_names_that_a_folder_cannot_have_are_refused(dataset: Dataset, name: str) -> None:
    casting = casting_of(dataset)
    with pytest.raises(InvalidActionError):
        casting.act("name", [0], [name])
    assert not casting.file.exists()


def test_many_figures_none_and_no_vectors(tmp_path: Path) -> None:
    grid = [(8 * (number % 8) + 4, 8 * (number // 8 % 8) + 4, 7, 7, 0.9 - number / 500) for number in range(200)]
    many = casting_of(embedded_dataset(tmp_path / "many", grid))
    most = max(
        sum(one.frame == figure.frame and one.clip == figure.clip for one in many.figures.items)
        for figure in many.figures.items[:1]
    )
    assert most == 32
    many.act("name", range(32), ["Hana"])
    assert casting_of(embedded_dataset(tmp_path / "none", [])).rows() == []
    with pytest.raises(UserError, match=r"\[embed\]"):
        read_figures(make_dataset(tmp_path / "plain"))


def test_a_picture_is_cut_out_at_its_box(tmp_path: Path) -> None:
    from pipeline.reviews.casting.figures import cut_out
    from pipeline.video.clip_files import read_clip

    dataset = embedded_dataset(tmp_path, [LEFT, RIGHT])
    figures = read_figures(dataset)
    chosen = figures.items[1:3]
    for place, picture_HWC in cut_out(dataset, chosen):
        figure = chosen[place]
        path = dataset.folder(figure.clip.film_id).clip_path(figure.clip.clip_id)
        left, top, right, bottom = figure.pixels
        whole_HWC = read_clip(path)[figure.frame]
        assert picture_HWC.shape == (bottom - top, right - left, 3)
        assert cv2.absdiff(picture_HWC, whole_HWC[top:bottom, left:right]).mean() < 3
