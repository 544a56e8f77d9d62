"""Embeddings of clips: known boxes and colours through small networks of the published shapes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from pipeline.core.embed_settings import EmbedSettings
from pipeline.core.errors import UserError
from pipeline.core.measurements import Box, Embedded, FoundFigure
from pipeline.core.progress import silent
from pipeline.core.records import Clip
from pipeline.core.stage import make, perform, why_stale
from pipeline.stages.embed import Embed
from pipeline.stages.embedding import network_files
from pipeline.stages.embedding.network_files import OWN, NetworkFiles, NotHereError, check_pins, find_network
from pipeline.stages.embedding.networks import OnnxPictureEncoder, Preparation, YoloDetector
from pipeline.video.clip_files import read_clip
from tests.support import onnx_networks as onnx
from tests.support.datasets.made_dataset import make_dataset

BOX = (32, 32, 32, 48, 0.9)
"""The middle half of the width, and three quarters of the height of a picture of 64x64."""


def files_of(path: Path) -> NetworkFiles:
    return find_network(str(path), "pictures", fetch=False)


def networks(root: Path) -> EmbedSettings:
    (root / "clip").mkdir(parents=True)
    onnx.processor(root / "clip")
    onnx.picture_encoder(root / "clip" / "onnx" / "vision_model.onnx")
    onnx.detector(root / "person" / "model.onnx", [BOX, (32, 32, 30, 46, 0.5), (8, 8, 8, 8, 0.2)])
    onnx.picture_encoder(root / "ccip" / "model_feat.onnx", side=24, names=("input", "output"), seed=1)
    named = {"pictures": root / "clip", "figures": root / "person", "characters": root / "ccip"}
    return EmbedSettings.model_validate({key: str(path) for key, path in named.items()})


def test_the_network_of_the_package_needs_no_hub_and_tells_pictures_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = find_network(OWN, "pictures", fetch=False)
    assert found.network.stat().st_size < 4_000_000
    dice = np.random.default_rng(0)
    scene = np.full((120, 180, 3), (200, 160, 90), np.uint8)
    scene[40:100, 60:110] = 40, 40, 220
    moved = np.roll(scene, 30, axis=1)
    other = dice.integers(0, 256, (480, 720, 3)).astype(np.uint8)
    alike = (vectors_ND := OnnxPictureEncoder(found).vectors([scene, moved, other])) @ vectors_ND.T
    assert np.allclose(np.diagonal(alike), 1, atol=1e-5)
    assert alike[0, 1] > 0.6 > 0.3 > alike[0, 2]
    with pytest.raises(UserError, match="own: no such file or folder"):
        find_network(OWN, "figures", fetch=False)


def test_pictures_and_figures_of_a_film_are_embedded_once(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path / "data").folders()[0]
    stage = Embed(networks(tmp_path), threads=2)
    assert perform(stage, folder)
    clips, rows = folder.read("clips", Clip), folder.read("embedded", Embedded)
    assert [row.clip_id for row in rows] == [clip.clip_id for clip in clips]
    assert {row.frames for row in rows} == {(2, 8, 13)}
    pictures_CPD, figures_ND = np.load(folder.path / "pictures.npy"), np.load(folder.path / "figures.npy")
    assert (pictures_CPD.shape, pictures_CPD.dtype) == ((len(clips), 3, onnx.SIZE), np.float16)
    assert np.allclose(np.linalg.norm(pictures_CPD.astype(float), axis=2), 1, atol=1e-3)
    encoder = OnnxPictureEncoder(find_network(stage.settings.pictures or "", "pictures", fetch=False))
    frames_THWC = read_clip(folder.clip_path(clips[3].clip_id))
    assert np.allclose(encoder.vectors(frames_THWC[[2, 8, 13]]), pictures_CPD[3], atol=1e-3)
    figures = folder.read("figures", FoundFigure)
    assert len(figures) == len(figures_ND) == 3 * len(clips)
    width, height = clips[0].width, clips[0].height
    assert figures[0].box == Box(left=width // 4, top=height // 8, right=width * 3 // 4, bottom=height * 7 // 8)
    assert (figures[0].clip_id, figures[0].frame, figures[0].label) == (clips[0].clip_id, 2, "person")
    assert not perform(stage, folder)


def test_other_weights_and_no_others_make_a_film_stale(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path / "data").folders()[0]
    settings = networks(tmp_path)
    perform(Embed(settings), folder)
    (tmp_path / "clip").rename(tmp_path / "moved")
    moved = settings.model_copy(update={"pictures": str(tmp_path / "moved")})
    assert why_stale(Embed(moved), folder) is None
    onnx.picture_encoder(tmp_path / "moved" / "onnx" / "vision_model.onnx", seed=7)
    assert str(why_stale(Embed(moved), folder)).startswith("changed: embed.pictures")


def test_a_detector_alone_stores_boxes_without_vectors(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path / "data").folders()[0]
    onnx.detector(tmp_path / "model.onnx", [])
    perform(Embed(EmbedSettings(figures=str(tmp_path / "model.onnx"))), folder)
    assert folder.read("figures", FoundFigure) == []
    assert not list(folder.path.glob("*.npy"))


@pytest.mark.parametrize("end_to_end", [False, True])
def test_the_best_of_many_boxes_stay(tmp_path: Path, end_to_end: bool) -> None:
    spread = [(4 + 4 * x, 4 + 4 * y, 3, 3, 0.4 + (x + 14 * y) / 400) for x in range(14) for y in range(14)]
    path = onnx.detector(tmp_path / "model.onnx", spread, end_to_end=end_to_end)
    found = YoloDetector(files_of(path), 0.3).figures(np.zeros((128, 192, 3), np.uint8))
    assert len(found) == 32
    assert [one.score for one in found] == pytest.approx(sorted((row[4] for row in spread), reverse=True)[:32])
    assert found[0].box == (164, 109, 172, 115)


def test_a_picture_is_prepared_as_the_processor_of_transformers_does(tmp_path: Path) -> None:
    onnx.processor(tmp_path)
    path = onnx.picture_encoder(tmp_path / "model.onnx")
    random_HWC = np.random.default_rng(0).integers(0, 255, (48, 72, 3), np.uint8)
    input_CHW = Preparation.of(files_of(path), (onnx.SIDE, onnx.SIDE)).of_picture(random_HWC)
    scaled = Image.fromarray(random_HWC[..., ::-1]).resize((48, 32), Image.Resampling.BICUBIC).crop((8, 0, 40, 32))
    assert np.allclose(input_CHW, (np.asarray(scaled).transpose(2, 0, 1) / 255 - 0.5) / 0.5, atol=1e-6)


@pytest.mark.parametrize("batch", [1, "batch"])
def test_a_network_may_take_one_picture_at_a_time(tmp_path: Path, batch: int | str) -> None:
    path = onnx.picture_encoder(tmp_path / "model.onnx", batch=batch, side="side")
    pictures = [np.full((20, 30, 3), value, np.uint8) for value in (0, 200)]
    found_ND = OnnxPictureEncoder(files_of(path)).vectors(pictures)
    assert found_ND.shape == (2, onnx.SIZE)
    assert not np.allclose(found_ND[0], found_ND[1], atol=0.1)


def test_networks_of_other_shapes_are_named(tmp_path: Path) -> None:
    words = onnx.word_encoder(tmp_path / "words", np.ones((5, onnx.SIZE), np.float32))
    text = words / "onnx" / "text_model.onnx"
    with pytest.raises(UserError, match=r"takes input_ids \('batch', 'length'\), not pictures"):
        OnnxPictureEncoder(files_of(text))
    boxes = onnx.detector(tmp_path / "boxes.onnx", [BOX])
    with pytest.raises(UserError, match=r"gives output0 \(1, 5, 1\), and no vectors"):
        OnnxPictureEncoder(files_of(boxes))
    encoder = onnx.picture_encoder(tmp_path / "clip" / "model.onnx")
    with pytest.raises(UserError, match="no YOLO detector, its metadata name no classes"):
        YoloDetector(files_of(encoder), 0.3)
    onnx.processor(tmp_path / "clip", crop_size=48, size=48)
    with pytest.raises(UserError, match=r"takes pictures of 32x32, but its preprocessor_config\.json makes 48x48"):
        OnnxPictureEncoder(files_of(encoder))
    (tmp_path / "text.onnx").write_text("no network")
    with pytest.raises(UserError, match=r"text.onnx: cannot be read as an ONNX network"):
        OnnxPictureEncoder(files_of(tmp_path / "text.onnx"))


def test_a_missing_network_is_named_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such file or folder; `\[embed\] figures` names one"):
        find_network(str(tmp_path / "gone"), "figures", fetch=False)
    with pytest.raises(UserError, match=r"has no model\.onnx; name the ONNX file itself"):
        find_network(str(tmp_path), "figures", fetch=False)
    with pytest.raises(NotHereError, match="is not in the hub's cache on this machine; a build fetches it"):
        find_network("nobody/nothing-1234/x", "figures", fetch=False)


def test_a_network_of_the_hub_is_pinned_at_the_first_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    path = onnx.detector(onnx.cached(tmp_path / "hub", "person"), [BOX])
    dataset = make_dataset(tmp_path / "data")
    stage = Embed(EmbedSettings(figures="owner/name/person"), fetch=False)
    found = stage.networks()["figures"]
    assert (found.network, found.from_hub) == (path, True)
    check_pins(dataset.root, [found], record=False)
    assert not (dataset.root / network_files.PINS).exists()
    check_pins(dataset.root, [found], record=True)
    assert perform(stage, dataset.folders()[0])
    pins = json.loads((dataset.root / network_files.PINS).read_text())
    assert pins == {"owner/name/person model.onnx": {"sha256": found.sha256, "bytes": path.stat().st_size}}
    onnx.detector(path, [BOX, BOX])
    with pytest.raises(UserError, match=r"person: model\.onnx is not the file that this dataset was made with"):
        perform(stage, dataset.folders()[1])


def test_a_hub_that_is_down_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = "huggingface_hub.constants."
    down = "http://127.0.0.1:9"
    template = f"{down}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    values = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": False, "ENDPOINT": down}
    for name, value in {**values, "HUGGINGFACE_CO_URL_TEMPLATE": template}.items():
        monkeypatch.setattr(hub + name, value)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between attempts
    with pytest.raises(UserError, match=r"the hub cannot be reached for person/model\.onnx; fetch it on a machine"):
        find_network("owner/name/person", "figures", fetch=True)


def test_words_of_another_network_are_rejected(tmp_path: Path) -> None:
    """Vectors of one size would be compared, and mean nothing."""
    one = onnx.picture_encoder(tmp_path / "one" / "vision_model.onnx")
    onnx.word_encoder(tmp_path / "one", np.ones((5, onnx.SIZE), np.float32))
    other = onnx.word_encoder(tmp_path / "other", np.ones((5, onnx.SIZE), np.float32))
    EmbedSettings(pictures=str(one), words=str(one.parent))
    EmbedSettings(pictures=str(one.parent), words=str(one.parent / "onnx" / "text_model.onnx"))
    EmbedSettings(pictures="owner/name/visual", words="owner/name/textual")
    for pictures, words in ((str(one), str(other)), ("owner/clip", "owner/siglip"), ("owner/clip", str(other))):
        with pytest.raises(ValidationError, match="words and pictures are halves of one network"):
            EmbedSettings(pictures=pictures, words=words)


def test_the_same_film_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = make_dataset(tmp_path / "data").folders()[0]
    stage = Embed(networks(tmp_path), threads=3)
    results = []
    for _ in range(2):
        make(stage, folder, silent)
        record = folder.stage_record("embed")
        results.append(record and record.result)
    assert results[0] == results[1]
