"""Drawn clips in the tracker: TensorBoard shows them as animated pictures, Weights & Biases as videos.

Other trackers of accelerate show figures only; the clips are in `looks/` in any case.
"""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path

from accelerate import Accelerator
from PIL import Image

from pipeline.video.clip_files import read_clip

_MOST_WIDTH = 720
_NAME = "val/clips"


def track_clips(accelerator: Accelerator, film: Path, step: int, fps: int = 8) -> None:
    """Send a film of drawn clips beside their targets to the trackers that show films.

    Args:
        accelerator: its trackers are initialised on the main process only.
        film: an mp4; nothing is sent if it does not exist.
        step: steps done.
        fps: its frames per second.
    """
    if not film.exists():
        return
    for tracker in accelerator.trackers:
        if tracker.name == "tensorboard":
            _to_tensorboard(tracker.tracker, film, step, fps)
        elif tracker.name == "wandb":
            video = import_module("wandb").Video  # imported already, by the tracker
            tracker.log({_NAME: video(str(film), format="mp4")}, step=step)


def _to_tensorboard(writer: object, film: Path, step: int, fps: int) -> None:
    """Add an animated GIF as a picture; `SummaryWriter.add_video` makes the same, but needs moviepy."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

    frames = [Image.fromarray(frame_HWC) for frame_HWC in read_clip(film)[..., ::-1]]
    scale = min(1.0, _MOST_WIDTH / frames[0].width)
    width, height = round(frames[0].width * scale), round(frames[0].height * scale)
    frames = [frame.resize((width, height)) for frame in frames]
    content = io.BytesIO()
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:], duration=1000 // fps, loop=0)
    picture = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=content.getvalue())
    value = Summary.Value(tag=_NAME, image=picture)
    writer.file_writer.add_summary(Summary(value=[value]), step)  # type: ignore[attr-defined]
