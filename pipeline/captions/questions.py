"""Questions about a clip: text, pictures and fingerprint of the method's two requests to a vision-language model.

    who    the numbered cast sheet and a grid of four frames   -> characters of the cast on screen
    what   up to eight frames in order and the measured motion level -> S MD EV MA SC ET ST

Pictures are sized for InternVL, which cuts each into tiles of 448 x 448 at 256 tokens a tile: one tile per frame, six
for the grid, up to twelve (and a thumbnail) for the sheet. The larger question then takes about 5,600 tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from pipeline.captions.cast import Cast
from pipeline.captions.chat_client import Message, Picture, Reply, assistant, user
from pipeline.core.config import CaptionSettings
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import Clip
from pipeline.video.clip_files import read_clip
from prompts.tags import EXAMPLE, TagError, WhatReply, WhoReply, format_what, what_pattern, who_pattern
from prompts.template import load_prompt
from prompts.what_replies import parse_what
from prompts.who_replies import parse_who

Picture_HWC = npt.NDArray[np.uint8]

FRAMES, GRID_FRAMES = 8, 4
_FRAME_WIDTH_PIXELS = 672  # a 3:2 clip is then 448 high, and its grid exactly three by two tiles
_SHEET_TILES, _GRID_TILES, _FRAME_TILES = 12, 6, 1
_JPEG_QUALITY = 90
_PICTURES = f"{FRAMES} and {GRID_FRAMES} frames, {_FRAME_WIDTH_PIXELS} px, quality {_JPEG_QUALITY}"
_LONGEST_QUOTE = 2000


@dataclass(frozen=True)
class Question:
    """One request about one clip, without its pictures."""

    request: str
    """`who` or `what`."""
    text: str
    ingredients: dict[str, Any]
    read: Callable[[str], WhoReply | WhatReply]
    pattern: str
    """Regular expression of the replies in the form asked for, for a server that guides the model by one."""

    @cached_property
    def fingerprint(self) -> str:
        """Cache key of the reply; equal for questions that must get equal replies."""
        return fingerprint(self.ingredients)

    def fault_in(self, reply: Reply) -> str | None:
        """Return the fault of a reply as a sentence to the model, or None if the reply is usable."""
        if reply.cut_off:
            return "It was too long and was cut off before its end; answer with one short line."
        try:
            self.read(reply.text)
        except TagError as error:
            return str(error)
        return None


def reply_settings(settings: CaptionSettings) -> dict[str, Any]:
    """Return the settings that a reply depends on: the model and its sampling parameters."""
    return settings.model_dump(include={"model", "revision", "temperature", "max_tokens", "tiles"})


def questions_about(clip: Clip, level: int, settings: CaptionSettings, cast: Cast) -> list[Question]:
    """Return the questions about a clip, in order; without a cast there is no `who`."""
    prompt = load_prompt("what")
    text = prompt.render(frames=_shown_frames(clip.frames), level=level, example=format_what(EXAMPLE))
    ingredients = _ingredients(clip, settings, text, {"prompt": prompt.identity, "level": level})
    what = Question("what", text, ingredients, parse_what, what_pattern())
    if not cast.names:
        return [what]
    prompt = load_prompt("who")
    text = prompt.render(count=len(cast.names), cast=cast.listing())
    ingredients = _ingredients(clip, settings, text, {"prompt": prompt.identity, "cast": cast.sha256})
    who = Question("who", text, ingredients, lambda reply: parse_who(reply, cast.names), who_pattern(len(cast.names)))
    return [who, what]


def _ingredients(clip: Clip, settings: CaptionSettings, text: str, about: dict[str, Any]) -> dict[str, Any]:
    inputs = {"clip": clip.sha256, "pictures": _PICTURES, "text": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {**reply_settings(settings), **inputs, **about}


@dataclass(frozen=True)
class ClipPictures:
    """Pictures of a clip for both questions."""

    grid: Picture
    frames: tuple[Picture, ...]


def view_clip(path: Path, *, tiles: bool) -> ClipPictures:
    """Read the grid for the first question and the frames for the second.

    Raises:
        RecordError: the clip file cannot be read.
    """
    frames_THWC = read_clip(path)
    shown = _shown_frames(len(frames_THWC))
    pictures = [_scaled(frames_THWC[index]) for index in spread(len(frames_THWC), shown)]
    corners = [_scaled(frames_THWC[index]) for index in spread(len(frames_THWC), GRID_FRAMES)]
    grid_HWC = np.vstack([np.hstack(corners[:2]), np.hstack(corners[2:])])
    return ClipPictures(
        grid=Picture(_jpeg(grid_HWC), _GRID_TILES if tiles else None),
        frames=tuple(Picture(_jpeg(picture), _FRAME_TILES if tiles else None) for picture in pictures),
    )


def pictures_for(question: Question, views: ClipPictures, cast: Cast, *, tiles: bool) -> Sequence[Picture]:
    """Return the pictures of a question, in the order in which its text refers to them."""
    if question.request == "what":
        return views.frames
    return (Picture(cast.sheet_jpeg, _SHEET_TILES if tiles else None), views.grid)


def conversation(question: Question, pictures: Sequence[Picture], replies: Sequence[Reply]) -> list[Message]:
    """Return the messages to send: the question, then every unusable reply so far with its fault."""
    messages = [user(question.text, pictures)]
    for reply in replies:
        fault = question.fault_in(reply)
        messages.append(assistant(reply.text[:_LONGEST_QUOTE] or "(no words)"))
        messages.append(user(load_prompt("repair").render(fault=fault or "")))
    return messages


def _shown_frames(frames: int) -> int:
    """Number of frames in the second question, and in its text, for a clip of `frames` frames."""
    return min(FRAMES, frames)


def spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` indices over `count` frames, each in the middle of an equal share; repeated if there are few."""
    return [(2 * position + 1) * count // (2 * wanted) for position in range(wanted)]


def _scaled(picture_HWC: Picture_HWC) -> Picture_HWC:
    """Scale a picture down to the width of the model's input; smaller pictures are unchanged."""
    height, width = picture_HWC.shape[:2]
    if width <= _FRAME_WIDTH_PIXELS:
        return picture_HWC
    size = (_FRAME_WIDTH_PIXELS, round(height * _FRAME_WIDTH_PIXELS / width))
    return np.asarray(cv2.resize(picture_HWC, size, interpolation=cv2.INTER_AREA), np.uint8)


def _jpeg(picture_HWC: Picture_HWC) -> bytes:
    _, content = cv2.imencode(".jpg", picture_HWC, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return content.tobytes()
