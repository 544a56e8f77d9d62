"""Tables of clips that DiffSynth-Studio and VideoX-Fun read.

From diffsynth/core/data/unified_dataset.py and videox_fun/data/dataset_image_video.py.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tests.support.trainers.grammar.exact import Exact


class SynthRow(Exact):
    """A clip of metadata.jsonl."""

    video: str
    prompt: Annotated[str, Field(min_length=1)]


class FunRow(Exact):
    """A clip of metadata.json."""

    file_path: str
    text: Annotated[str, Field(min_length=1)]
    type: Literal["video"]
    width: int
    height: int
