"""Colour: tags of a film, films refused for them, and clips of the same colours from SDR pictures in every coding."""

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
from tests.support.media.probed_films import probed, refusal

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


@pytest.mark.slow
def test_clips_of_an_hdr_film_are_mapped(tmp_path: Path) -> None:
    clips = {}
    for name in ("709", "pq"):
        made, result = cut(tmp_path / name, write_coded(tmp_path / f"{name}.mp4", chart(52), name), SMALL)
        [clip] = result.clips
        clips[name] = read_clip(made.clip_path(clip.clip_id)).astype(int)
    assert np.abs(clips["pq"] - clips["709"]).mean() <= 3


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


def pictures() -> Iterator[Picture]:
    noise = np.random.default_rng(0)
    for _ in range(6):
        yield noise.integers(0, 256, (64, 96, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "transfer"),
    [("pq", "pq"), ("hlg", "hlg"), ("bt2020", "bt2020"), ("601", "bt709"), ("untagged 709", "untagged")],
)
@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_the_coding_is_read_in_every_container(tmp_path: Path, name: str, transfer: str, suffix: str) -> None:
    film = probed(write_coded(tmp_path / f"film{suffix}", pictures(), name))
    assert (film.transfer, film.warnings) == (transfer, ())


def test_tags_that_only_the_container_has(tmp_path: Path) -> None:
    plain = write_coded(tmp_path / "plain.mkv", pictures(), "pq", tags=(2, 2, 2))
    with av.open(str(plain)) as given, av.open(str(tmp_path / "film.mkv"), "w") as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        assert isinstance(stream, av.VideoStream)
        stream.codec_context.color_primaries, stream.codec_context.color_trc = 9, 16
        for packet in given.demux(video=0):
            if packet.size:
                packet.stream = stream
                made.mux(packet)
    assert (probed(plain).transfer, probed(tmp_path / "film.mkv").transfer) == ("untagged", "pq")


@pytest.mark.parametrize(
    ("name", "tags", "transfer", "warning"),
    [
        ("pq", (1, 16, 1), "pq", "contradictory colour tags: PQ with BT.709; taken as BT.2020"),
        ("709", (1, 18, 1), "hlg", "contradictory colour tags: HLG with BT.709; taken as BT.2020"),
        ("709", (9, 1, 1), "bt709", "contradictory colour tags: BT.2020 with BT.709; taken as BT.709"),
        ("709", (9, 16, 9), "pq", "PQ in 8 bit: soft gradients will show steps"),
        ("709", (1, 8, 1), "bt709", "its colour tags name a linear transfer; taken as SDR"),
    ],
)
def test_odd_tags_are_warned_of(
    tmp_path: Path, name: str, tags: tuple[int, int, int], transfer: str, warning: str
) -> None:
    film = probed(write_coded(tmp_path / "film.mkv", pictures(), name, tags))
    assert film.transfer == transfer
    assert warning in film.warnings


@pytest.mark.parametrize(("matrix", "name"), [(8, "YCgCo"), (14, "ICtCp")])
def test_a_matrix_that_cannot_be_converted_is_refused(tmp_path: Path, matrix: int, name: str) -> None:
    path = write_coded(tmp_path / "film.mkv", pictures(), "709 10 bit", tags=(9, 16, matrix))
    assert refusal(path).startswith(f"its colours are stored as {name}; convert it to BT.709 first")


def golomb(value: int) -> str:
    return "0" * ((value + 1).bit_length() - 1) + f"{value + 1:b}"


def processing_unit(profile: int, full_range: int) -> bytes:
    """A reference processing unit with neutral curves, by ETSI GS CCM 001; `profile` is its own, 0 or 1."""
    header = f"{2:06b}{18:011b}{profile:04b}{0:04b}" + "1" + "0" + "00" + golomb(23) + "01" + str(full_range)
    depths = golomb(2) + golomb(2) + golomb(4) + "0" + "000" + "0" + "1"
    curve = golomb(0) + f"{0:010b}{1023:010b}"
    line = golomb(0) + golomb(0) + "0" + golomb(0) + "0" * 23 + golomb(1) + "0" * 23
    bits = header + depths + "0" + "0" + golomb(0) * 3 + curve * 3 + golomb(0) * 2 + line * 3
    payload = bytes(int(bits[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(bits), 8))
    return b"\x19" + payload + bytes(4) + b"\x80"


def with_unit(source: Path, path: Path, unit: bytes) -> Path:
    """Copy of an MP4 or Matroska film of HEVC with the unit at the end of every frame, as NAL unit of type 62."""
    escaped = b""
    for byte in unit:
        escaped += b"\x03" * (escaped[-2:] == b"\0\0" and byte <= 3) + bytes([byte])
    nal = b"\x7c\x01" + escaped
    with av.open(str(source)) as given, av.open(str(path), "w") as made:
        stream = made.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(video=0):
            if packet.size:
                grown = av.Packet(bytes(packet) + len(nal).to_bytes(4, "big") + nal)
                grown.pts, grown.dts, grown.time_base = packet.pts, packet.dts, packet.time_base
                grown.is_keyframe, grown.stream = packet.is_keyframe, stream
                made.mux(grown)
    return path


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_dolby_vision_without_a_base_layer_is_refused(tmp_path: Path, suffix: str) -> None:
    source = write_coded(tmp_path / "source.mp4", pictures(), "709 10 bit", tags=(2, 2, 2))
    path = with_unit(source, tmp_path / f"film{suffix}", processing_unit(profile=0, full_range=1))
    assert refusal(path).startswith("Dolby Vision without a base layer (profile 5); convert it to BT.709 first")


def test_dolby_vision_over_hdr10_is_used(tmp_path: Path) -> None:
    source = write_coded(tmp_path / "source.mp4", pictures(), "pq")
    film = probed(with_unit(source, tmp_path / "film.mkv", processing_unit(profile=1, full_range=0)))
    assert (film.transfer, film.warnings) == ("pq", ())
