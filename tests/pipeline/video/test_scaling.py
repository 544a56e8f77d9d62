"""Cropping, rotation and scaling of pictures with known results."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import cv2
import numpy as np
import pytest
from av.video.frame import VideoFrame

from examples.world.barcode import paint_barcode, read_barcode
from pipeline.core.records import Transfer
from pipeline.video.containers import Picture
from pipeline.video.scaling import Geometry, Scaler

COLOURS = [(200, 60, 40), (40, 60, 200), (60, 180, 60), (128, 128, 128), (250, 250, 250), (20, 200, 230)]


def as_frame(picture_HWC: Picture, pixel_format: str = "yuv420p") -> VideoFrame:
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(picture_HWC), format="bgr24")
    return frame.reformat(format=pixel_format, dst_colorspace="ITU709", dst_color_range="MPEG")


def clip_picture(scaler: Scaler, frame: VideoFrame) -> Picture:
    scaled = scaler(frame)
    assert scaled.format.name == "yuv420p"
    return scaled.reformat(format="bgr24", src_colorspace="ITU601", src_color_range="MPEG").to_ndarray()


def noise(width: int, height: int) -> Picture:
    coarse = np.random.default_rng(1).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.asarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC), np.uint8)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv420p10le", "yuv444p", "yuv422p10le"])
def test_the_crop_is_correct_for_every_rotation(rotation: int, pixel_format: str) -> None:
    upright = noise(320, 180)
    stored = as_frame(np.rot90(upright, rotation // 90), pixel_format)
    geometry = Geometry(30, 20, 240, 120, 320, 180, rotation_degrees=rotation)
    shown = clip_picture(Scaler(geometry, (240, 120), "stretch", "clip"), stored)
    assert np.abs(shown.astype(int) - upright[20:140, 30:270]).mean() < 3


def test_an_odd_crop_of_ten_bits_keeps_its_colours() -> None:
    picture = noise(320, 180)
    paint_barcode(picture, 77)
    scaler = Scaler(Geometry(0, 0, 320, 180, 320, 180), (720, 480), "cover", "clip")  # crops at x = 25
    assert read_barcode(clip_picture(scaler, as_frame(picture, "yuv420p10le"))) == 77


@pytest.mark.parametrize("matrix", ["ITU709", "ITU601"])
@pytest.mark.parametrize("value_range", ["MPEG", "JPEG"])
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv420p10le", "yuv444p"])
@pytest.mark.parametrize("form", ["clip", "detect"])
def test_colours_survive(pixel_format: str, matrix: str, value_range: str, form: str) -> None:
    picture = np.repeat(np.array([COLOURS], np.uint8), 100, axis=1).repeat(200, axis=0)
    frame = VideoFrame.from_ndarray(picture, format="bgr24")
    frame = frame.reformat(format=pixel_format, dst_colorspace=matrix, dst_color_range=value_range)
    geometry = Geometry(0, 0, 600, 200, 600, 200)
    if form == "clip":
        shown = clip_picture(Scaler(geometry, (300, 100), "stretch", "clip"), frame)
    else:
        shown = Scaler(geometry, (300, 100), "stretch", "detect")(frame).to_ndarray()
    assert np.abs(shown[50, 25::50].astype(int) - COLOURS).max() <= 6


@pytest.mark.parametrize("transfer", [9, 10])
@pytest.mark.parametrize("form", ["clip", "detect"])
@pytest.mark.parametrize("coding", ["bt709", "bt2020"])
def test_a_logarithmic_tag_is_taken_as_sdr(coding: Transfer, form: Literal["clip", "detect"], transfer: int) -> None:
    pictures = []
    for tag in (1, transfer):
        frame = as_frame(noise(320, 180))
        frame.color_trc, frame.colorspace = tag, 9 if coding == "bt2020" else 1
        pictures.append(
            Scaler(Geometry(0, 0, 320, 180, 320, 180), (96, 64), "stretch", form, coding)(frame).to_ndarray()
        )
    np.testing.assert_array_equal(*pictures)


def circle_box(fit: str, sample_aspect: Fraction, rotation: int = 0) -> tuple[int, int, int]:
    """Width and height of a painted circle in a clip, and how many columns are black."""
    upright_aspect = 1 / sample_aspect if rotation in (90, 270) else sample_aspect
    picture = np.full((240, 320, 3), 90, np.uint8)
    cv2.ellipse(picture, (160, 120), (round(40 / upright_aspect), 40), 0, 0, 360, (0, 0, 255), -1)
    geometry = Geometry(0, 0, 320, 240, 320, 240, rotation, sample_aspect)
    scaler = Scaler(geometry, (720, 480), fit, "clip")  # type: ignore[arg-type]
    shown = clip_picture(scaler, as_frame(np.rot90(picture, rotation // 90)))
    red = (shown[..., 2] > 170) & (shown[..., 0] < 60)
    black = (shown.max(axis=(0, 2)) < 20).sum()
    return int(red.any(axis=0).sum()), int(red.any(axis=1).sum()), int(black)


def test_fit_shows_all_and_pads_with_black() -> None:
    _, height, black = circle_box("fit", Fraction(1))
    assert abs(height - 160) <= 6  # a third of 480, as it is a third of the picture
    assert abs(black - 80) <= 4  # 640 of 720 columns are picture


def test_stretch_ignores_the_aspect() -> None:
    width, height, black = circle_box("stretch", Fraction(1))
    assert abs(width / height - 720 / 480 * 240 / 320) < 0.03
    assert black == 0


def test_the_small_picture_keeps_the_display_aspect() -> None:
    assert Geometry(0, 140, 1920, 800, 1920, 1080).size_for_width(160) == (160, 66)
    assert Geometry(0, 0, 720, 576, 720, 576, sample_aspect=Fraction(64, 45)).size_for_width(160) == (160, 90)
    turned = Geometry(0, 0, 576, 720, 576, 720, 90, Fraction(64, 45))
    assert turned.size_for_width(180) == (180, 320)
    assert Geometry(0, 0, 2, 1080, 1920, 1080).size_for_width(160) == (160, 640)
