"""Pictures of validation: reference clips next to generated clips, as a contact sheet, a video and in the tracker.

TensorBoard shows the clips as animated pictures, Weights & Biases as videos. Other trackers show only metrics.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from pipeline.video.clip_files import read_clip, write_clip

FILM = "clips.mp4"
_COLUMNS = 5
_CAPTION_HEIGHT = 14
_FPS = 8
_CRF = 18
_TRACKED = "val/clips"
_MOST_TRACKED_WIDTH = 720

Frames = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Reference and generated version of a clip, each [T, H, W, 3], uint8 RGB."""

    caption: str
    truth_THWC: Frames
    """Clip as reconstructed by the autoencoder: the upper bound of the quality of `drawn_THWC`."""
    drawn_THWC: Frames


def save_comparisons(folder: Path, comparisons: Sequence[Comparison]) -> None:
    """Write `sheet.png` (five reference frames above five generated ones) and FILM (side by side)."""
    if not comparisons:
        return
    folder.mkdir(parents=True, exist_ok=True)
    _stacked([_sheet_of(each) for each in comparisons]).save(folder / "sheet.png")
    pairs = [np.concatenate([each.truth_THWC, each.drawn_THWC], axis=2) for each in comparisons]
    film_THWC = np.concatenate(pairs, axis=1)
    write_clip(folder / FILM, (frame[:, :, ::-1] for frame in film_THWC), Fraction(_FPS), _CRF)


def track_clips(accelerator: Accelerator, film: Path, step: int) -> None:
    """Send a film of drawn clips and their targets to the trackers that show films.

    Args:
        accelerator: its trackers are initialised on the main process only.
        film: an mp4; nothing is sent if it does not exist.
    """
    if not film.exists():
        return
    for tracker in accelerator.trackers:
        if tracker.name == "tensorboard":
            _to_tensorboard(tracker.tracker, film, step)
        elif tracker.name == "wandb":
            video = import_module("wandb").Video  # imported already, by the tracker
            tracker.log({_TRACKED: video(str(film), format="mp4")}, step=step)


def _sheet_of(comparison: Comparison) -> Image.Image:
    frames = np.linspace(0, len(comparison.truth_THWC) - 1, _COLUMNS).round().astype(int)
    rows = [np.concatenate(list(clip[frames]), axis=1) for clip in (comparison.truth_THWC, comparison.drawn_THWC)]
    pictures_HWC = np.concatenate(rows, axis=0)
    sheet = Image.new("RGB", (pictures_HWC.shape[1], pictures_HWC.shape[0] + _CAPTION_HEIGHT), "white")
    sheet.paste(Image.fromarray(pictures_HWC), (0, _CAPTION_HEIGHT))
    ImageDraw.Draw(sheet).text((3, 1), comparison.caption, fill="black")
    return sheet


def _stacked(sheets: Sequence[Image.Image]) -> Image.Image:
    whole = Image.new("RGB", (sheets[0].width, sum(sheet.height for sheet in sheets)))
    top = 0
    for sheet in sheets:
        whole.paste(sheet, (0, top))
        top += sheet.height
    return whole


def _to_tensorboard(writer: object, film: Path, step: int) -> None:
    """Add an animated GIF as a picture; `SummaryWriter.add_video` makes the same, but needs moviepy."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

    frames = [Image.fromarray(frame_HWC) for frame_HWC in read_clip(film)[..., ::-1]]
    scale = min(1.0, _MOST_TRACKED_WIDTH / frames[0].width)
    width, height = round(frames[0].width * scale), round(frames[0].height * scale)
    frames = [frame.resize((width, height)) for frame in frames]
    content = io.BytesIO()
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:], duration=1000 // _FPS, loop=0)
    picture = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=content.getvalue())
    value = Summary.Value(tag=_TRACKED, image=picture)
    writer.file_writer.add_summary(Summary(value=[value]), step)  # type: ignore[attr-defined]
