"""Measurements of a clip: its sound, its looks with the overlays on them, and its motion; one row of a table each."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from pipeline.core.records import Record


class ClipSound(Record):
    """The sound of a clip, written as `clips/<clip_id>.m4a`."""

    clip_id: str
    language: str | None = Field(description="ISO 639 code as in the film")
    sample_rate: int
    channels: int
    loudness_lufs: float | None = Field(description="integrated, by ITU-R BS.1770; null: below its gate, -70")
    silent_share: float = Field(description="share of windows of 20 ms below -60 dBFS")
    speech_share: float = Field(description="share of windows of 32 ms with speech, by Silero VAD")
    bytes: int
    sha256: str
    muxed_sha256: str = Field(description="of the clip's video with this sound, as shards and exports have it")

    @property
    def facts(self) -> str:
        """Loudness, silence and speech in words."""
        loudness = "silent" if self.loudness_lufs is None else f"{self.loudness_lufs:.1f} LUFS"
        return f"{loudness}, {self.silent_share:.0%} silence, {self.speech_share:.0%} speech"


class Box(Record):
    """A rectangle in the pictures of a clip: pixels from the left and the top, right and bottom just outside."""

    model_config = ConfigDict(strict=True)

    left: int
    top: int
    right: int
    bottom: int


class Embedded(Record):
    """A clip with vectors of its pictures: the same row of `pictures.npy`, if the film has one."""

    clip_id: str
    frames: tuple[int, ...] = Field(description="number of each picture among the clip's frames")


class FoundFigure(Record):
    """A figure that a detector found; its vector is the same row of `figures.npy`, if the film has one."""

    clip_id: str
    frame: int = Field(description="number of the picture among the clip's frames")
    label: str = Field(description="the detector's word for it, such as `person`")
    score: float = Field(description="0..1")
    box: Box


class Bars(Record):
    """Widths of the black bars at the sides of a clip, pixels."""

    model_config = ConfigDict(strict=True)

    left: int
    top: int
    right: int
    bottom: int


class Looks(Record):
    """Looks of a clip: measurements of its pictures, which `selection` turns into verdicts."""

    clip_id: str
    light: float = Field(description="mean luma of the clip, 0..255")
    contrast: float = Field(description="standard deviation of luma inside a frame, averaged over frames, 0..128")
    dark_share: float = Field(description="share of pixels with luma below 24")
    still_share: float = Field(description="share of steps between frames without a visible change, 0..1")
    text_share: float | None = Field(description="share of the picture under text boxes; null: not searched for")
    text_lines: int | None = Field(description="text boxes found on the inspected frames, the most on one frame")
    hashes: tuple[str, ...] = Field(description="perceptual hash of each frame, 64 hex digits; empty if too flat")
    two_groups: float | None = Field(default=None, description="degree to which its pictures form two groups in time")
    sharpness: float | None = Field(default=None, description="1 minus the blur effect of Crete et al., 0..1")
    blockiness: float | None = Field(default=None, description="step at the blocks of an earlier encoder, gray levels")
    banding: float | None = Field(
        default=None, description="height of the steps in soft gradients, gray levels; null: there are none"
    )
    text_boxes: tuple[Box, ...] | None = Field(default=None, description="lines of text; null: not searched for")
    subtitle_lines: int | None = Field(
        default=None,
        description="most lines on a picture in the place of the film's subtitles; null: not searched for",
    )
    logo_boxes: tuple[Box, ...] | None = Field(
        default=None, description="logos that stay through the film; null: it has too few scenes to tell"
    )
    bars: Bars | None = None

    @property
    def quality(self) -> str:
        """The measured picture quality in words; empty if it is not measured."""
        known = {name: getattr(self, name) for name in QUALITY}
        return ", ".join(f"{name} {value:.2f}" for name, value in known.items() if value is not None)

    @property
    def overlays(self) -> str:
        """Boxes of text and logos and widths of bars in pixels, as `logo 600,20 to 690,60`; empty if there are none."""
        boxes = (("text", self.text_boxes), ("logo", self.logo_boxes))
        said = [
            f"{name} {box.left},{box.top} to {box.right},{box.bottom}" for name, found in boxes for box in found or ()
        ]
        bars = [f"{side} {width}" for side, width in self.bars or () if width]
        return "; ".join([*said, *([f"bars {', '.join(bars)}"] if bars else [])])


QUALITY = ("sharpness", "blockiness", "banding")
"""Fields of `Looks` that state the picture quality."""


CameraKind = Literal["static", "pan", "tilt", "zoom", "rotate", "follow", "shake"]
CameraDirection = Literal["left", "right", "up", "down", "in", "out", "clockwise", "counterclockwise"]
"""Way of the camera, not of the picture: if it pans right, the place moves left."""


class Motion(Record):
    """Motion of a clip. The level is the scope binned by the dataset's edges, so it is not stored here."""

    clip_id: str
    flow_model: str
    scope_px: float = Field(description="mean optical-flow magnitude above 0.2 px, in clip pixels per step")
    camera_px: float = Field(description="speed of the camera: mean motion of the place, in clip pixels per step")
    camera_kind: CameraKind | None = Field(default=None, description="move of the camera; null: undecided")
    camera_direction: CameraDirection | None = Field(default=None, description="null: it has none, or is undecided")
    unique_frames: int = Field(description="drawings: frames that differ from the one before, or a held figure's")

    @property
    def camera(self) -> str | None:
        """Kind and direction in words, such as `pan left`; None if the camera is undecided."""
        return " ".join(filter(None, (self.camera_kind, self.camera_direction))) or None
