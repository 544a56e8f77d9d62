"""Scaling of decoded pictures: crop, rotation, square pixels, and colour conversion, in one libavfilter graph.

`Geometry` describes the visible part of a stored picture; a `Scaler` brings it to one size in a single pass of
libavfilter, so that no picture is converted at full size.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import av
from av.video.frame import VideoFrame

from pipeline.core.records import Crop, Film

Fit = Literal["cover", "fit", "stretch"]
Filters = list[tuple[str, str]]

BT709, UNSPECIFIED, BT601 = 1, 2, (5, 6)
"""FFmpeg's numbers of colour matrices."""
HD_HEIGHT = 720
"""Height from which untagged pictures are taken as BT.709, as players do; smaller ones are BT.601."""
BT709_TO_BT601 = ("colorspace", "ispace=bt709:space=smpte170m:fast=1" + "".join(
    f":{key}=bt709" for key in ("iprimaries", "primaries", "itrc", "trc")
))  # fmt: skip
"""Filter for the conversion of colour matrices, ten times as fast as the scaler's."""


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
        turned = film.rotation_degrees in (90, 270)
        size = (film.height, film.width) if turned else (film.width, film.height)
        return cls(crop.left, crop.top, crop.width, crop.height, *size, film.rotation_degrees, film.sample_aspect)

    @property
    def pixel_aspect(self) -> Fraction:
        """Width over height of a pixel of the upright picture."""
        return 1 / self.sample_aspect if self.rotation_degrees in (90, 270) else self.sample_aspect

    def size_for_width(self, width: int) -> tuple[int, int]:
        """Width and even height of the cropped picture in square pixels, for a given width."""
        return width, max(2, 2 * round(width * self.height / (self.width * self.pixel_aspect) / 2))

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
        return (
            min(width, max(2, 2 * round(height * aspect / 2))),
            min(height, max(2, 2 * round(width / aspect / 2))),
        )

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
    """

    def __init__(self, geometry: Geometry, size: tuple[int, int], fit: Fit, form: Literal["clip", "detect"]) -> None:
        self._geometry, self._size, self._fit, self._form = geometry, size, fit, form
        self._key: tuple[object, ...] | None = None
        self._graph: av.filter.Graph | None = None

    def __call__(self, picture: VideoFrame) -> VideoFrame:
        """Return the scaled copy of a decoded picture."""
        key = (picture.width, picture.height, picture.format.name, picture.colorspace, picture.color_range)
        if self._graph is None or key != self._key:
            self._key, self._graph = key, self._build(picture)
        self._graph.vpush(picture)
        return self._graph.vpull()

    def _build(self, picture: VideoFrame) -> av.filter.Graph:
        matrix = picture.colorspace
        scaling = "flags=bicubic:out_range=tv" if self._form == "clip" else "flags=area"
        if matrix == UNSPECIFIED:
            matrix = BT709 if min(picture.width, picture.height) >= HD_HEIGHT else BT601[0]
            scaling += f":in_color_matrix={matrix}"
        conversion = [("format", "bgr24")]
        if self._form == "clip":
            conversion = [("format", "yuv420p"), *([BT709_TO_BT601] if matrix == BT709 else [])]
            scaling += f":out_color_matrix={BT709 if matrix == BT709 else BT601[0]}"
        graph = av.filter.Graph()
        graph.threads = 1
        source = graph.add(
            "buffer",
            f"video_size={picture.width}x{picture.height}:pix_fmt={picture.format.name}:time_base=1/1000"
            f":pixel_aspect=1/1:colorspace={picture.colorspace}:range={picture.color_range}",
        )
        chain = self._geometry.filters(*self._size, self._fit, (picture.width, picture.height), scaling)
        nodes = [source, *(graph.add(name, args) for name, args in [*chain, *conversion]), graph.add("buffersink")]
        graph.link_nodes(*nodes).configure()
        return graph
