"""Colour: films of one set of SDR pictures in every coding give clips of the same colours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from pipeline.core.config import ClipSettings
from pipeline.video.clip_files import read_clip
from pipeline.video.containers import Picture
from pipeline.video.film_reader import FilmReader
from pipeline.video.scaling import Geometry, Scaler, gray_codes
from tests.support.media.colour_films import WHITE, hlg_codes, pq_codes, write_coded
from tests.support.media.cut_films import cut
from tests.support.media.probed_films import probed

PATCHES = (
    (200, 60, 40), (40, 60, 200), (60, 180, 60), (20, 200, 230), (200, 40, 180), (160, 200, 240), (90, 30, 30),
    (235, 235, 235),
)  # fmt: skip
WIDTH, HEIGHT = 384, 216
SMALL = ClipSettings(width=192, height=108)


def chart(frames: int, shift: int = 1) -> Iterator[Picture]:
    """Pictures of a gray gradient, gray steps, saturated patches and thin ink lines that move by `shift`."""
    picture = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    picture[:72] = np.linspace(0, 235, WIDTH).astype(np.uint8)[None, :, None]
    picture[72:108] = np.repeat(np.arange(16) * 15, WIDTH // 16).astype(np.uint8)[None, :, None]
    picture[108:] = np.repeat(np.array(PATCHES, np.uint8), WIDTH // 8, axis=0)
    for number in range(frames):
        inked = picture.copy()
        for left in range(0, WIDTH, 48):
            ends = (left + number * shift, HEIGHT - 4), (left + 20 + number * shift, 114)
            cv2.line(inked, *ends, (10, 10, 10), 2, cv2.LINE_AA)
        yield inked


def scaled(path: Path, transfer: str | None, size: tuple[int, int], form: str = "clip") -> Picture:
    """First frame of a film, whole, at a size: BGR."""
    with FilmReader(path) as reader:
        picture = next(reader.frames()).picture
    geometry = Geometry(0, 0, picture.width, picture.height, picture.width, picture.height)
    shown = Scaler(geometry, size, "stretch", form, transfer)(picture)  # type: ignore[arg-type]
    if form == "detect":
        return shown.to_ndarray()
    return np.asarray(cv2.cvtColor(shown.to_ndarray(), cv2.COLOR_YUV2BGR_I420), np.uint8)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    """Clip picture of the chart from an ordinary film: 8 bit, BT.709, limited range."""
    path = tmp_path_factory.mktemp("plain") / "film.mp4"
    return scaled(write_coded(path, chart(1), "709"), "bt709", (192, 108))


@pytest.mark.parametrize("name", ["pq", "hlg", "bt2020", "601", "601 full", "709 full", "709 10 bit", "untagged 601"])
def test_every_coding_gives_the_colours_of_the_ordinary_film(tmp_path: Path, plain: Picture, name: str) -> None:
    path = write_coded(tmp_path / "film.mp4", chart(1), name)
    difference = scaled(path, probed(path).transfer, (192, 108)).astype(int) - plain
    assert np.abs(difference).mean() <= 2
    assert np.abs(difference.mean(axis=(0, 1))).max() <= 1  # no cast


@pytest.mark.parametrize("name", ["pq", "hlg"])
def test_hdr_taken_as_sdr_would_be_seen(tmp_path: Path, plain: Picture, name: str) -> None:
    path = write_coded(tmp_path / "film.mp4", chart(1), name)
    assert np.abs(scaled(path, "bt709", (192, 108)).astype(int) - plain).mean() > 10


def test_clips_of_an_hdr_film_are_mapped(tmp_path: Path) -> None:
    clips = {}
    for name in ("709", "pq"):
        made, result = cut(tmp_path / name, write_coded(tmp_path / f"{name}.mp4", chart(52), name), SMALL)
        [clip] = result.clips
        clips[name] = read_clip(made.clip_path(clip.clip_id)).astype(int)
    assert np.abs(clips["pq"] - clips["709"]).mean() <= 3


@pytest.mark.parametrize("name", ["pq", "hlg", "bt2020"])
@pytest.mark.parametrize("form", ["clip", "detect"])
def test_patches_keep_their_colours(tmp_path: Path, name: str, form: str) -> None:
    path = write_coded(tmp_path / "film.mkv", chart(1), name)
    shown = scaled(path, name, (WIDTH // 2, HEIGHT // 2), form)[64:96, 20::24]
    assert np.abs(np.median(shown, axis=0) - PATCHES).max() <= 5


def test_ink_lines_keep_their_weight(tmp_path: Path) -> None:
    """Pictures are scaled in a code like SDR's; in that of PQ, these lines would come out 29 levels darker."""
    picture = np.full((240, 480, 3), 230, np.uint8)
    picture[:, ::6] = 10
    light = {}
    for name in ("709 10 bit", "pq", "hlg"):
        path = write_coded(tmp_path / f"{name}.mkv", [picture], name)
        light[name] = scaled(path, name, (160, 80))[20:60, 20:140].mean()
    assert light["pq"] == pytest.approx(light["709 10 bit"], abs=3)
    assert light["hlg"] == pytest.approx(light["709 10 bit"], abs=3)


@pytest.mark.parametrize(("name", "codes"), [("pq", pq_codes), ("hlg", hlg_codes)])
def test_white_and_highlights(name: str, codes: object) -> None:
    """Diffuse white is nearly SDR's white; brighter light rises further, up to 1000 cd/m2, and black stays black."""
    assert callable(codes)
    light = np.array([0.0, 0.01 * WHITE, 0.5 * WHITE, WHITE, 2 * WHITE, 1000.0])
    stored = np.round(255 * codes(np.repeat(light[:, None], 3, axis=1)))[:, 0].astype(int)
    black, dark, half, white, bright, peak = gray_codes(name)[stored].astype(int)  # type: ignore[arg-type]
    assert black == 0
    assert (dark, half) == (pytest.approx(255 * 0.01 ** (1 / 2.4), abs=3), pytest.approx(255 * 0.5 ** (1 / 2.4), abs=3))
    assert 245 <= white < bright < peak == 255


def test_the_same_film_gives_the_same_bytes(tmp_path: Path) -> None:
    path = write_coded(tmp_path / "film.mkv", chart(1), "pq")
    assert scaled(path, "pq", (192, 108)).tobytes() == scaled(path, "pq", (192, 108)).tobytes()


@pytest.mark.parametrize(
    ("size", "name"), [((1280, 536), "untagged 709"), ((640, 360), "untagged 601"), ((1024, 576), "untagged 601")]
)
def test_untagged_films_are_taken_by_size(tmp_path: Path, size: tuple[int, int], name: str) -> None:
    """A film of 1280x536 is HD without its borders."""
    picture = np.full((size[1], size[0], 3), (40, 60, 200), np.uint8)
    shown = scaled(write_coded(tmp_path / "film.mp4", [picture], name), "untagged", (192, 108))
    assert np.abs(shown[50, 90].astype(int) - (40, 60, 200)).max() <= 5


def test_yuvj_of_motion_jpeg_is_full_range(tmp_path: Path) -> None:
    picture = next(chart(1))
    with av.open(str(tmp_path / "film.avi"), "w") as container:
        stream = container.add_stream("mjpeg", rate=24, options={"qmin": "1", "qmax": "1"})
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuvj420p"
        frame = av.VideoFrame.from_ndarray(picture, format="bgr24").reformat(format="yuvj420p")
        container.mux([*stream.encode(frame), *stream.encode()])
    shown = scaled(tmp_path / "film.avi", "bt709", (WIDTH // 2, HEIGHT // 2))[64:96, 20::24]
    assert np.abs(np.median(shown, axis=0) - PATCHES).max() <= 8
