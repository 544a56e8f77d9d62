"""Colour tags: the coding read from them, films refused for them, and Dolby Vision's reference processing units."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from pipeline.video.colour_tags import ColourTags, is_profile_5
from pipeline.video.containers import Picture
from tests.support.media.colour_films import write_coded
from tests.support.media.probed_films import probed, refusal


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


def test_reserved_numbers_are_no_tags() -> None:
    assert ColourTags(transfer=3, primaries=3, matrix=3).coding == "untagged"
    assert ColourTags(transfer=99, primaries=99, matrix=99).warnings(8) == []


@pytest.mark.parametrize(("matrix", "name"), [(8, "YCgCo"), (14, "ICtCp")])
def test_a_matrix_that_cannot_be_converted_is_refused(tmp_path: Path, matrix: int, name: str) -> None:
    path = write_coded(tmp_path / "film.mkv", pictures(), "709 10 bit", tags=(9, 16, matrix))
    assert refusal(path).startswith(f"its colours are stored as {name}; convert it to BT.709 first")


# --- Dolby Vision --------------------------------------------------------------------------------------------------


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


def test_a_codec_tag_of_dolby_vision_is_refused(tmp_path: Path) -> None:
    path = write_coded(tmp_path / "film.mp4", pictures(), "709 10 bit", tags=(2, 2, 2))
    content = path.read_bytes()
    assert content.count(b"hev1") == 1
    path.write_bytes(content.replace(b"hev1", b"dvh1"))
    assert refusal(path).startswith("Dolby Vision without a base layer")


def test_a_unit_that_breaks_off_is_not_profile_5() -> None:
    unit = processing_unit(profile=0, full_range=1)
    assert is_profile_5(unit)
    assert [is_profile_5(unit[:length]) for length in range(7)] == [False] * 7
