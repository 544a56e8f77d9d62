"""Strict tables, the base of every grammar: a key that a trainer does not know is an error.

Written down from the trainers' sources, which each module names. Most trainers ignore a key that they do not know, so a
misspelt one would be found only by its effect.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Pair = Annotated[list[int], Field(min_length=2, max_length=2)]
Triple = Annotated[list[int], Field(min_length=3, max_length=3)]


class Exact(BaseModel):
    """Table in which every key is known and every value has the type of the trainer's."""

    model_config = ConfigDict(extra="forbid", strict=True)
