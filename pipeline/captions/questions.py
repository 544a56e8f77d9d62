"""Questions about a clip: text, pictures and fingerprint of the method's two requests to a vision-language model.

    who    the numbered cast sheets and a grid of four frames   -> characters of the cast on screen
    what   up to eight frames in order, the measured motion level and the characters found
           -> S MD EV MA SC ET ST, the actor, a sentence

The pictures are InternVL's tiles of 448 x 448. InternVL squeezes a picture to whole tiles, 256 tokens each, and adds a
thumbnail to several. A frame squeezed to one tile here, not cropped, costs 256 tokens on every server, whether or not
it reads `max_dynamic_patch`; the grid of two by two tiles costs 1,280. The sheets are painted in `cast.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import Message, Picture, Reply, assistant, user
from pipeline.core.config import CaptionSettings
from pipeline.core.dialogue import SpokenLine
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import Clip
from pipeline.video import clip_files
from prompts.tags import (
    EXAMPLE,
    EXAMPLE_NAMES,
    EXAMPLE_WITH_ACTOR,
    TagError,
    WhatReply,
    WhoReply,
    format_what,
    what_pattern,
    who_pattern,
)
from prompts.template import load_prompt
from prompts.what_replies import parse_what
from prompts.who_replies import parse_who

R = TypeVar("R", WhoReply, WhatReply)
_LONGEST_QUOTE = 2000
TILE_PIXELS, QUALITY = 448, 90
FRAMES, GRID_FRAMES = 8, 4
PICTURES = (
    f"{FRAMES} frames and {GRID_FRAMES} of them in a grid, {TILE_PIXELS} px square, quality {QUALITY}, "
    "labelled, before the text"
)
"""The pictures as an ingredient of every reply."""


@dataclass(frozen=True)
class Question(Generic[R]):
    """One request about one clip, without its pictures."""

    request: str
    """`who` or `what`."""
    text: str
    ingredients: dict[str, Any]
    read: Callable[[str], R]
    pattern: str
    """Regular expression of the replies in the requested form, for servers with guided decoding."""

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


AnyQuestion: TypeAlias = Question[WhoReply] | Question[WhatReply]


def reply_settings(settings: CaptionSettings) -> dict[str, Any]:
    """Return the settings that a reply depends on: the model and its sampling parameters."""
    wanted = ("model", "revision", "temperature", "max_tokens", "tiles", "guided")
    return {key: value for key, value in settings.ingredients().items() if key in wanted}


def who_question(clip: Clip, settings: CaptionSettings, cast: Cast) -> Question[WhoReply]:
    """Return the first question: the characters of the cast in the clip, and the number of other people."""
    prompt = load_prompt("who")
    text = prompt.render(count=len(cast.names), cast=cast.listing())
    ingredients = _ingredients(clip, settings, text, {"prompt": prompt.identity, "cast": cast.sha256})
    return Question("who", text, ingredients, lambda reply: parse_who(reply, cast.names), who_pattern(len(cast.names)))


def what_question(
    clip: Clip,
    level: int,
    settings: CaptionSettings,
    names: Sequence[str] = (),
    said: Sequence[SpokenLine] = (),
    *,
    is_span: bool = False,
) -> Question[WhatReply]:
    """Return the second question: what happens, and which of the characters found by the first one acts.

    `said` are the lines heard in the clip, if the question shows them. `is_span`: it is a span of several clips.
    """
    prompt, actor, example = load_prompt("what"), "", format_what(EXAMPLE)
    identity = {"prompt": prompt.identity}
    if names:
        naming = load_prompt("actor")
        identity["actor"] = naming.identity
        actor = naming.render(names=", ".join(names)) + "\n"
        example = format_what(EXAMPLE_WITH_ACTOR, EXAMPLE_NAMES)
    text = prompt.render(frames=shown_frames(clip.frames), level=level, actor=actor, example=example)
    if is_span:
        longer = load_prompt("span")
        identity["span"] = longer.identity
        text = f"{longer.render(seconds=f'{clip.end_seconds - clip.start_seconds:.1f}')}\n\n{text}"
    if said:
        heard = load_prompt("dialogue")
        identity["dialogue"] = heard.identity
        text = f"{heard.render(lines=_listed(said))}\n\n{text}"
    ingredients = _ingredients(clip, settings, text, {**identity, "level": level, "names": list(names)})
    return Question("what", text, ingredients, lambda reply: parse_what(reply, names), what_pattern(names))


def _listed(said: Sequence[SpokenLine]) -> str:
    lines = [f"{line.start_seconds:.1f} {json.dumps(line.said, ensure_ascii=False)}" for line in said]
    return "\n".join(lines)[:_LONGEST_QUOTE]


def _ingredients(clip: Clip, settings: CaptionSettings, text: str, about: dict[str, Any]) -> dict[str, Any]:
    inputs = {"clip": clip.sha256, "pictures": PICTURES, "text": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {**reply_settings(settings), **inputs, **about}


def conversation(question: AnyQuestion, views: ClipPictures, cast: Cast, replies: Sequence[Reply]) -> list[Message]:
    """Return the messages to send: the pictures, the question, then every unusable reply so far with its fault."""
    if question.request == "what":
        messages = [user(question.text, views.frames, "Frame")]
    else:
        messages = [user(question.text, (*cast.sheets, views.grid))]
    for reply in replies:
        fault = question.fault_in(reply)
        messages.append(assistant(reply.text[:_LONGEST_QUOTE] or "(no words)"))
        messages.append(user(load_prompt("repair").render(fault=fault or "")))
    return messages


@dataclass(frozen=True)
class ClipPictures:
    """Pictures of a clip for both questions."""

    grid: Picture
    frames: tuple[Picture, ...]


def view_clip(path: Path) -> ClipPictures:
    """Read the grid for the first question and the frames for the second. Raises RecordError."""
    return pictures_of(clip_files.read_frames(path, _shown, TILE_PIXELS, TILE_PIXELS))


def view_span(paths: Sequence[Path], clips: Sequence[Clip], start_seconds: float, end_seconds: float) -> ClipPictures:
    """Read the pictures of a span from the files of the clips that it covers, in time order. Raises RecordError."""
    shown: dict[int, list[int]] = {}
    for moment in spread(1000, FRAMES):
        seconds = start_seconds + (end_seconds - start_seconds) * moment / 1000
        place = max((place for place, clip in enumerate(clips) if clip.start_seconds <= seconds), default=0)
        clip = clips[place]
        frame = int((seconds - clip.start_seconds) * clip.fps)
        shown.setdefault(place, []).append(min(max(frame, 0), clip.frames - 1))
    parts = [
        clip_files.read_frames(paths[place], partial(_these, frames), TILE_PIXELS, TILE_PIXELS)
        for place, frames in shown.items()
    ]
    return pictures_of(np.concatenate(parts))


def _these(frames: list[int], _: int) -> list[int]:
    return frames


def pictures_of(frames_THWC: NDArray[np.uint8]) -> ClipPictures:
    """Return the grid for the first question and the frames for the second."""
    first, second, third, fourth = (frames_THWC[index] for index in spread(len(frames_THWC), GRID_FRAMES))
    grid_HWC = np.vstack((np.hstack((first, second)), np.hstack((third, fourth))))
    return ClipPictures(
        grid=Picture(_jpeg(grid_HWC), tiles=GRID_FRAMES),
        frames=tuple(Picture(_jpeg(frame_HWC)) for frame_HWC in frames_THWC),
    )


def _jpeg(picture_HWC: NDArray[np.uint8]) -> bytes:
    settings = [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
    settings += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420]
    return cv2.imencode(".jpg", picture_HWC, settings)[1].tobytes()


def shown_frames(frames: int) -> int:
    """Number of frames in the second question, and in its text, for a clip of `frames` frames."""
    return min(FRAMES, frames)


def spread(count: int, wanted: int) -> list[int]:
    """Return `wanted` indices over `count` frames, each in the middle of an equal share; repeated if there are few."""
    return [(2 * position + 1) * count // (2 * wanted) for position in range(wanted)]


def _shown(frames: int) -> list[int]:
    return spread(frames, shown_frames(frames))
