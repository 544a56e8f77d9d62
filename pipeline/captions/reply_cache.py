"""What a captioner answered, kept for good: `films/<film_id>/replies/<clip_id>.json`, a file per clip.

A reply is paid for, so it is written the moment it arrives (atomically: a kill loses only what is in flight) and found
again by what was asked, not by when or in which run: each question has a fingerprint of everything its answer depends
on, and a clip keeps the exchanges of several fingerprints side by side. Changing the cast asks only who is on screen
again; changing back asks nothing. Only the words are kept. Whether they are good is decided anew whenever they are
read, so a better parser mends old replies for free.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from pipeline.core.atomic import write_json
from pipeline.core.records import Record
from pipeline.core.store import FilmFolder, StoreError


class Exchange(Record):
    """One question and every reply to it: the first, then one for each repair."""

    request: str = Field(description="`who` or `what`")
    ingredients: dict[str, Any] = Field(description="what the fingerprint is made of, for people")
    replies: tuple[str, ...]


class Replies(Record):
    """All that was ever answered about one clip, by the fingerprint of the question."""

    clip_id: str
    exchanges: dict[str, Exchange] = Field(default_factory=dict)

    def to(self, fingerprint: str) -> tuple[str, ...]:
        """The replies to the question with this fingerprint, in the order they came; empty if it was never asked."""
        exchange = self.exchanges.get(fingerprint)
        return exchange.replies if exchange else ()

    def adding(self, fingerprint: str, exchange: Exchange) -> Replies:
        """The same with this exchange put in."""
        return Replies(clip_id=self.clip_id, exchanges={**self.exchanges, fingerprint: exchange})


def load_replies(folder: FilmFolder, clip_id: str) -> Replies:
    """What is kept about a clip, or nothing.

    Raises:
        StoreError: the file is there but was not written by this program.
    """
    path = _path(folder, clip_id)
    try:
        kept = Replies.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Replies(clip_id=clip_id)
    except (OSError, ValidationError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); delete it to ask about the clip again") from error
    if kept.clip_id != clip_id:
        raise StoreError(f"{path}: holds the replies about {kept.clip_id}; delete it to ask about the clip again")
    return kept


def save_replies(folder: FilmFolder, replies: Replies) -> None:
    """Keep them: on disk when this returns."""
    write_json(_path(folder, replies.clip_id), replies.model_dump(mode="json"))


def _path(folder: FilmFolder, clip_id: str) -> Path:
    return folder.path / "replies" / f"{clip_id}.json"
