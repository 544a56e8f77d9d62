"""Colour tags of a film, and the mapping of HDR (PQ, HLG) and BT.2020 pictures to SDR BT.709.

Tags come from the first decoded picture, which has the tags of the bitstream. A transfer or primaries that the
bitstream leaves open come from the container, where people set them afterwards (mkvpropedit). Only the transfer and the
gamut are decided here, once for the film. The `Scaler` applies the matrix and the range of each picture.

Pictures are mapped in two steps around the scaling:

    recoding(transfer)            # libavfilter filters: each channel to a power code, before the picture is scaled
    to_sdr(coded_HWC, transfer)   # numpy: the scaled picture to BT.709, 8 bit

Scaling averages codes. SDR pictures are scaled in their own code, v = L^(1/2.4), and a mapped film must look like its
SDR twin, so the code must be close to that. PQ is not: a pixel half black, half white averages to 4% of the light of
white, where SDR gives 19%, and every ink line grows thicker. `recoding` therefore turns the code of each channel into
a power code at full size, a table lookup. Steps that mix channels cost ten times as much a pixel, and follow at the
small size. The power code is SDR's code; for HLG it is S^(1/2), which is the same for gray, as L is in proportion to
S^1.2.

E is a code value in 0..1, L the light of a channel as a multiple of diffuse white, which lies at 203 cd/m2 (BT.2408).

    PQ  (SMPTE ST 2084)   L = 10000/203 (max(E^(1/m2) - c1, 0) / (c2 - c3 E^(1/m2)))^(1/m1)
                          m1 = 0.1593017578125  m2 = 78.84375  c1 = 0.8359375  c2 = 18.8515625  c3 = 18.6875
    HLG (ARIB STD-B67)    S = E^2 / 3                      for E <= 1/2      light of the scene
                          S = (exp((E - c) / a) + b) / 12  for E > 1/2
                          a = 0.17883277  b = 0.28466892  c = 0.55991073
                          L = 1000/203 Y^0.2 S             Y = 0.2627 R + 0.6780 G + 0.0593 B of S   (BT.2100 OOTF)
    SDR (BT.1886)         L = E^2.4

Then a matrix on L takes BT.2020 primaries to BT.709. Then comes the tone curve, in SDR's code v = m^(1/2.4) of the
largest channel m, so that the ratio of the channels, the hue, stays. Like the knee of BT.2390, it changes nothing below
k and bends towards 1 at 1000 cd/m2:

    v' = v                                      for v <= k = 0.95
    v' = k + (1 - k) t (1 + t / T^2) / (1 + t)  for v > k,    t = (v - k) / (1 - k),    T = t at 1000 cd/m2

Diffuse white becomes 0.975; SDR of BT.2020 has no highlights and skips the curve. Last, values outside 0..1 are
clipped, and E = L^(1/2.4) is rounded to 8 bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from av.sidedata.sidedata import Type
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from pipeline.core.records import Film, RecordError, Transfer
from pipeline.video.containers import Picture

VERSION = 1
"""Version number of the mapping, raised by hand whenever it would give other pictures."""
DIFFUSE_WHITE, PEAK = 203.0, 1000.0
"""Light of SDR's white, and the light mapped to the brightest white, cd/m2."""
GAMMA = 2.4
KNEE = 0.95
CODES = 65536
FULL_LIGHT = {"pq": 10_000 / DIFFUSE_WHITE, "hlg": 1.0, "bt2020": 1.0}
"""Light of the highest power code, by transfer: of the display, for HLG of the scene."""
POWER = {"pq": GAMMA, "hlg": 2.0, "bt2020": GAMMA}
LUMINANCE = np.array([0.2627, 0.6780, 0.0593], np.float32)
"""Luminance of BT.2020's red, green and blue."""
TO_BT709 = np.array(
    [[1.660491, -0.587641, -0.072850], [-0.124550, 1.132900, -0.008349], [-0.018151, -0.100579, 1.118730]], np.float32
)
"""Linear RGB of BT.2020 to linear RGB of BT.709 (BT.2087)."""

_EXPRESSIONS = {
    "pq": "st(0,pow(min(val/maxval,1),1/78.84375));"
    "maxval*pow(max(ld(0)-0.8359375,0)/(18.8515625-18.6875*ld(0)),1/0.1593017578125/2.4)",
    "hlg": "st(0,min(val/maxval,1));"
    "maxval*pow(if(lte(ld(0),0.5),ld(0)*ld(0)/3,(exp((ld(0)-0.55991073)/0.17883277)+0.28466892)/12),1/2)",
}
"""PQ and HLG codes to power codes, in the language of libavfilter."""

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
        """The tags of a decoded picture, with this transfer and these primaries if it lacks them."""
        transfer, primaries = int(picture.color_trc), int(picture.color_primaries)
        return ColourTags(
            self.transfer if transfer == UNSPECIFIED else transfer,
            self.primaries if primaries == UNSPECIFIED else primaries,
            int(picture.colorspace),
        )

    @property
    def coding(self) -> Transfer:
        """Colour coding that the tags stand for; HDR counts as BT.2020 in any case."""
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
    """Raise a RecordError for Dolby Vision without a base layer, or an exotic colour matrix."""
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

    The fields in order, with their bits (ETSI GS CCM 001, 5.3.2):

        prefix 8, type 6, format 11, profile 4, level 4, sequence info present 1, chroma filter 1, coefficient type 2,
        [exponent: Exp-Golomb, if the coefficient type is 0], normalised index 2, full range 1

    Profile 5 stores profile 0 here, and full range. Profiles 7 and 8 have a base layer and store profile 1.
    """
    bits = "".join(f"{byte:08b}" for byte in unit[:16])
    profile, type_at, exponent_at = bits[25:29], 35, 37
    zeros = len(bits[exponent_at:]) - len(bits[exponent_at:].lstrip("0"))
    exponent_bits = 2 * zeros + 1 if bits[type_at:exponent_at] == "00" else 0
    return profile == "0000" and bits[33:34] == "1" and bits[exponent_at + exponent_bits + 2 :][:1] == "1"


def is_mapped(transfer: Transfer | None) -> bool:
    """Return True if pictures of this transfer must be mapped to SDR BT.709."""
    return transfer in FULL_LIGHT


def matrix_of(picture: VideoFrame) -> int:
    """Return the tagged matrix; a number that libswscale rejects, such as a reserved one, counts as no tag."""
    return int(picture.colorspace) if picture.colorspace in MATRICES else UNSPECIFIED


def is_hd(width: int, height: int) -> bool:
    """Return True if players treat untagged pictures of this size as BT.709, and smaller pictures as BT.601."""
    return max(width, height) >= 1280 or min(width, height) > 576


def mapping_of(film: Film) -> dict[str, Any]:
    """The mapping as an ingredient of results made from the film's pictures; empty if it needs none."""
    if is_mapped(film.transfer):
        return {"colour": f"{film.transfer} to bt709, {VERSION}"}
    is_cropped_hd = is_hd(film.width, film.height) and min(film.width, film.height) < 720  # such as 1280x536
    if film.transfer == "untagged" and is_cropped_hd:
        return {"colour": f"untagged is bt709, {VERSION}"}
    return {}


def recoding(transfer: Transfer) -> list[tuple[str, str]]:
    """The filters that turn the channels of an RGB picture into power codes; none if they are that already."""
    expression = _EXPRESSIONS.get(transfer)
    return [("lutrgb", ":".join(f"{channel}='{expression}'" for channel in "rgb"))] if expression else []


def to_sdr(coded_HWC: NDArray[np.uint16], transfer: Transfer) -> Picture:
    """Map a picture of 16-bit power codes, RGB of BT.2020, to SDR BT.709: BGR uint8."""
    light_HWC = np.take(_light_of_codes(transfer), coded_HWC)
    if transfer == "hlg":
        luminance_HW = np.asarray(cv2.transform(light_HWC, LUMINANCE[None]), np.float32)
        light_HWC *= np.take(_ootf_gains(), _indices(luminance_HW))[..., None]
    light_HWC = np.asarray(cv2.transform(light_HWC, TO_BT709[::-1]), np.float32)
    if transfer != "bt2020":
        largest_HW = np.asarray(cv2.max(cv2.max(*cv2.split(light_HWC)[:2]), light_HWC[..., 2]), np.float32)
        light_HWC *= np.take(_tone_gains(), _indices(largest_HW * (DIFFUSE_WHITE / PEAK)))[..., None]
    return np.take(_sdr_codes(), _indices(light_HWC))


def _indices(light: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Index of light, 0..1, in a table of 16 bit: its root, which leaves enough entries to dark tones.

    Tables take a fifth of the time of powers.
    """
    return np.asarray(cv2.sqrt(np.clip(light, 0, 1)) * np.float32(CODES - 1), np.uint16)


@lru_cache
def _light_of_codes(transfer: Transfer) -> NDArray[np.float32]:
    codes = np.arange(CODES) / (CODES - 1)
    return np.asarray(FULL_LIGHT[transfer] * codes ** POWER[transfer], np.float32)


@lru_cache
def _ootf_gains() -> NDArray[np.float32]:
    """L / S of HLG by luminance."""
    return np.asarray(PEAK / DIFFUSE_WHITE * _lights() ** 0.2, np.float32)


@lru_cache
def _tone_gains() -> NDArray[np.float32]:
    """Factor by which the tone curve lowers all channels, by the largest of them, 1000 cd/m2 last; 1 below the knee."""
    largest = PEAK / DIFFUSE_WHITE * _lights()
    value = largest ** (1 / GAMMA)
    top = ((PEAK / DIFFUSE_WHITE) ** (1 / GAMMA) - KNEE) / (1 - KNEE)
    over = np.maximum(0, (value - KNEE) / (1 - KNEE))
    bent = np.minimum(value, KNEE) + (1 - KNEE) * over * (1 + over / top**2) / (1 + over)
    return np.asarray((bent / value) ** GAMMA, np.float32)


@lru_cache
def _sdr_codes() -> Picture:
    return np.asarray(np.round(255 * _lights() ** (1 / GAMMA)), np.uint8)


def _lights() -> NDArray[np.float64]:
    """Light of each index of `_indices`."""
    return ((np.arange(CODES) + 0.5) / CODES) ** 2
