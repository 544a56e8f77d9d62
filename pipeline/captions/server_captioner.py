"""Server captioner: both questions about every clip, sent to a vision-language model behind an endpoint.

A reply that the tag grammar rejects is sent back with its fault, up to `repairs` times. After that the clip is
quarantined: its caption has the fault and the model's raw replies, but no tags. (If only the characters on screen were
not found, the rest is kept; see `answers.py`.) Every reply is cached by clip id (`reply_cache.py`), and a usable reply
is never requested again. If so many replies are unusable that the film would fail, or if the user asks for it, a new
attempt requests them again (`renewed`). Replies are matched to clips by id and fingerprint, so they may arrive in any
order. A request that the server could not answer is not cached: the next build repeats it, this one does not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import cv2

from pipeline.captions.answers import LOST, Answers, Repeats, changes_of, is_good, kept_caption
from pipeline.captions.asking import AskingLoop
from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import Endpoint
from pipeline.captions.questions import ClipPictures, conversation, reply_settings, view_clip, view_span
from pipeline.captions.reply_cache import finish_attempts, has_replies, load_replies, save_replies
from pipeline.captions.rules import flagged
from pipeline.core.config import CaptionSettings
from pipeline.core.dialogue import NO_DIALOGUE, Dialogue
from pipeline.core.progress import Progress
from pipeline.core.records import Caption, Clip
from pipeline.core.store import FilmFolder, StoreError
from prompts.tags import READING
from prompts.template import load_prompt

if TYPE_CHECKING:
    from pipeline.captions.chat_client import ChatClient

LevelsByClip = Mapping[str, int | None]
"""Motion level by clip id; None: not measured."""


@dataclass(frozen=True)
class ServerCaptioner:
    """Both questions about each clip, for one configuration and cast."""

    settings: CaptionSettings
    cast: Cast
    ask_again: bool = False
    """True: query clips with a good caption too, if the question changed or the stored replies are gone."""
    renews: bool = False
    """True: make a new attempt at the questions without a usable reply, except in an unfinished attempt."""
    dialogue: Dialogue = NO_DIALOGUE
    """Dialogue of the film, if the questions show it."""
    spans: Mapping[str, tuple[Clip, ...]] = field(default_factory=dict)
    """The clips that each span covers, in time order, by the id of the record that stands for the span."""

    def ingredients(self) -> dict[str, Any]:
        """Ingredients of the captions; the server's address and concurrency do not change them."""
        return {
            "captioner": "server",
            "reading": READING,
            "repairs": self.settings.repairs,
            "prompts": [load_prompt(name).identity for name in ("who", "what", "actor", "repair")],
            "cast": self.cast.sha256,
            **reply_settings(self.settings),
            **({"keep_old": True} if self.settings.keep_old else {}),
            **({"dialogue": load_prompt("dialogue").identity} if self.settings.dialogue else {}),
        }

    def pending(
        self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip, made: Mapping[str, Caption]
    ) -> tuple[list[str], bool]:
        """Return the ids of the clips still to ask, and whether stored replies are missing from `made`.

        `made` holds the rows of the table by clip id; a killed build may not have collected all replies into it.
        """
        waiting, uncollected = [], False
        for answers in self._all_answers(folder, clips, levels):
            if answers.open_question:
                waiting.append(answers.clip.clip_id)
            elif row := made.get(answers.clip.clip_id):
                is_newer = row.model_dump(include={"raw_who", "raw_what"}) != answers.raw
                uncollected = uncollected or is_newer or answers.kept.is_unfinished
        return waiting, uncollected

    def renewed(self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip) -> ServerCaptioner:
        """Return a captioner that reopens the closed questions of a film, or this one if they should stay closed.

        They are reopened with `ask_again`, or if so many captions have a fault that the film would fail. Clips of an
        unfinished attempt count as faulty, so the build after a killed one makes the same decision.
        """
        every = self._all_answers(folder, clips, levels)
        faulty = sum(each.kept.is_unfinished or bool(each.is_given_up and each.caption(None).fault) for each in every)
        unmeasured = sum(levels[clip.clip_id] is None for clip in clips)
        fails = is_beyond(faulty + unmeasured, len(clips), self.settings)
        return replace(self, renews=True) if self.ask_again or fails else self

    def most_requests(self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip) -> int:
        """Return the most requests that a new attempt at the clips without a caption takes."""
        return sum(answers.most_requests for answers in self._all_answers(folder, clips, levels))

    def repeats(self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip) -> Repeats:
        """Return the clips with a good caption that would be queried again."""
        found = self._repeats(folder, clips, levels, _rows(folder))
        return found.without(self._old_captions(folder, clips, levels))

    def _repeats(
        self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip, made: Mapping[str, Caption]
    ) -> Repeats:
        found: dict[str, Mapping[str, str]] = {}
        for clip in clips:
            answers, row = self._answers(folder, clip, levels), made.get(clip.clip_id)
            question = answers.open_question
            if question and not answers.kept.exchanges and is_good(row):
                found[clip.clip_id] = LOST
            elif question and answers.kept.exchanges and (changes := changes_of(question, answers.kept, row)):
                found[clip.clip_id] = changes
        return Repeats(found)

    def _old_captions(self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip) -> dict[str, Caption]:
        """Return the captions to keep although their question would be retried, by clip id.

        A caption is kept if its stored replies are gone, and with `keep_old` also if its question changed.
        """
        made = {} if self.ask_again else _rows(folder)
        if self.settings.keep_old:
            changes = self._repeats(folder, clips, levels, made).changes
        else:
            good = [clip.clip_id for clip in clips if is_good(made.get(clip.clip_id))]
            changes = {clip_id: LOST for clip_id in good if not has_replies(folder, clip_id)}
        old = {clip_id: kept_caption(made.get(clip_id), why, self.settings.model) for clip_id, why in changes.items()}
        return {clip_id: caption for clip_id, caption in old.items() if caption}

    def captions(
        self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip, progress: Progress
    ) -> list[Caption]:
        """Ask the open questions, except about clips that failed in their batch; return a caption of each clip.

        Raises:
            UserError: the service as a whole cannot be used; replies received before are cached.
        """
        waiting = self._waiting(folder, clips, levels)
        failed = {clip_id: answers.kept.failure for clip_id, answers in waiting.items() if answers.kept.failure}
        rest = [clip for clip in clips if clip.clip_id not in failed]
        self.ask(folder, rest, levels, progress, failed)
        return self.collected(folder, clips, levels, failed)

    def collected(
        self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip, failures: Mapping[str, str]
    ) -> list[Caption]:
        """Return a caption from the cached replies of each clip, in the order of `clips`, or with its failure.

        This ends the current attempts, so the next build or trial may begin new ones.
        """
        finish_attempts(folder, (clip.clip_id for clip in clips))
        old, settled = self._old_captions(folder, clips, levels), replace(self, renews=False)
        rows = [
            old.get(clip.clip_id) or settled._answers(folder, clip, levels).caption(failures.get(clip.clip_id))
            for clip in clips
        ]
        return flagged(rows, clips, levels)

    def ask(
        self,
        folder: FilmFolder,
        clips: Sequence[Clip],
        levels: LevelsByClip,
        progress: Progress,
        failures: dict[str, str],
    ) -> None:
        """Ask the open questions about these clips and cache the replies.

        `failures` receives the reason that a clip file or the server failed, by clip id, also after an early end.

        Raises:
            UserError: the service as a whole cannot be used; replies received before are cached.
        """
        waiting = self._waiting(folder, clips, levels)
        progress(len(clips) - len(waiting), len(clips))
        if not waiting:
            return
        failed_before = {clip_id for clip_id, answers in waiting.items() if answers.kept.failure}
        cv2.setNumThreads(1)  # pictures are prepared in parallel: OpenCV's own threads would only compete for cores
        with ThreadPoolExecutor(os.cpu_count()) as preparing:  # more threads would only take more memory
            ask = partial(self._ask_about, folder, preparing)
            loop = AskingLoop(_endpoint(self.settings), waiting, ask, failed_before=failed_before)
            try:
                asyncio.run(loop.run(lambda: progress(len(clips) - loop.left, len(clips))))
            finally:
                failures |= loop.failures

    async def _ask_about(self, folder: FilmFolder, preparing: Executor, client: ChatClient, answers: Answers) -> None:
        """Ask the open questions about one clip, each until a reply is usable or its repairs are used up."""
        views = await asyncio.get_running_loop().run_in_executor(preparing, self._view, folder, answers.clip)
        while question := answers.open_question:
            messages = conversation(question, views, self.cast, answers.to_repair(question))
            answers = answers.with_reply(question, await client.chat(messages, question.pattern))
            await asyncio.to_thread(save_replies, folder, answers.kept)

    def _view(self, folder: FilmFolder, clip: Clip) -> ClipPictures:
        """Read the pictures of a clip or span. Raises RecordError."""
        if (covered := self.spans.get(clip.clip_id)) is None:
            return view_clip(folder.clip_path(clip.clip_id))
        paths = [folder.clip_path(each.clip_id) for each in covered]
        return view_span(paths, covered, clip.start_seconds, clip.end_seconds)

    def _waiting(self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip) -> dict[str, Answers]:
        """Return the answers so far of the clips with an open question, by clip id; clips that failed come last."""
        waiting = [answers for answers in self._all_answers(folder, clips, levels) if answers.open_question]
        waiting.sort(key=lambda answers: answers.kept.failure is not None)
        return {answers.clip.clip_id: answers for answers in waiting}

    def _all_answers(self, folder: FilmFolder, clips: Sequence[Clip], levels: LevelsByClip) -> Iterator[Answers]:
        """Yield the answers so far of the clips that do not keep their old caption."""
        old = self._old_captions(folder, clips, levels)
        return (self._answers(folder, clip, levels) for clip in clips if clip.clip_id not in old)

    def _answers(self, folder: FilmFolder, clip: Clip, levels: LevelsByClip) -> Answers:
        kept = load_replies(folder, clip.clip_id)
        said = self.dialogue.within(clip.start_seconds, clip.end_seconds) or ()
        is_span = clip.clip_id in self.spans
        answers = Answers(clip, levels[clip.clip_id], self.settings, self.cast, kept, said, is_span)
        if not self.renews or not answers.caption(None).fault:
            return answers  # a good caption without characters stays: a new question could lose it
        used_up = {key for key in kept.exchanges if len(kept.to(key)) > self.settings.repairs}
        reopened = frozenset(key for key in used_up if not kept.exchanges[key].unfinished)
        return replace(answers, reopened=reopened)


def is_beyond(faulty: int, clips: int, settings: CaptionSettings) -> bool:
    """Return True if a film with so many clips without a usable caption fails."""
    return faulty > settings.failed_limit * clips


def _rows(folder: FilmFolder) -> dict[str, Caption]:
    """Return the captions made so far by clip id, current or not; none if the table is missing or damaged."""
    if not folder.table_path("captions").exists():
        return {}
    try:
        return {row.clip_id: row for row in folder.read("captions", Caption)}
    except StoreError:
        return {}


def _endpoint(settings: CaptionSettings) -> Endpoint:
    names = settings.model_dump().keys() & {each.name for each in fields(Endpoint)}
    return Endpoint(
        address=settings.endpoint,
        remedy="start it with `animegamer caption-server` on its machine, "
        "or set `endpoint` and `model` in the section [captions]",
        **settings.model_dump(include=names),
    )
