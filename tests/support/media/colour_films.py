"""SDR pictures encoded as films of other colour codings, by formulas written out here anew: the truth of colour tests.

    write_coded(path, pictures, "pq")     # 10-bit HEVC with BT.2020 tags: diffuse white at 203 cd/m2
    write_coded(path, pictures, "601 full")

The formulas are the inverses, written from the standards: SDR display light by BT.1886, to BT.2020 by BT.2087, then
the inverse electro-optical function of ST 2084, or for HLG the inverse of BT.2100's OOTF and its OETF.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.video.containers import Picture

WHITE = 203.0
Light = NDArray[np.float64]


@dataclass(frozen=True)
class Coding:
    """Tags as FFmpeg's numbers, luma weights of red and blue, range, codec."""

    tags: tuple[int, int, int]
    """Primaries, transfer, matrix; 2 is unspecified."""
    weights: tuple[float, float]
    full: bool = False
    ten_bits: bool = False

    @property
    def encoder(self) -> str:
        return "libx265" if self.ten_bits else "libx264"


BT709_WEIGHTS, BT601_WEIGHTS, BT2020_WEIGHTS = (0.2126, 0.0722), (0.299, 0.114), (0.2627, 0.0593)
CODINGS = {
    "709": Coding((1, 1, 1), BT709_WEIGHTS),
    "709 full": Coding((1, 1, 1), BT709_WEIGHTS, full=True),
    "601": Coding((6, 6, 6), BT601_WEIGHTS),
    "601 full": Coding((6, 6, 6), BT601_WEIGHTS, full=True),
    "709 10 bit": Coding((1, 1, 1), BT709_WEIGHTS, ten_bits=True),
    "untagged 709": Coding((2, 2, 2), BT709_WEIGHTS),
    "untagged 601": Coding((2, 2, 2), BT601_WEIGHTS),
    "pq": Coding((9, 16, 9), BT2020_WEIGHTS, ten_bits=True),
    "hlg": Coding((9, 18, 9), BT2020_WEIGHTS, ten_bits=True),
    "bt2020": Coding((9, 14, 9), BT2020_WEIGHTS, ten_bits=True),
}


def write_coded(path: Path, pictures: Iterable[Picture], name: str, tags: tuple[int, int, int] | None = None) -> Path:
    """Encode SDR pictures, BGR HWC uint8, in a coding of `CODINGS`, under other tags if `tags` is given."""
    coding = CODINGS[name]
    options = {"x265-params": "log-level=none:pools=none:frame-threads=1:bframes=0"} if coding.ten_bits else {}
    with av.open(str(path), "w") as container:
        stream = container.add_stream(coding.encoder, rate=24, options={"preset": "ultrafast", "crf": "8", **options})
        assert isinstance(stream, av.VideoStream)
        stream.pix_fmt, stream.thread_count = "yuv420p10le" if coding.ten_bits else "yuv420p", 1
        context: Any = stream.codec_context
        context.color_primaries, context.color_trc, context.colorspace = tags or coding.tags
        context.color_range = 2 if coding.full else 1
        for number, picture_HWC in enumerate(pictures):
            if number == 0:
                stream.height, stream.width = picture_HWC.shape[:2]
            frame = _frame(_coded(picture_HWC[..., ::-1] / 255.0, name), coding)
            frame.pts, frame.time_base = number, Fraction(1, 24)
            frame.color_range = context.color_range
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def _coded(sdr_HWC: Light, name: str) -> Light:
    """Return the RGB code values, 0..1, of an SDR picture."""
    if CODINGS[name].weights != BT2020_WEIGHTS:
        return sdr_HWC
    to_bt2020 = np.array([[0.6274, 0.3293, 0.0433], [0.0691, 0.9195, 0.0114], [0.0164, 0.0880, 0.8956]])
    wide_HWC = sdr_HWC**2.4 @ to_bt2020.T
    if name == "pq":
        return pq_codes(WHITE * wide_HWC)
    return hlg_codes(WHITE * wide_HWC) if name == "hlg" else wide_HWC ** (1 / 2.4)


def pq_codes(light: Light) -> Light:
    """Inverse EOTF of ST 2084, cd/m2 to 0..1."""
    power = (light / 10_000) ** (2610 / 16384)
    ratio: Light = (3424 / 4096 + 2413 / 128 * power) / (1 + 2392 / 128 * power)
    return ratio ** (2523 / 32)


def hlg_codes(light_HWC: Light) -> Light:
    """Inverse OOTF and OETF of BT.2100, cd/m2 of a display of 1000 cd/m2 to 0..1."""
    display_HWC = light_HWC / 1000
    luminance = display_HWC @ [0.2627, 0.6780, 0.0593]
    scene_HWC = display_HWC * np.maximum(luminance, 1e-9)[..., None] ** (1 / 1.2 - 1)
    high = 0.17883277 * np.log(np.maximum(12 * scene_HWC - 0.28466892, 1e-9)) + 0.55991073
    return np.where(scene_HWC <= 1 / 12, np.sqrt(3 * scene_HWC), high)


def _frame(code_HWC: Light, coding: Coding) -> av.VideoFrame:
    """Code values to a yuv420p frame, chroma averaged over four pixels."""
    red, green, blue = np.moveaxis(code_HWC, -1, 0)
    of_red, of_blue = coding.weights
    luma = of_red * red + (1 - of_red - of_blue) * green + of_blue * blue
    chroma = [(blue - luma) / (2 - 2 * of_blue), (red - luma) / (2 - 2 * of_red)]
    levels = 4 if coding.ten_bits else 1
    low, span, chroma_span = (0, 255, 255) if coding.full else (16, 219, 224)
    height, width = luma.shape
    planes = [low + span * luma]
    planes += [
        128 + chroma_span * cv2.resize(c, (width // 2, height // 2), interpolation=cv2.INTER_AREA) for c in chroma
    ]
    frame = av.VideoFrame(width, height, "yuv420p10le" if coding.ten_bits else "yuv420p")
    for plane, values in zip(frame.planes, planes, strict=True):
        stored = np.zeros((plane.height, plane.line_size // (2 if coding.ten_bits else 1)))
        stored[:, : plane.width] = np.round(levels * values)
        plane.update(stored.astype("<u2" if coding.ten_bits else "u1").tobytes())
    return frame
