"""Presets of clip formats: frames, rate and size that a family of video models is trained with, 2 seconds each.

Wan and HunyuanVideo compress time by 4, so they take 4n + 1 frames (musubi-tuner, docs/dataset_config.md); LTX-Video
takes 8n + 1 (diffusion-pipe, models/ltx_video.py: `round_frames=8`), and so does the CogVideoX preset. The rates are
those of diffusion-pipe (models/wan/wan.py: `framerate = 16`, models/hunyuan_video.py: 24) and of SimpleTuner's examples
(49 frames at 24 for LTX-Video).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from pipeline.core.records import Film, Record
from pipeline.core.store import ClipFormat

NTSC = Fraction(1001, 1000)
"""Factor between a nominal rate and the rate of a video of 24000/1001 or 30000/1001 frames a second."""


class Preset(Record):
    """Clip format of a family of models."""

    name: str
    frames: int
    fps: int
    width: int
    height: int
    multiple: int
    """The model takes n * multiple + 1 frames."""
    side: int = 16
    """Width and height are multiples of it: autoencoder and patches together divide them."""

    @property
    def clips(self) -> ClipFormat:
        """Format of the clips."""
        return ClipFormat(frames=self.frames, fps=Fraction(self.fps), width=self.width, height=self.height)

    def has_frames_of(self, clips: ClipFormat) -> bool:
        """Return True if clips have the frames and the rate of the preset."""
        return clips.frames == self.frames and clips.fps == Fraction(self.fps)

    def takes_size_of(self, clips: ClipFormat) -> bool:
        """Return True if the model takes clips of this size."""
        return clips.width % self.side == clips.height % self.side == 0


PRESETS: Final = {
    "wan": Preset(name="wan", frames=33, fps=16, width=832, height=480, multiple=4),
    "hunyuan": Preset(name="hunyuan", frames=49, fps=24, width=960, height=544, multiple=4),
    "ltx": Preset(name="ltx", frames=49, fps=24, width=768, height=512, multiple=8, side=32),
    "cogvideox": Preset(name="cogvideox", frames=17, fps=8, width=720, height=480, multiple=8),
}


def pace(film: Film) -> Fraction:
    """Film seconds per second of a clip: 24000/1001 frames a second count as 24, and their clips play 0.1 % faster.

    Otherwise 49 frames at 24 would show one of 48 film frames twice. That holds for a film with an odd step too.
    """
    return NTSC if film.fps.denominator == 1001 else Fraction(1)


def nominal_rate(film: Film) -> Fraction:
    """Film frames per second of a clip to choose from; telecine has 4 film frames for 5 of the video."""
    undone = Fraction(4, 5) if "telecine undone" in (film.fields or ()) else Fraction(1)
    return film.fps * undone * pace(film)
