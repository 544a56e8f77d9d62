"""The two questions of the method about a clip: their words, their pictures, and what makes two of them the same.

    who    the numbered cast sheet and a grid of four frames   -> which of the cast are on screen
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
from pipeline.captions.chat_client import Message, Picture, assistant, user
from pipeline.core.config import CaptionSettings
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import Clip
from pipeline.video.clip_files import read_clip
from prompts.tags import EXAMPLE, TagError, WhatReply, WhoReply, format_what, parse_what, parse_who
from prompts.template import load_prompt

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

    @cached_property
    def fingerprint(self) -> str:
        """Equal for questions that must get equal answers."""
        return fingerprint(self.ingredients)

    def fault_in(self, reply: str) -> str | None:
        """What is wrong with a reply, in a sentence to the model; None if it is good."""
        try:
            self.read(reply)
        except TagError as error:
            return str(error)
        return None


def asked_of(settings: CaptionSettings) -> dict[str, Any]:
    """The settings that an answer depends on: the model and how it is made to answer."""
    return settings.model_dump(include={"model", "revision", "temperature", "max_tokens", "tiles"})


def questions_about(clip: Clip, level: int, settings: CaptionSettings, cast: Cast) -> list[Question]:
    """What there is to ask about a clip, in order; without a cast nobody asks who is there."""
    prompt = load_prompt("what")
    text = prompt.render(frames=_shown_frames(clip.frames), level=level, example=format_what(EXAMPLE))
    ingredients = _ingredients(clip, settings, text, {"prompt": prompt.identity, "level": level})
    what = Question("what", text, ingredients, parse_what)
    if not cast.names:
        return [what]
    prompt = load_prompt("who")
    text = prompt.render(count=len(cast.names), cast=cast.listing())
    ingredients = _ingredients(clip, settings, text, {"prompt": prompt.identity, "cast": cast.sha256})
    return [Question("who", text, ingredients, lambda reply: parse_who(reply, len(cast.names))), what]


def _ingredients(clip: Clip, settings: CaptionSettings, text: str, about: dict[str, Any]) -> dict[str, Any]:
    seen = {"clip": clip.sha256, "pictures": _PICTURES, "text": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {**asked_of(settings), **seen, **about}


@dataclass(frozen=True)
class ClipPictures:
    """A clip as the captioner sees it."""

    grid: Picture
    frames: tuple[Picture, ...]


def view_clip(path: Path, *, tiles: bool) -> ClipPictures:
    """The grid for the first question and the frames for the second.

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
    """The pictures that go with a question, in the order its text speaks of them."""
    if question.request == "what":
        return views.frames
    return (Picture(cast.sheet_jpeg, _SHEET_TILES if tiles else None), views.grid)


def conversation(question: Question, pictures: Sequence[Picture], replies: Sequence[str]) -> list[Message]:
    """The question, and after it every unusable reply so far with its fault named."""
    messages = [user(question.text, pictures)]
    for reply in replies:
        fault = question.fault_in(reply)
        messages.append(assistant(reply[:_LONGEST_QUOTE] or "(no words)"))
        messages.append(user(load_prompt("repair").render(fault=fault or "")))
    return messages


def _shown_frames(frames: int) -> int:
    """How many frames of a clip of so many the second question shows, and says that it shows."""
    return min(FRAMES, frames)


def spread(count: int, wanted: int) -> list[int]:
    """`wanted` indices evenly spaced over `count` frames, each in the middle of its share; repeats if there are few."""
    return [(2 * position + 1) * count // (2 * wanted) for position in range(wanted)]


def _scaled(picture_HWC: Picture_HWC) -> Picture_HWC:
    """At the width the model is asked at; smaller clips stay as they are."""
    height, width = picture_HWC.shape[:2]
    if width <= _FRAME_WIDTH_PIXELS:
        return picture_HWC
    size = (_FRAME_WIDTH_PIXELS, round(height * _FRAME_WIDTH_PIXELS / width))
    return np.asarray(cv2.resize(picture_HWC, size, interpolation=cv2.INTER_AREA), np.uint8)


def _jpeg(picture_HWC: Picture_HWC) -> bytes:
    _, content = cv2.imencode(".jpg", picture_HWC, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return content.tobytes()
