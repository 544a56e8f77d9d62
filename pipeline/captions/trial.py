"""Trial: questions about a few clips spread over a dataset, and what captions of all clips would cost.

    trial = try_captions([(folder, folder.read("screened", Verdict))], stage, 20, progress)
    trial.usable_share, trial.tokens_a_clip, trial.hours_left

The replies are stored as in a build, so the next build queries only the clips without a usable reply.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pipeline.captions.endpoint import counted
from pipeline.captions.questions import spread
from pipeline.captions.reply_cache import Exchange, finish_attempts, load_replies
from pipeline.captions.server_captioner import ServerCaptioner
from pipeline.captions.stage import WriteCaptions, candidates
from pipeline.core.errors import UserError
from pipeline.core.progress import Progress
from pipeline.core.records import Caption, Clip, Verdict
from pipeline.core.store import FilmFolder


@dataclass(frozen=True)
class TriedClip:
    """A clip of the trial with its caption and the exchanges that it was made from."""

    folder: FilmFolder
    clip: Clip
    level: int | None
    caption: Caption
    exchanges: tuple[Exchange, ...]

    @property
    def tokens(self) -> int:
        """Tokens read and written about the clip; 0: not reported."""
        return sum(exchange.prompt_tokens + exchange.reply_tokens for exchange in self.exchanges)


@dataclass(frozen=True)
class Trial:
    """Trial of a captioner, with the figures of the whole dataset."""

    clips: tuple[TriedClip, ...]
    asked: int
    """Clips queried now; the others had their replies already."""
    seconds: float
    """Time of these queries."""
    total: int
    """Clips of the dataset that get a caption."""
    left: int
    """Clips that the next build queries."""

    @property
    def usable_share(self) -> float:
        """Share of the tried clips with a usable caption."""
        return sum(tried.caption.fault is None for tried in self.clips) / len(self.clips)

    @property
    def tokens_a_clip(self) -> float | None:
        """Mean number of tokens for a clip; None if the server reports none."""
        known = [tried.tokens for tried in self.clips if tried.tokens]
        return sum(known) / len(known) if known else None

    @property
    def tokens_left(self) -> float | None:
        """Tokens for the clips left."""
        return None if self.tokens_a_clip is None else self.left * self.tokens_a_clip

    @property
    def hours_left(self) -> float | None:
        """Most hours for the clips left; None if all tried clips had their replies already.

        A few clips do not keep a server busy from the first to the last request, so a build is faster.
        """
        return self.left * self.seconds / self.asked / 3600 if self.asked else None


@dataclass(frozen=True)
class FilmQuestions:
    """Clips or spans of a film that get a caption, with their motion levels, and the captioner."""

    folder: FilmFolder
    clips: Sequence[Clip]
    levels: Mapping[str, int | None]
    captioner: ServerCaptioner

    def pending(self) -> list[str]:
        """Ids of the clips with an open question."""
        return self.captioner.pending(self.folder, self.clips, self.levels, {})[0]

    def captions(self) -> list[Caption]:
        """Captions by the replies stored so far; one without a reply has no tags."""
        return self.captioner.collected(self.folder, self.clips, self.levels, {})

    def left(self, *, ask_again: bool) -> int:
        """Number of clips that the next build queries."""
        of_build = replace(self.captioner, ask_again=ask_again, renews=False)
        of_build = of_build.renewed(self.folder, self.clips, self.levels)
        return len(replace(self, captioner=of_build).pending())


def try_captions(
    screened: Sequence[tuple[FilmFolder, Sequence[Verdict]]], stage: WriteCaptions, count: int, progress: Progress
) -> Trial:
    """Caption `count` clips, spread evenly over the clips that get a caption, and store the replies.

    Raises:
        UserError: there are no clips, or the service cannot be used.
    """
    films = [
        FilmQuestions(folder, *candidates(folder, verdicts), trial_captioner(stage, folder))
        for folder, verdicts in screened
    ]
    if not any(film.clips for film in films):
        raise UserError("no clips to ask about: first build the dataset, at least `--until motion`")
    return try_questions(films, count, progress, ask_again=stage.ask_again)


def trial_captioner(stage: WriteCaptions, folder: FilmFolder) -> ServerCaptioner:
    """Return the captioner of a film that also retries clips with unusable replies."""
    settings = stage.settings.model_copy(update={"keep_old": False})
    return replace(stage.server_for(folder), settings=settings, ask_again=True, renews=True)


@counted()
def try_questions(films: Sequence[FilmQuestions], count: int, progress: Progress, *, ask_again: bool) -> Trial:
    """Caption `count` of the clips of some films, spread evenly. Raises UserError if the service cannot be used."""
    places = [(film.folder.film_id, clip) for film in films for clip in film.clips]
    chosen = [places[place] for place in spread(len(places), min(count, len(places)))]
    tried: list[TriedClip] = []
    asked, seconds = 0, 0.0
    for film in films:
        folder, levels, captioner = film.folder, film.levels, film.captioner
        clips = [clip for film_id, clip in chosen if film_id == folder.film_id]
        finish_attempts(folder, (clip.clip_id for clip in clips))  # a killed build may have left unfinished attempts
        asked += len(captioner.pending(folder, clips, levels, {})[0])
        started, report = time.monotonic(), partial(_report, progress, len(tried), len(chosen))
        failures: dict[str, str] = {}
        captioner.ask(folder, clips, levels, report, failures)
        captions = captioner.collected(folder, clips, levels, failures)
        seconds += time.monotonic() - started
        pairs = zip(clips, captions, strict=True)
        tried += [tried_clip(folder, clip, levels[clip.clip_id], row) for clip, row in pairs]
    return Trial(tuple(tried), asked, seconds, len(places), sum(film.left(ask_again=ask_again) for film in films))


def _report(progress: Progress, before: int, total: int, done: float, _: float) -> None:
    progress(before + done, total)


def tried_clip(folder: FilmFolder, clip: Clip, level: int | None, caption: Caption) -> TriedClip:
    """Find the exchanges whose last replies the caption was made from."""
    stored = load_replies(folder, clip.clip_id).exchanges.values()
    last = {(exchange.request, exchange.replies[-1]): exchange for exchange in stored}
    wanted = (("who", caption.raw_who), ("what", caption.raw_what))
    return TriedClip(folder, clip, level, caption, tuple(last[key] for key in wanted if key in last))
