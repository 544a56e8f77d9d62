"""Search of clips by likeness, on embedded clips of which one is a copy of another."""

from __future__ import annotations

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from pipeline.core.embed_settings import EmbedSettings
from pipeline.core.errors import UserError
from pipeline.core.records import Clip
from pipeline.core.stage import perform
from pipeline.core.store import Dataset
from pipeline.pages.report import alike_in_content, write_report
from pipeline.pages.summary import summarise
from pipeline.publish.similar_clips import PictureVectors, picture_vectors, search
from pipeline.stages.embed import Embed
from pipeline.video.clip_files import read_clip
from tests.support import onnx_networks as onnx
from tests.support.datasets.embedded import embed
from tests.support.datasets.made_dataset import make_dataset


@pytest.fixture
def embedded(tmp_path: Path) -> Dataset:
    dataset = make_dataset(tmp_path / "data")
    original, copy = (folder.clip_path(folder.read("clips", Clip)[3].clip_id) for folder in dataset.folders())
    shutil.copy(original, copy)
    onnx.processor(tmp_path)
    onnx.picture_encoder(tmp_path / "onnx" / "vision_model.onnx")
    onnx.word_encoder(tmp_path, np.eye(5, onnx.SIZE, dtype=np.float32))
    embed(dataset, EmbedSettings(pictures=str(tmp_path), words=str(tmp_path)))
    return dataset


def test_a_clip_finds_its_copy_and_not_itself(embedded: Dataset) -> None:
    original, copy = (folder.read("clips", Clip)[3].clip_id for folder in embedded.folders())
    found = search(embedded, original, None)
    assert original not in found
    assert found[copy] == pytest.approx(max(found.values()), abs=0.001) == pytest.approx(1, abs=0.001)
    assert min(found.values()) < 0.99
    pairs = {pair[:2] for pair in picture_vectors(embedded).pairs(0.999)}
    assert (original, copy) in pairs
    assert len(pairs) < len(found) * (len(found) + 1) / 2


def test_the_report_shows_kept_clips_of_two_scenes_that_are_alike(embedded: Dataset) -> None:
    pairs = alike_in_content(embedded, summarise(embedded))
    originals = [folder.read("clips", Clip)[3].clip_id for folder in embedded.folders()]
    kept = {seen.clip.clip_id for seen in summarise(embedded).kept}
    assert kept.issuperset(clip_id for pair in pairs for clip_id in pair)
    assert (tuple(originals) in pairs) == kept.issuperset(originals)
    page = write_report(embedded).read_text(encoding="utf-8")
    assert f"{len(pairs)} pair" in page[page.index('id="alike-title"') :]
    assert '"alike": [[' in page or '"alike":[[' in page
    plain = make_dataset(embedded.root.parent / "plain")
    assert 'id="alike-title"' not in write_report(plain).read_text(encoding="utf-8")


def test_a_picture_finds_its_clip(embedded: Dataset, tmp_path: Path) -> None:
    folder = embedded.folders()[0]
    clip = folder.read("clips", Clip)[4]
    cv2.imwrite(str(tmp_path / "still.png"), read_clip(folder.clip_path(clip.clip_id))[8])
    found = search(embedded, str(tmp_path / "still.png"), None)
    assert found[clip.clip_id] == pytest.approx(max(found.values()), abs=0.001)


def test_words_find_the_clip_with_their_vector(embedded: Dataset, tmp_path: Path) -> None:
    clip = embedded.folders()[1].read("clips", Clip)[2]
    vectors_PD = picture_vectors(embedded).of(clip.clip_id)
    assert vectors_PD is not None
    table = np.zeros((5, onnx.SIZE), np.float32)
    table[onnx.WORDS.index("green")] = vectors_PD[1]
    onnx.word_encoder(tmp_path, table)
    found = search(embedded, None, "green field")
    assert found[clip.clip_id] == pytest.approx(max(found.values()), abs=0.001)


def test_likeness_and_pairs_are_those_of_a_direct_comparison() -> None:
    random = np.random.default_rng(0)
    all_CPD = random.normal(size=(1000, 3, 8)).astype(np.float16)
    ids = tuple(f"c{number:04}" for number in range(1000))
    vectors = PictureVectors(ids, (all_CPD[:300], all_CPD[300:]), "x")
    query_QD = random.normal(size=(2, 8)).astype(np.float32)
    wide_CPD = all_CPD.astype(np.float32)
    direct = np.einsum("cpd,qd->cpq", wide_CPD, query_QD).max(axis=(1, 2))
    assert np.allclose(list(vectors.likeness(query_QD).values()), direct, atol=1e-5)
    assert np.array_equal(vectors.of("c0301"), wide_CPD[301])
    mean_ND = wide_CPD.mean(axis=1)
    mean_ND /= np.linalg.norm(mean_ND, axis=1, keepdims=True)
    expected = {(ids[a], ids[b]) for a, b in np.argwhere(np.triu(mean_ND @ mean_ND.T, 1) >= 0.9)}
    assert {pair[:2] for pair in vectors.pairs(0.9)} == expected != set()


def test_what_cannot_be_searched_is_named(tmp_path: Path, embedded: Dataset) -> None:
    with pytest.raises(UserError, match="no clip has vectors; name a network"):
        search(make_dataset(tmp_path / "plain"), "x", None)
    with pytest.raises(UserError, match="neither the id of an embedded clip nor a picture"):
        search(embedded, "nothing", None)
    folder = embedded.folders()[1]
    onnx.picture_encoder(tmp_path / "other.onnx", seed=5)
    perform(Embed(EmbedSettings(pictures=str(tmp_path / "other.onnx"))), folder)
    with pytest.raises(UserError, match="were embedded by different networks"):
        search(embedded, "nothing", None)
