"""Captions stage: a structured caption of every clip that screening keeps, by rules or by a model server.

Any server with OpenAI's chat protocol works; the defaults suit InternVL2-26B as `animegamer caption-server` serves it
(`caption_server.py`).

`WriteCaptions` run as a stage asks all open questions and collects the replies. For long films a scheduler first
processes `pending` in batches, each a small task that can be retried alone. Then every clip has a cached reply or a
failure, and the stage sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from pipeline.captions.answers import Repeats, refuse_repeats
from pipeline.captions.cast import Cast
from pipeline.captions.endpoint import BudgetError, EndpointLostError
from pipeline.captions.reply_cache import note_failures
from pipeline.captions.rules import RulesCaptioner
from pipeline.captions.server_captioner import ServerCaptioner, is_beyond
from pipeline.core.config import CaptionSettings
from pipeline.core.dialogue import NO_DIALOGUE, Dialogue
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Caption, Clip, Failure, Film, RecordError, Verdict
from pipeline.core.stage import CAPTIONS, NOTHING_PENDING, Outcome, Pending, Resources, Stage
from pipeline.core.store import FilmFolder

_RENEWED = "@renewed"
"""End of the ids in a batch that makes a new attempt; clip ids have no `@`."""


class Captioner(Protocol):
    """Interface of a captioner: clips and their motion levels in, one caption per clip id out."""

    def ingredients(self) -> dict[str, Any]:
        """Ingredients of its captions besides the clips; JSON values."""
        ...

    def captions(
        self, folder: FilmFolder, clips: Sequence[Clip], levels: Mapping[str, int | None], progress: Progress
    ) -> list[Caption]:
        """Return one caption per clip, in order; a clip without a usable reply gets a caption with a fault."""
        ...


@dataclass(frozen=True)
class WriteCaptions(Stage):
    """Stage `captions`: captions of the clips that `screened` keeps."""

    settings: CaptionSettings
    cast: Cast
    ask_again: bool = False
    """True: query clips with a good caption again if an ingredient of the question changed."""
    name: ClassVar[str] = "captions"
    version: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("cut", "looks", "motion", "screened")

    def ingredients(self) -> dict[str, Any]:
        """Ingredients of the captioner, with the cast of all films."""
        if self.settings.captioner == "rules":
            return RulesCaptioner().ingredients()
        return self._server(self.cast).ingredients()

    def film_ingredients(self, film: Film) -> dict[str, Any]:
        """The cast of this film, if it has a separate one."""
        cast = self.cast.of(film)
        server = self.settings.captioner == "server"
        return {"cast": cast.sha256} if server and cast.sha256 != self.cast.sha256 else {}

    @property
    def resources(self) -> Resources:
        """A tenth of a CPU, since the service does the work; retried if the service was lost or overloaded."""
        if self.settings.captioner == "rules":
            return Resources()
        return Resources(cpus=0.1, tags=(CAPTIONS,), retry_on=(EndpointLostError,))

    def pending(self, folder: FilmFolder, *, current: bool, screened: Sequence[Verdict] | None = None) -> Pending:
        """Return the clips still to query, in batches, and whether stored replies are not yet collected.

        `current`: the result on disk is current. `screened`: future rows of the table, if they differ from its rows.
        """
        if self.settings.captioner == "rules":
            return NOTHING_PENDING  # without reading a table
        clips, levels = candidates(folder, screened)
        made = {row.clip_id: row for row in folder.read("captions", Caption)} if current else {}
        server = self.server_for(folder)
        if self.ask_again or not current:  # a current result has few enough faults
            server = server.renewed(folder, clips, levels)
        waiting, uncollected = server.pending(folder, clips, levels, made)
        reason = f"{len(waiting)} clips still to be asked about" if waiting else None
        size = self.settings.batch
        return Pending(
            batches=tuple(
                _marked(waiting[start : start + size], renews=server.renews) for start in range(0, len(waiting), size)
            ),
            uncollected=uncollected,
            reason=reason or ("stored replies are not in the table yet" if uncollected else None),
        )

    @property
    def spares_captions(self) -> bool:
        """True if no clip with a good caption may be queried again."""
        return self.settings.captioner == "server" and not self.ask_again

    def repeats(self, folder: FilmFolder, screened: Sequence[Verdict] | None = None) -> Repeats:
        """Return the clips with a good caption that would be queried again without the user's permission.

        A stage that runs again before this one may still change the clips or their levels. `screened`: as in `pending`.
        """
        if not self.spares_captions:
            return Repeats()
        return self.server_for(folder).repeats(folder, *candidates(folder, screened))

    def run_batch(self, folder: FilmFolder, batch: Sequence[str], progress: Progress = silent) -> None:
        """Ask the open questions about some clips of `pending`, and cache the replies in the film's folder.

        `pending` decided if the batch makes a new attempt; by now, this or other batches may have stored replies.
        Batches of one film may run in sequence or in parallel, as long as no two hold the same clip. Each keeps up to
        `concurrency` requests in flight.

        Raises:
            UserError: the build would query clips with a good caption again, or the server cannot be used at all.
                Replies that came before are cached.
        """
        wanted, renews = _unmarked(batch)
        clips, levels = candidates(folder)
        asked = [clip for clip in clips if clip.clip_id in wanted]
        if not self.ask_again and self.server_for(folder).repeats(folder, asked, levels):
            refuse_repeats(self.repeats(folder), keep_old=self.settings.keep_old)  # reports the repeats of all batches
        failures: dict[str, str] = {}
        try:
            replace(self.server_for(folder), renews=renews).ask(folder, asked, levels, progress, failures)
        except BudgetError as error:
            left = len(self.pending(folder, current=False).ids)
            rest = f"{left} of {len(clips)} clips of this film are still to be asked about, by the next build"
            raise BudgetError(f"{error}; {rest}") from None
        finally:  # also after an early end: the next build does not stop at the same clips again
            note_failures(folder, failures)

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Make the table captions; clips without a usable caption are in it with their fault, and count as failures.

        Raises:
            RecordError: more than `failed_limit` of the clips have no usable caption.
            UserError: as `run_batch`.
        """
        refuse_repeats(self.repeats(folder), keep_old=self.settings.keep_old)
        clips, levels = candidates(folder)
        is_server = self.settings.captioner == "server"
        captioner: Captioner = self.server_for(folder) if is_server else RulesCaptioner()
        captions = captioner.captions(folder, clips, levels, progress)
        failures = tuple(Failure(record_id=row.clip_id, reason=row.fault) for row in captions if row.fault)
        if is_beyond(len(failures), len(captions), self.settings):
            first = f"{failures[0].record_id}: {failures[0].reason}"
            again = ""
            if self.settings.captioner == "server":
                most = self.server_for(folder).most_requests(folder, clips, levels)
                again = f"; the next build asks again, with at most {most:,} requests"
            reason = f"{len(failures)} of {len(captions)} clips got no usable caption{again}; first: {first}"
            raise RecordError(folder.film_id, reason)
        return Outcome(tables={"captions": captions}, failures=failures)

    def server_for(self, folder: FilmFolder) -> ServerCaptioner:
        """Return the captioner of a film, with its cast and, if the questions show it, its dialogue."""
        dialogue = Dialogue.of(folder) if self.settings.dialogue else NO_DIALOGUE
        return self._server(self.cast.of(folder.film), dialogue)

    def _server(self, cast: Cast, dialogue: Dialogue = NO_DIALOGUE) -> ServerCaptioner:
        """Return the captioner; `ask_again` overrides the setting that keeps old captions."""
        keep_old = self.settings.keep_old and not self.ask_again
        settings = self.settings.model_copy(update={"keep_old": keep_old})
        return ServerCaptioner(settings, cast, self.ask_again, dialogue=dialogue)


@dataclass(frozen=True)
class WriteCaptionsWithDialogue(WriteCaptions):
    """Stage `captions` whose questions show the dialogue (`[captions] dialogue`)."""

    needs: ClassVar[tuple[str, ...]] = (*WriteCaptions.needs, "dialogue")


def candidates(
    folder: FilmFolder, screened: Sequence[Verdict] | None = None
) -> tuple[list[Clip], dict[str, int | None]]:
    """Return the clips that screening keeps, in the film's order, and their motion levels."""
    rows = folder.read("screened", Verdict) if screened is None else screened
    levels = {row.clip_id: row.level for row in rows if row.keep}
    return [clip for clip in folder.read("clips", Clip) if clip.clip_id in levels], levels


def _marked(clip_ids: Sequence[str], *, renews: bool) -> tuple[str, ...]:
    """Return the ids of a batch, each with a mark if it makes a new attempt."""
    return tuple(clip_id + _RENEWED for clip_id in clip_ids) if renews else tuple(clip_ids)


def _unmarked(batch: Sequence[str]) -> tuple[set[str], bool]:
    """Return the clip ids of a batch, and True if it makes a new attempt."""
    return {each.removesuffix(_RENEWED) for each in batch}, any(each.endswith(_RENEWED) for each in batch)
