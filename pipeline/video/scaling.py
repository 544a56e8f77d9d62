"""Scaling of decoded pictures with crop, rotation, square pixels and colour conversion in one libavfilter graph.

`Geometry` describes the visible part of a stored picture; a `Scaler` brings it to one size in a single pass of
libavfilter, so that no SDR picture is converted at full size. HDR and BT.2020 pictures pass through the mapping of
`colour` as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import av
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from pipeline.core.records import Crop, Film, Transfer
from pipeline.video.colour import BT2020, LOGARITHMIC, UNSPECIFIED, is_hd, is_mapped, matrix_of, recoding, to_sdr

Fit = Literal["cover", "fit", "stretch"]
Filters = list[tuple[str, str]]

BT709, BT601 = 1, 5
"""FFmpeg's numbers of colour matrices; the transfer of BT.709 has the same."""
BT709_TO_BT601 = ("colorspace", "ispace=bt709:space=smpte170m:fast=1" + "".join(
    f":{key}=bt709" for key in ("iprimaries", "primaries", "itrc", "trc")
))  # fmt: skip
"""Filter for the conversion of colour matrices, ten times as fast as the scaler's."""
RGB_16_BIT = ("format", "gbrp16le")
MOST_UPRIGHT = 4
"""Largest height of a picture for a given width, in widths: a narrow crop must not cost gigabytes."""

SAME_TIME = 0.002
"""Difference of times that is rounding, seconds."""


def crop_at(crops: Sequence[Crop], seconds: float) -> Crop:
    """Return the crop of a film at a time, from its crops in order."""
    return next((crop for crop in reversed(crops) if crop.start_seconds <= seconds + SAME_TIME), crops[0])


@dataclass(frozen=True)
class Geometry:
    """Visible part of a film's stored picture, rotation and pixel aspect; in coded pixels of the upright picture."""

    left: int
    top: int
    width: int
    height: int
    picture_width: int
    """Width of the whole upright picture, borders included; `picture_height` likewise."""
    picture_height: int
    rotation_degrees: int = 0
    """Clockwise rotation that makes the stored picture upright."""
    sample_aspect: Fraction = Fraction(1)
    """Width over height of a stored pixel, before rotation."""

    @classmethod
    def of(cls, film: Film, crop: Crop) -> Geometry:
        """Build the geometry from the probed film and its crop."""
        size, turned = film.upright_size, film.rotation_degrees
        return cls(crop.left, crop.top, crop.width, crop.height, *size, turned, film.sample_aspect)

    @classmethod
    def around(cls, film: Film, crops: Sequence[Crop]) -> Geometry:
        """Build the geometry of what is visible inside any of the film's crops."""
        left, top = min(crop.left for crop in crops), min(crop.top for crop in crops)
        right, bottom = max(crop.left + crop.width for crop in crops), max(crop.top + crop.height for crop in crops)
        sides = {"left": left, "top": top, "width": right - left, "height": bottom - top}
        return cls.of(film, crops[0].model_copy(update=sides))

    @property
    def pixel_aspect(self) -> Fraction:
        """Width over height of a pixel of the upright picture."""
        return 1 / self.sample_aspect if self.rotation_degrees in (90, 270) else self.sample_aspect

    def size_for_width(self, width: int) -> tuple[int, int]:
        """Width and even height of the cropped picture in square pixels, for a given width; at most `MOST_UPRIGHT`."""
        height = max(2, 2 * round(width * self.height / (self.width * self.pixel_aspect) / 2))
        return width, min(height, MOST_UPRIGHT * width)

    def shown(self, width: int, height: int, fit: Fit) -> tuple[float, float]:
        """Shares of the visible part's width and height that are in a picture of `width` x `height`."""
        _, _, part_width, part_height = self._part(width, height, fit)
        return part_width / self.width, part_height / self.height

    def filters(self, width: int, height: int, fit: Fit, stored: tuple[int, int], scaling: str) -> Filters:
        """The chain of libavfilter filters that scales a stored picture of size `stored` to `width` x `height`.

        Rotation comes last, when the picture is small.
        """
        left, top, part_width, part_height = self._part(width, height, fit)
        inner_width, inner_height = self._inner(width, height) if fit == "fit" else (width, height)
        crop = self._as_stored(left, top, part_width, part_height, stored)
        turned = self.rotation_degrees in (90, 270)
        scale = (inner_height, inner_width) if turned else (inner_width, inner_height)
        chain = [
            ("crop", "{2}:{3}:{0}:{1}".format(*crop)),
            ("scale", f"{scale[0]}:{scale[1]}:{scaling}"),
            *{90: [("transpose", "clock")], 180: [("hflip", ""), ("vflip", "")], 270: [("transpose", "cclock")]}.get(
                self.rotation_degrees, []
            ),
        ]
        if (inner_width, inner_height) != (width, height):
            chain.append(("pad", f"{width}:{height}:(ow-iw)/2:(oh-ih)/2"))
        return [*chain, ("setsar", "1")]

    def _part(self, width: int, height: int, fit: Fit) -> tuple[float, float, float, float]:
        """Left, top, width and height of the visible part, in upright coded pixels."""
        if fit != "cover":
            return self.left, self.top, self.width, self.height
        aspect = width / (height * float(self.pixel_aspect))  # of the target, in coded pixels
        part_width, part_height = min(self.width, self.height * aspect), min(self.height, self.width / aspect)
        return (
            self.left + (self.width - part_width) / 2,
            self.top + (self.height - part_height) / 2,
            part_width,
            part_height,
        )

    def _inner(self, width: int, height: int) -> tuple[int, int]:
        """Even size of the picture inside a padded one."""
        aspect = float(self.width * self.pixel_aspect / self.height)
        return (min(width, max(2, 2 * round(height * aspect / 2))), min(height, max(2, 2 * round(width / aspect / 2))))

    def _as_stored(
        self, left: float, top: float, width: float, height: float, stored: tuple[int, int]
    ) -> tuple[int, int, int, int]:
        """The same rectangle in the stored picture, whose size may change within the film."""
        right, bottom = self.picture_width - left - width, self.picture_height - top - height
        x, y, wide, high = {
            0: (left, top, width, height),
            90: (top, right, height, width),
            180: (right, bottom, width, height),
            270: (bottom, left, height, width),
        }[self.rotation_degrees]
        turned = self.rotation_degrees in (90, 270)
        known = (self.picture_height, self.picture_width) if turned else (self.picture_width, self.picture_height)
        across, down = stored[0] / known[0], stored[1] / known[1]
        crop_width, crop_height = max(2, round(wide * across)), max(2, round(high * down))
        return (
            min(round(x * across), stored[0] - crop_width),
            min(round(y * down), stored[1] - crop_height),
            crop_width,
            crop_height,
        )


class Scaler:
    """Scaler of decoded pictures to one size and format: cropped, upright, with square pixels and converted colours.

    Args:
        geometry: visible part of the stored picture.
        size: width and height of the result.
        fit: treatment of differing aspects.
        form: `clip` gives yuv420p, BT.601, limited range, which every reader assumes at clip size;
            `detect` gives BGR by a fast area filter.
        transfer: colour coding of the film; without one it counts as SDR.
    """

    def __init__(
        self,
        geometry: Geometry,
        size: tuple[int, int],
        fit: Fit,
        form: Literal["clip", "detect"],
        transfer: Transfer | None = None,
    ) -> None:
        self._geometry, self._size, self._fit, self._form = geometry, size, fit, form
        self._transfer = transfer
        self._key: tuple[object, ...] | None = None
        self._graph: av.filter.Graph | None = None
        self._to_yuv: av.filter.Graph | None = None

    def __call__(self, picture: VideoFrame) -> VideoFrame:
        """Return the scaled copy of a decoded picture."""
        key = (picture.width, picture.height, picture.format.name, picture.colorspace, picture.color_range)
        if self._graph is None or key != self._key:
            self._key, self._graph = key, self._build(picture)
        if picture.color_trc in LOGARITHMIC:
            picture.color_trc = BT709  # libswscale rejects the tag; the film is treated as SDR regardless
        self._graph.vpush(picture)
        scaled = self._graph.vpull()
        if self._transfer is None or not is_mapped(self._transfer):
            return scaled
        picture_HWC = to_sdr(np.asarray(scaled.to_ndarray(), np.uint16), self._transfer)
        mapped = VideoFrame.from_ndarray(picture_HWC, format="bgr24")
        return mapped if self._form == "detect" else self._as_yuv(mapped)

    def _as_yuv(self, mapped: VideoFrame) -> VideoFrame:
        if self._to_yuv is None:
            # without these flags libswscale gives gray a cast of 3 levels
            scaling = f"flags=area+accurate_rnd+full_chroma_inp:out_color_matrix={BT601}:out_range=tv"
            self._to_yuv = _graph(mapped, [("scale", scaling), ("format", "yuv420p")])
        mapped.pts = 0
        self._to_yuv.vpush(mapped)
        return self._to_yuv.vpull()

    def _build(self, picture: VideoFrame) -> av.filter.Graph:
        return _graph(picture, self._mapped_chain(picture) if is_mapped(self._transfer) else self._sdr_chain(picture))

    def _sdr_chain(self, picture: VideoFrame) -> Filters:
        matrix = matrix_of(picture)
        scaling = "flags=bicubic:out_range=tv" if self._form == "clip" else "flags=area"
        if matrix == UNSPECIFIED:
            matrix = BT709 if is_hd(picture.width, picture.height) else BT601
            scaling += f":in_color_matrix={matrix}"
        conversion = [("format", "bgr24")]
        if self._form == "clip":
            conversion = [("format", "yuv420p"), *([BT709_TO_BT601] if matrix == BT709 else [])]
            scaling += f":out_color_matrix={BT709 if matrix == BT709 else BT601}"
        stored = (picture.width, picture.height)
        return [*self._geometry.filters(*self._size, self._fit, stored, scaling), *conversion]

    def _mapped_chain(self, picture: VideoFrame) -> Filters:
        """Return the filters to a scaled picture of power codes, which `to_sdr` takes.

        Pictures of clips are recoded before they are scaled (see `colour`). The small pictures of the scene detector
        are recoded after, to save time for every frame: they are only compared with each other.
        """
        assert self._transfer is not None
        flags = "flags=bicubic" if self._form == "clip" else "flags=area"
        matrix = f":in_color_matrix={BT2020}" if matrix_of(picture) == UNSPECIFIED else ""
        recode = recoding(self._transfer)
        recode_first = recode and self._form == "clip"
        scaling = flags if recode_first else flags + matrix
        crop, *scale = self._geometry.filters(*self._size, self._fit, (picture.width, picture.height), scaling)
        if recode_first:
            return [crop, ("scale", "flags=bilinear" + matrix), RGB_16_BIT, *recode, *scale, RGB_16_BIT]
        return [crop, *scale, RGB_16_BIT, *recode]


def _graph(picture: VideoFrame, chain: Filters) -> av.filter.Graph:
    """Build the graph of a chain of filters for pictures like this one."""
    graph = av.filter.Graph()
    graph.threads = 1
    source = graph.add(
        "buffer",
        f"video_size={picture.width}x{picture.height}:pix_fmt={picture.format.name}:time_base=1/1000"
        f":pixel_aspect=1/1:colorspace={matrix_of(picture)}:range={picture.color_range}",
    )
    nodes = [source, *(graph.add(name, args) for name, args in chain), graph.add("buffersink")]
    graph.link_nodes(*nodes).configure()
    return graph


def gray_codes(transfer: Transfer | None) -> NDArray[np.uint8]:
    """Lookup table from the 8-bit codes of gray to the codes of the SDR pictures that they are mapped to."""
    codes = np.arange(256, dtype=np.uint8)
    if not is_mapped(transfer):
        return codes
    scaler = Scaler(Geometry(0, 0, 256, 2, 256, 2), (256, 2), "stretch", "detect", transfer)
    ramp_HWC = np.broadcast_to(codes[None, :, None], (2, 256, 3))
    mapped = scaler(VideoFrame.from_ndarray(np.ascontiguousarray(ramp_HWC), format="rgb24"))
    return np.array(mapped.to_ndarray()[0, :, 0], np.uint8)
