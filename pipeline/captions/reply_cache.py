"""Reply cache: a captioner's replies on disk, one file per clip, `films/<film_id>/replies/<clip_id>.json`.

Replies may cost money, so each is written as soon as it arrives (atomically: a kill loses only requests in flight).
The key is a fingerprint of everything the reply depends on, not of the time or the run. A clip keeps the exchanges of
several fingerprints, so a cast that is changed and changed back sends nothing. The file stores the text, how it ended
and its tokens. The text is parsed at every use, so a better parser works on old replies at no cost.

If all replies to a question are unusable, repairs included, a new attempt may follow: the question is sent as if for
the first time, and only the replies of the last attempt count. The earlier replies stay stored. A new attempt is
`unfinished` until its command has collected the captions, so the build after a killed one continues it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from pipeline.captions.endpoint import Reply
from pipeline.core.atomic import write_json
from pipeline.core.records import Record
from pipeline.core.store import FilmFolder, StoreError


class Exchange(Record):
    """One question and every reply to it, by attempt: the first, then one for each repair."""

    request: str = Field(description="`who` or `what`")
    ingredients: dict[str, Any] = Field(description="inputs of the fingerprint, in readable form")
    replies: tuple[str, ...]
    anew: tuple[int, ...] = Field(default=(), description="positions in `replies` at which a new attempt begins")
    unfinished: bool = Field(default=False, description="true: no command has ended since the last new attempt began")
    cut_off: tuple[int, ...] = Field(default=(), description="positions in `replies` of replies that were cut off")
    prompt_tokens: int = Field(default=0, description="tokens that the server read for all replies; 0: not reported")
    reply_tokens: int = Field(default=0, description="tokens of all replies")

    @field_validator("anew")
    @classmethod
    def _check_anew(cls, anew: tuple[int, ...], others: ValidationInfo) -> tuple[int, ...]:
        """Reject invalid positions: with them, a question would be sent for ever."""
        if list(anew) != sorted({number for number in anew if 0 < number < len(others.data.get("replies", ()))}):
            raise ValueError("no positions at which an attempt begins")
        return anew

    def adding(self, reply: Reply, *, anew: bool) -> Exchange:
        """Return a copy with the next reply, `anew`: the first of a new attempt."""
        cut_off = (*self.cut_off, len(self.replies)) if reply.cut_off else self.cut_off
        return Exchange(
            request=self.request,
            ingredients=self.ingredients,
            replies=(*self.replies, reply.text),
            anew=(*self.anew, len(self.replies)) if anew else self.anew,
            unfinished=anew or self.unfinished,
            cut_off=cut_off,
            prompt_tokens=self.prompt_tokens + reply.prompt_tokens,
            reply_tokens=self.reply_tokens + reply.reply_tokens,
        )


class Replies(Record):
    """All exchanges about one clip, by the fingerprint of the question."""

    clip_id: str
    exchanges: dict[str, Exchange] = Field(default_factory=dict)
    failure: str | None = Field(default=None, description="reason that its last batch got no reply; null: none")

    def to(self, fingerprint: str) -> tuple[Reply, ...]:
        """Return the replies of the last attempt at the question with this fingerprint, oldest first, if any."""
        exchange = self.exchanges.get(fingerprint)
        if exchange is None:
            return ()
        every = [Reply(text, number in exchange.cut_off) for number, text in enumerate(exchange.replies)]
        return tuple(every[exchange.anew[-1] if exchange.anew else 0 :])

    @property
    def is_unfinished(self) -> bool:
        """True if a new attempt at one of the questions was begun, and its command has not ended."""
        return any(exchange.unfinished for exchange in self.exchanges.values())

    def finished(self) -> Replies:
        """Return a copy without unfinished attempts."""
        exchanges = {key: each.model_copy(update={"unfinished": False}) for key, each in self.exchanges.items()}
        return self.model_copy(update={"exchanges": exchanges})

    def adding(
        self, fingerprint: str, request: str, ingredients: dict[str, Any], reply: Reply, *, anew: bool = False
    ) -> Replies:
        """Return a copy with one more reply to the question with this fingerprint, `anew`: of a new attempt."""
        asked = self.exchanges.get(fingerprint) or Exchange(request=request, ingredients=ingredients, replies=())
        exchange = asked.adding(reply, anew=anew and bool(asked.replies))
        return Replies(clip_id=self.clip_id, exchanges={**self.exchanges, fingerprint: exchange})


def has_replies(folder: FilmFolder, clip_id: str) -> bool:
    """Return true if a file of replies about a clip is stored; it is not read."""
    return _path(folder, clip_id).exists()


def load_replies(folder: FilmFolder, clip_id: str) -> Replies:
    """Read the replies about a clip; empty if there are none. Raises StoreError if the file is damaged."""
    return read_replies(_path(folder, clip_id), clip_id)


def save_replies(folder: FilmFolder, replies: Replies) -> None:
    """Write the replies; they are on disk when this returns."""
    write_replies(_path(folder, replies.clip_id), replies)


def finish_attempts(folder: FilmFolder, clip_ids: Iterable[str]) -> None:
    """Note that no command is querying these clips any more, so the next one may begin a new attempt."""
    for kept in (load_replies(folder, clip_id) for clip_id in clip_ids):
        if kept.is_unfinished:
            save_replies(folder, kept.finished())


def note_failures(folder: FilmFolder, failures: Mapping[str, str]) -> None:
    """Note the reason that a clip got no reply, by clip id; this build does not query it again."""
    for clip_id, reason in failures.items():
        save_replies(folder, load_replies(folder, clip_id).model_copy(update={"failure": reason}))


def read_replies(path: Path, clip_id: str) -> Replies:
    """Read a file of replies, about a clip or another subject, as `load_replies`."""
    try:
        kept = Replies.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Replies(clip_id=clip_id)
    except (OSError, ValidationError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); delete it to send the question again") from error
    if kept.clip_id != clip_id:
        raise StoreError(f"{path} holds the replies about {kept.clip_id}; delete it to send the question again")
    return kept


def write_replies(path: Path, replies: Replies) -> None:
    """Write a file of replies; they are on disk when this returns."""
    write_json(path, replies.model_dump(mode="json"))


def _path(folder: FilmFolder, clip_id: str) -> Path:
    return folder.path / "replies" / f"{clip_id}.json"
