"""Captions and reviews that still match when a film is cut again.

A caption belongs to the content of its clip, so it needs the same clip. A review needs a clip that shares most of its
time (`matching.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from pipeline.captions.answers import is_good
from pipeline.captions.reply_cache import has_replies
from pipeline.core.config import ReviewSettings
from pipeline.core.errors import UserError
from pipeline.core.plain_text import counted
from pipeline.core.progress import watcher
from pipeline.core.records import Caption, Clip
from pipeline.core.store import FilmFolder
from pipeline.reviews.applied import review_path
from pipeline.reviews.decisions import Decision, read_decisions
from pipeline.reviews.matching import LEAST_SHARE, match


def captions_and_reviews(folder: FilmFolder, decisions: Iterable[Decision]) -> tuple[list[Clip], list[Decision]]:
    """Return the captioned clips of a film, and the decisions about its clips; none if a table is damaged."""
    with suppress(UserError, OSError):
        clips = folder.read_if_made("clips", Clip)
        good = {row.clip_id for row in folder.read_if_made("captions", Caption) if is_good(row)}
        captioned = [clip for clip in clips if clip.clip_id in good or has_replies(folder, clip.clip_id)]
        return captioned, _matched(folder, clips, decisions)
    return [], []


def say_what_matches(folder: FilmFolder, clips: Sequence[Clip], settings: ReviewSettings) -> None:
    """Say how many captions and reviews of a film match its new clips, before these replace the clips on disk."""
    with suppress(UserError, OSError):  # a damaged file stops the publishing later
        decisions = read_decisions(review_path(folder.path.parents[1], settings)).decisions
        captioned, reviews = captions_and_reviews(folder, decisions)
        same = {(clip.clip_id, clip.sha256) for clip in clips}.intersection((c.clip_id, c.sha256) for c in captioned)
        found = [
            f"{part:,} of {counted(whole, noun)}"
            for part, whole, noun in (
                (len(same), len(captioned), "caption"),
                (len(_matched(folder, clips, reviews)), len(reviews), "review"),
            )
            if whole
        ]
        if found:
            watcher.get().say(
                f"{folder.film.name} is cut again: {' and '.join(found)} still match; a caption needs the same clip, "
                f"a review {LEAST_SHARE:.0%} of its time"
            )


def _matched(folder: FilmFolder, clips: Sequence[Clip], decisions: Iterable[Decision]) -> list[Decision]:
    by_clip = match(decisions, {folder.film.sha256: clips}).by_clip
    return [decision for found in by_clip.values() for decision in found]
