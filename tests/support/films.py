"""Films made for the tests, really encoded, with a truth to compare with: each frame bears its number as a barcode.

The barcode is a stack of black and white cells in the middle of the picture between two green bars, wide enough to
survive scaling, cropping to another aspect and lossy coding. The number is Gray-coded, so that consecutive frames
differ in one cell and a parity cell and scene detectors are not misled; every scene has its own colourful background.

    make_film(tmp_path / "film.mp4", frames=96, fps=Fraction(24000, 1001), scenes=(0, 40))
    read_barcode(picture_HWC)   # -> 17
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.core.hashes import FILM_HASHES, Hashes, film_hash
from pipeline.core.records import make_film_id
from pipeline.core.store import FilmFolder
from pipeline.stages.probe import probe

Picture = NDArray[np.uint8]
Paint = Callable[[int, Picture], None]

BITS = 14
CELLS = BITS + 1  # and a parity cell
GREEN = (0, 255, 0)
TIME_BASE = Fraction(1, 90_000)


def make_film(
    path: Path,
    *,
    frames: int = 48,
    fps: Fraction | int = 24,
    size: tuple[int, int] = (320, 180),
    scenes: Sequence[int] = (0,),
    times: Sequence[Fraction] | None = None,
    borders: tuple[int, int, int, int] = (0, 0, 0, 0),
    barcode: bool = True,
    paint: Paint | None = None,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    options: Mapping[str, str] | None = None,
    rotation: int = 0,
    sample_aspect: Fraction | None = None,
    sound: bool = False,
) -> Path:
    """Encode a film and return its path; the container follows from the suffix.

    Args:
        path: where to write it.
        frames: how many, numbered from 0.
        fps: frames per second.
        size: width and height of the upright picture in coded pixels.
        scenes: first frame of each scene; each has its own background.
        times: presentation time of each frame in seconds, for a variable rate; `fps` then only names the last length.
        borders: width of the black borders left, top, right and bottom, in upright coded pixels.
        barcode: paint the frame's number (needs a picture of at least 64x48).
        paint: called with the frame's number and its BGR picture, to draw on it.
        codec: an encoder of FFmpeg's; `libx265` with `yuv420p10le` makes the usual anime encode.
        pixel_format: of the coded picture.
        options: further encoder options.
        rotation: clockwise turn in degrees that a player must make to show the picture upright.
        sample_aspect: width over height of a stored pixel.
        sound: add a silent audio stream.
    """
    rate = Fraction(fps)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options=_encoder_options(codec, options))
        _set_up(stream, size, rotation, pixel_format, TIME_BASE if times is not None else 1 / rate)
        if sample_aspect is not None:
            stream.codec_context.sample_aspect_ratio = sample_aspect
        silence = container.add_stream("aac", rate=48_000, layout="mono") if sound else None
        for number, picture in enumerate(paint_pictures(frames, size, scenes, borders, barcode, paint)):
            stored = np.ascontiguousarray(np.rot90(picture, rotation // 90))
            frame = av.VideoFrame.from_ndarray(stored, format="bgr24")
            frame.time_base = stream.codec_context.time_base
            frame.pts = number if times is None else round(times[number] / TIME_BASE)
            container.mux(stream.encode(frame.reformat(format=pixel_format, dst_colorspace="ITU601")))
        container.mux(stream.encode())
        if silence is not None:
            _add_silence(container, silence, frames / rate)
    return path


def paint_pictures(
    frames: int,
    size: tuple[int, int],
    scenes: Sequence[int] = (0,),
    borders: tuple[int, int, int, int] = (0, 0, 0, 0),
    barcode: bool = True,
    paint: Paint | None = None,
) -> Iterator[Picture]:
    """The pictures of `make_film` as they are before coding: upright, BGR, HWC uint8."""
    left, top, right, bottom = borders
    for number in range(frames):
        scene = max(index for index, first in enumerate(scenes) if first <= number)
        picture = np.zeros((size[1], size[0], 3), np.uint8)
        inside = picture[top : size[1] - bottom, left : size[0] - right]
        inside[:] = _background(scene, number - scenes[scene], inside.shape[1], inside.shape[0])
        if barcode:
            paint_barcode(inside, number)
        if paint is not None:
            paint(number, picture)
        yield picture


def paint_barcode(picture_HWC: Picture, number: int) -> None:
    """Paint `number` (0..16383) into the middle of a picture."""
    height, width = picture_HWC.shape[:2]
    code = number ^ (number >> 1)
    bits = [code >> bit & 1 for bit in range(BITS)]
    cells = [GREEN, *((255,) * 3 if bit else (0,) * 3 for bit in [*bits, sum(bits) % 2]), GREEN]
    rows = np.linspace(0.13 * height, 0.87 * height, len(cells) + 1).round().astype(int)
    columns = slice(round(0.4 * width), round(0.6 * width))
    picture_HWC[rows[0] - 1 : rows[-1] + 1, columns] = 0
    for cell, start, stop in zip(cells, rows[:-1], rows[1:], strict=True):
        picture_HWC[start:stop, columns] = cell


def read_barcode(picture_HWC: Picture) -> int:
    """The number in a BGR picture, wherever scaling and centred cropping left it.

    Raises:
        ValueError: there is no barcode, or its parity is wrong.
    """
    width = picture_HWC.shape[1]
    middle = picture_HWC[:, round(0.47 * width) : max(round(0.53 * width), round(0.47 * width) + 1)].mean(axis=1)
    blue, green, red = middle[:, 0], middle[:, 1], middle[:, 2]
    bars = np.flatnonzero((green > 120) & (blue < 0.6 * green) & (red < 0.6 * green))
    breaks = np.flatnonzero(np.diff(bars) > 1)
    if len(breaks) == 0:
        raise ValueError("no barcode: the two green bars are missing")
    top, bottom = bars[0], bars[-1] + 1
    cell = (bottom - top) / (CELLS + 2)
    centres = (top + cell * (np.arange(CELLS) + 1.5)).astype(int)
    *bits, parity = (middle[centres].mean(axis=1) > 127).astype(int)
    if sum(bits) % 2 != parity:
        raise ValueError(f"unreadable barcode: parity of {bits}")
    number = code = sum(int(bit) << place for place, bit in enumerate(bits))
    while code := code >> 1:
        number ^= code
    return number


def planned(root: Path, path: Path) -> FilmFolder:
    """The film's folder in the data set at `root`, as the plan of a build leaves it."""
    hashes = Hashes(root / FILM_HASHES)
    sha256 = film_hash(path, hashes)
    hashes.save()
    film = probe(path, make_film_id(path.name, sha256), sha256)
    folder = FilmFolder(root / "films" / film.film_id)
    folder.save_film(film)
    return folder


def truncate(path: Path, share: float) -> Path:
    """Cut the file off after `share` of its bytes."""
    content = path.read_bytes()
    path.write_bytes(content[: round(len(content) * share)])
    return path


def corrupt(path: Path, start_share: float, end_share: float, seed: int = 0) -> Path:
    """Overwrite the bytes between two shares of the file with noise."""
    content = bytearray(path.read_bytes())
    start, end = round(len(content) * start_share), round(len(content) * end_share)
    content[start:end] = np.random.default_rng(seed).bytes(end - start)
    path.write_bytes(content)
    return path


def _background(scene: int, age: int, width: int, height: int) -> Picture:
    return np.roll(_texture(scene, width, height), age, axis=1)


@lru_cache(maxsize=8)
def _texture(scene: int, width: int, height: int) -> Picture:
    noise = np.random.default_rng(scene).integers(30, 226, (5, 8, 3), dtype=np.uint8)
    noise[..., 1] = np.minimum(noise[..., 1], np.maximum(noise[..., 0], noise[..., 2]))  # never as green as the bars
    return np.asarray(cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC), np.uint8)


def _set_up(
    stream: av.VideoStream, size: tuple[int, int], rotation: int, pixel_format: str, time_base: Fraction
) -> None:
    stream.width, stream.height = size[::-1] if rotation in (90, 270) else size
    stream.pix_fmt = pixel_format
    stream.thread_count = 1
    stream.time_base = stream.codec_context.time_base = time_base
    if rotation:
        stream.set_display_rotation(-rotation)


def _encoder_options(codec: str, options: Mapping[str, str] | None) -> dict[str, str]:
    known = {
        "libx264": {"preset": "veryfast", "crf": "14"},
        "libx265": {"preset": "ultrafast", "crf": "16", "x265-params": "log-level=none:pools=none:frame-threads=1"},
    }
    return {**known.get(codec, {}), **(options or {})}


def _add_silence(container: av.container.OutputContainer, stream: av.AudioStream, seconds: Fraction) -> None:
    for start in range(0, round(seconds * 48_000), 1024):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 48_000, start
        container.mux(stream.encode(frame))
    container.mux(stream.encode())
