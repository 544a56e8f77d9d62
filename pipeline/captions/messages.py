"""Messages to a model, in the form of OpenAI's chat protocol and as JSON, and its replies.

A message shows its pictures first, each after its label, and the text last, as InternVL was trained (`Image-1:`,
`Frame-1:`); lmdeploy keeps the order of the parts since 0.11. `max_dynamic_patch` in a picture is lmdeploy's own key.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

Message = dict[str, Any]
"""One message of a conversation, in the protocol's JSON form, with a `Picture` where its URL stands."""

_PLACE = secrets.token_hex(16)
"""Text in place of a picture's URL, in no text of others."""


@dataclass(frozen=True)
class Picture:
    """A JPEG attached to a message."""

    jpeg: bytes
    tiles: int | None = None
    """Tiles of 448 x 448 that InternVL cuts it into at most, 256 tokens each; None: it is one tile or the default."""

    @cached_property
    def url(self) -> bytes:
        """The picture as a data URL, a JSON string."""
        return b'"data:image/jpeg;base64,%b"' % base64.b64encode(self.jpeg)


@dataclass(frozen=True)
class Reply:
    """A model's reply."""

    text: str
    cut_off: bool = False
    """True if it ended at `max_tokens` rather than where the model ended it."""
    prompt_tokens: int = field(default=0, compare=False)
    """Tokens that the server read for it, pictures included; 0: not reported."""
    reply_tokens: int = field(default=0, compare=False)


def user(text: str, pictures: Sequence[Picture] = (), label: str = "Image") -> Message:
    """Return a user message: pictures, each labelled with its number, and the text that refers to them.

    Args:
        text: the question.
        pictures: the pictures, in order.
        label: kind of the pictures: `Image`, or `Frame` for those of one clip.
    """
    if not pictures:
        return {"role": "user", "content": text}
    parts: list[dict[str, Any]] = []
    for number, picture in enumerate(pictures, start=1):
        image: dict[str, Any] = {"url": picture}
        if picture.tiles is not None:
            image["max_dynamic_patch"] = picture.tiles
        parts.append({"type": "text", "text": f"{label}-{number}: "})
        parts.append({"type": "image_url", "image_url": image})
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def assistant(text: str) -> Message:
    """Return an assistant message: an earlier reply of the model."""
    return {"role": "assistant", "content": text}


def encoded(payload: Mapping[str, Any]) -> bytes:
    """Return a payload as JSON. The URLs of pictures go in as they are: looking for escapes in them takes CPU time."""
    pictures: list[Picture] = []

    def place_of(picture: Picture) -> str:
        pictures.append(picture)
        return _PLACE

    start, *rest = json.dumps(payload, default=place_of).encode().split(b'"%b"' % _PLACE.encode())
    return b"".join((start, *chain.from_iterable(zip((each.url for each in pictures), rest, strict=True))))
