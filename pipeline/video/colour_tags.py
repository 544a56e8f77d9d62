"""Colour tags of a film: transfer, primaries and matrix read to one `Transfer`; Dolby Vision without a base layer.

Tags come from the first decoded picture, which has those of the bitstream. A transfer or primaries that the bitstream
leaves open come from the container, where people set them afterwards (mkvpropedit). Only the transfer and the gamut are
decided here, once for the film; the matrix and the range are those of each picture, and applied by the `Scaler`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from av.sidedata.sidedata import Type
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from pipeline.core.records import RecordError, Transfer

RGB, UNSPECIFIED, BT2020 = 0, 2, 9
"""FFmpeg's numbers; BT.2020's primaries and its matrix have the same."""
HDR: dict[int, Transfer] = {16: "pq", 18: "hlg"}
LOGARITHMIC = (9, 10)
NOT_GAMMA = {8: "linear", **dict.fromkeys(LOGARITHMIC, "logarithmic"), 17: "SMPTE ST 428"}
"""Transfers unlike the gamma of SDR."""
PRIMARIES = {1: "BT.709", 4: "BT.470 M", 5: "BT.470 BG", 6: "SMPTE 170M", 7: "SMPTE 240M", 11: "P3", 12: "P3 D65"}
MATRICES = {RGB: "RGB", 1: "BT.709", 4: "FCC", 5: "BT.601", 6: "BT.601", 7: "SMPTE 240M", BT2020: "BT.2020"}
UNSUPPORTED_MATRICES = {
    8: "YCgCo", 10: "BT.2020 with constant luminance", 11: "SMPTE ST 2085", 12: "a matrix derived from its primaries",
    13: "a matrix derived from its primaries", 14: "ICtCp", 15: "IPT-C2", 16: "YCgCo-Re", 17: "YCgCo-Ro",
}  # fmt: skip
"""Matrices that libswscale does not convert."""
DOLBY_VISION_TAGS = ("dvh1", "dvhe", "dav1")
"""Codec tags of MP4 for Dolby Vision that ordinary players must not show."""
CONVERT = "convert it to BT.709 first, for example with FFmpeg's filter libplacebo"


@dataclass(frozen=True)
class ColourTags:
    """Colour tags as FFmpeg's numbers."""

    transfer: int
    primaries: int
    matrix: int

    @classmethod
    def of_stream(cls, context: VideoCodecContext) -> ColourTags:
        """The tags of the container, before anything is decoded."""
        return cls(int(context.color_trc), int(context.color_primaries), int(context.colorspace))

    def seen_in(self, picture: VideoFrame) -> ColourTags:
        """The tags of a decoded picture, with this transfer and these primaries where it has none."""
        transfer, primaries = int(picture.color_trc), int(picture.color_primaries)
        return ColourTags(
            self.transfer if transfer == UNSPECIFIED else transfer,
            self.primaries if primaries == UNSPECIFIED else primaries,
            int(picture.colorspace),
        )

    @property
    def coding(self) -> Transfer:
        """Colour coding that the tags stand for; HDR is that of BT.2020 in any case."""
        if self.transfer in HDR:
            return HDR[self.transfer]
        if {self.primaries, self.matrix} <= {BT2020, UNSPECIFIED} and BT2020 in (self.primaries, self.matrix):
            return "bt2020"
        return "bt709" if self.matrix in MATRICES else "untagged"

    def warnings(self, bit_depth: int) -> list[str]:
        """Sentences about tags that contradict each other or are not followed."""
        hdr = {"pq": "PQ", "hlg": "HLG"}.get(self.coding)
        matrix = None if self.matrix in (RGB, BT2020) else MATRICES.get(self.matrix)
        against = " and ".join(dict.fromkeys(name for name in (PRIMARIES.get(self.primaries), matrix) if name))
        in_part = self.coding == "bt709" and BT2020 in (self.primaries, self.matrix)
        texts = {
            f"contradictory colour tags: {hdr} with {against}; taken as BT.2020": hdr and against,
            f"contradictory colour tags: BT.2020 with {against}; taken as BT.709": in_part,
            f"{hdr} in {bit_depth} bit: soft gradients will show steps": hdr and bit_depth < 10,
            f"its colour tags name a {NOT_GAMMA.get(self.transfer)} transfer; taken as SDR": self.transfer in NOT_GAMMA,
        }
        return [text for text, applies in texts.items() if applies]


def check_colours(picture: VideoFrame, tags: ColourTags, codec: str, codec_tag: str, record_id: str) -> None:
    """Refuse a film whose colours cannot be converted.

    Raises:
        RecordError: Dolby Vision without a base layer, or an exotic colour matrix.
    """
    unit = _dolby_vision_unit(picture) if codec == "hevc" else b""
    if is_profile_5(unit) if unit else codec_tag in DOLBY_VISION_TAGS:
        raise RecordError(record_id, f"Dolby Vision without a base layer (profile 5); {CONVERT}")
    if tags.matrix in UNSUPPORTED_MATRICES:
        raise RecordError(record_id, f"its colours are stored as {UNSUPPORTED_MATRICES[tags.matrix]}; {CONVERT}")


def _dolby_vision_unit(picture: VideoFrame) -> bytes:
    """Return Dolby Vision's reference processing unit of a HEVC picture, without its header; empty: it has none."""
    try:
        side_data: Any = picture.side_data  # its stub knows one kind only
    except ValueError:  # PyAV 18 raises it if a picture has any side data of a kind that it does not know
        return b""
    return bytes(side_data[Type.DOVI_RPU_BUFFER]) if Type.DOVI_RPU_BUFFER in side_data else b""


def is_profile_5(unit: bytes) -> bool:
    """Return True if a reference processing unit is of profile 5: its base layer is IPT at full range.

    ETSI GS CCM 001, 5.3.2: prefix 8 bits, type 6, format 11, profile 4, level 4, sequence info present 1, chroma
    filter 1, coefficient type 2, [exponent: Exp-Golomb, for type 0], normalised index 2, full range 1. Profile 5 has
    profile 0 here and full range; profiles 7 and 8, which have a base layer, have profile 1.
    """
    bits = "".join(f"{byte:08b}" for byte in unit[:16])
    profile, type_at, exponent_at = bits[25:29], 35, 37
    zeros = len(bits[exponent_at:]) - len(bits[exponent_at:].lstrip("0"))
    exponent_bits = 2 * zeros + 1 if bits[type_at:exponent_at] == "00" else 0
    return profile == "0000" and bits[33:34] == "1" and bits[exponent_at + exponent_bits + 2 :][:1] == "1"
