"""Rules that keep or drop every clip by its facts, with all reasons to drop it; a review overrules them.

Pure rules over the tables of earlier stages, so a changed threshold measures nothing again. `Screen` applies them to
one film before captioning, so that no caption is made for a clip that is dropped anyway. `verdicts_of` gives the final
verdicts over all films of a dataset, in the order they were added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import log
from typing import Any, ClassVar

from pipeline.core.config import SelectionSettings
from pipeline.core.measurements import Looks, Motion
from pipeline.core.progress import Progress
from pipeline.core.records import Caption, Clip, Film, Reviewed, Verdict
from pipeline.core.stage import NOTHING_PENDING, Outcome, Pending, Stage
from pipeline.core.store import Dataset, FilmFolder, StoreError
from pipeline.stages.duplicates import HashedClip, find_repeats
from pipeline.stages.motion_levels import Edges, level_of
from pipeline.stages.stretches import Stretch, reasons_at, stretches_of

FAILED = "failed: "
"""Prefix of the reason of a clip that a stage could not measure: it counts as failed, not as dropped."""

NEAR_DUPLICATE = "near-duplicate"
NOT_MEASURED = f"{FAILED}not measured"
TEXT_STEP, SIZE_STEP, SHARPNESS_STEP, BLOCK_STEP = 0.005, 1.1, 1.05, 0.25
"""Steps by which copies of a shot differ: share of the picture under text, ratio of their heights, of their sharpness.
A line of subtitles takes 0.007 or more. Sharpness differs by 1.1 from 480 to 320 lines, and from CRF 18 to 38."""
LAST = 10**9
"""Rank of a clip that was not measured."""
_OF_STRETCHES = ("skip", "openings", "endings", "recaps", "previews", "repeats")
BY_REVIEW = "review"
"""Reason of a clip that a reviewer dropped."""


@dataclass(frozen=True)
class FilmFacts:
    """Facts about a film's clips, each mapping by clip id."""

    film_id: str
    clips: tuple[Clip, ...]
    looks: Mapping[str, Looks]
    levels: Mapping[str, int]
    """Motion level 1..5 of the clips whose motion is measured."""
    captions: Mapping[str, Caption] | None
    """None: not captioned yet."""
    failures: Mapping[str, str]
    """Reason, for each clip whose looks or motion could not be measured."""
    reviewed: Mapping[str, Reviewed] = field(default_factory=dict)
    """Reviewed values of the clips that were reviewed."""
    stretches: Sequence[Stretch] = ()
    """Stretches of the film to leave out."""
    lines: int = 0
    """Height of the film's picture."""
    work: Mapping[str, int] = field(default_factory=dict)
    """Value of the work in a clip: 2 for a review, 1 for a caption by a model."""


_FilmClip = tuple[FilmFacts, Clip]


@dataclass(frozen=True)
class Screen(Stage):
    """Stage `screened`: the verdicts before captioning.

    They do not depend on other films, except that a clip without a caption is dropped if the settings prefer quality
    and it repeats a clip of another film that a model has captioned: it can take over that caption.
    """

    name: ClassVar[str] = "screened"
    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("looks", "motion")

    settings: SelectionSettings
    edges: Edges

    def ingredients(self) -> dict[str, Any]:
        """Thresholds used here, and the level edges."""
        settings = self.settings.ingredients()
        for name in ("uncaptioned", "prefer", *_OF_STRETCHES):  # they count when publishing, or in the stretches
            settings.pop(name, None)
        return {"selection": settings, "edges": list(self.edges)}

    def film_ingredients(self, film: Film) -> dict[str, Any]:
        """Stretches that are left out of this film; most films have none."""
        stretches = stretches_of(film, self.settings)
        return (
            {"left_out": [[one.start_seconds, one.end_seconds, one.reason] for one in stretches]} if stretches else {}
        )

    def run(self, folder: FilmFolder, progress: Progress) -> Outcome:
        """Make the table screened."""
        verdicts = self.verdicts(folder)
        progress(len(verdicts), len(verdicts))
        return Outcome(tables={"screened": verdicts})

    def verdicts(self, folder: FilmFolder) -> list[Verdict]:
        """Apply the rules to the film alone; writes nothing. Raises StoreError if a table is missing or unreadable."""
        levels = {row.clip_id: level_of(row.scope_px, self.edges) for row in folder.read("motion", Motion)}
        work: dict[str, int] = {}
        with suppress(StoreError):  # a damaged table is made again, and counts as no work
            work = _work(folder.read_if_made("captions", Caption), folder.read_if_made("reviewed", Reviewed))
        facts = replace(_facts(folder, levels, None, self.settings), work=work)
        verdicts = verdicts_of([facts], self.settings)[folder.film_id]
        copies = self._copies(facts, {row.clip_id for row in verdicts if row.keep}, folder)
        return [
            row.model_copy(update={"keep": False, "reasons": (NEAR_DUPLICATE,), "duplicate_of": copies[row.clip_id]})
            if row.clip_id in copies
            else row
            for row in verdicts
        ]

    def pending(self, folder: FilmFolder, *, current: bool) -> Pending:
        """Run again if clips of other films have lost or gained the captions that clips of this film take over."""
        if not current or self.settings.prefer == "first":
            return NOTHING_PENDING
        rows = folder.read("screened", Verdict)
        own = {row.clip_id for row in rows}
        copies = {row.clip_id for row in rows if row.duplicate_of and row.duplicate_of not in own}
        facts = replace(
            _facts(folder, {}, None, self.settings), work=_work(folder.read_if_made("captions", Caption), ())
        )
        if self._copies(facts, {row.clip_id for row in rows if row.keep} | copies, folder).keys() == copies:
            return NOTHING_PENDING
        return Pending(uncollected=True, reason="captions of copies in other films have changed")

    def _copies(self, facts: FilmFacts, wanted: Collection[str], folder: FilmFolder) -> dict[str, str]:
        """Return the wanted clips without work that repeat a clip of another film with a model's caption."""
        wanted = set(wanted) - facts.work.keys()
        if self.settings.prefer == "first" or not self.settings.near_duplicates or not wanted:
            return {}
        ranked = [pair for other in _captioned_films(folder) for pair in other]
        if not (captioned := len(ranked)):
            return {}
        ranked += [(facts, clip) for clip in facts.clips if clip.clip_id in wanted]
        repeats = _repeats(ranked, self.settings)
        return {
            ranked[later][1].clip_id: ranked[earlier[0]][1].clip_id
            for later, earlier in repeats.items()
            if later >= captioned > earlier[0]
        }


def _captioned_films(folder: FilmFolder) -> Iterator[list[_FilmClip]]:
    """Yield the clips with a model's caption of each other film in the dataset; a damaged film counts as none."""
    dataset = Dataset(folder.path.parent.parent)
    for other in dataset.folders() if dataset.record.captioner != "rules" else ():
        with suppress(StoreError):
            captions = {row.clip_id: row for row in other.read_if_made("captions", Caption)}
            if other.film_id != folder.film_id and any(row.by_model for row in captions.values()):
                looks = {row.clip_id: row for row in other.read("looks", Looks)}
                clips = tuple(other.read("clips", Clip))
                film = FilmFacts(other.film_id, clips, looks, {}, captions, {})
                yield [(film, clip) for clip in clips if _by_model(film, clip)]


def film_facts(folder: FilmFolder, reviewed: Sequence[Reviewed], settings: SelectionSettings) -> FilmFacts:
    """Read the facts of a film whose stages are all done; motion levels come from the table `screened`."""
    levels = {row.clip_id: row.level for row in folder.read("screened", Verdict) if row.level is not None}
    captions = folder.read("captions", Caption)
    facts = _facts(folder, levels, {row.clip_id: row for row in captions}, settings)
    return replace(facts, reviewed={row.clip_id: row for row in reviewed}, work=_work(captions, reviewed))


def verdicts_of(films: Sequence[FilmFacts], settings: SelectionSettings) -> dict[str, list[Verdict]]:
    """Return a verdict for every clip of every film, by film id, in the order of its clips.

    Of two clips that repeat each other, the reviewed one is kept, else the one with a caption by a model, else the one
    in the earlier film, and within a film the earlier one. If the settings prefer quality, a clip that a review keeps
    comes first, and then the better copy among clips with a caption; a clip without one can take over the model's
    caption of a copy that it displaces. Only a kept clip counts as an original. A review keeps a clip against every
    reason, unless its motion is not measured.
    """
    ranked = [(film, clip) for film in films for clip in film.clips]
    ranked.sort(key=lambda pair: -pair[0].work.get(pair[1].clip_id, 0))
    repeats = _repeats(ranked, settings)
    givers: dict[int, list[int]] = {}
    if settings.prefer == "quality" and all(film.captions is not None for film in films):
        captioned = _captioned(ranked, repeats)
        ranked.sort(key=lambda pair: (not _kept_by_review(*pair), pair[1].clip_id not in captioned, *_copy_rank(*pair)))
        repeats = _repeats(ranked, settings)
        givers = _givers(ranked, repeats)
    verdicts: dict[str, Verdict] = {}
    kept: dict[int, str] = {}
    for position, (film, clip) in enumerate(ranked):
        original = next((kept[earlier] for earlier in repeats.get(position, ()) if earlier in kept), None)
        takes = any(kept.keys().isdisjoint(repeats[giver]) for giver in givers.get(position, ()))
        verdict = verdicts[clip.clip_id] = _verdict(film, clip, original, settings, takes_caption=takes)
        if verdict.keep:
            kept[position] = clip.clip_id
    return {film.film_id: [verdicts[clip.clip_id] for clip in film.clips] for film in films}


def _facts(
    folder: FilmFolder, levels: Mapping[str, int], captions: Mapping[str, Caption] | None, settings: SelectionSettings
) -> FilmFacts:
    records = [folder.stage_record(stage) for stage in Screen.needs]
    return FilmFacts(
        film_id=folder.film_id,
        clips=tuple(folder.read("clips", Clip)),
        looks={row.clip_id: row for row in folder.read("looks", Looks)},
        levels=levels,
        captions=captions,
        stretches=stretches_of(folder.film, settings),
        lines=folder.film.display_height,
        failures={failure.record_id: failure.reason for record in records if record for failure in record.failures},
    )


def _work(captions: Iterable[Caption], reviewed: Iterable[Reviewed]) -> dict[str, int]:
    """Work in the clips of a film, as in `FilmFacts`."""
    captioned = {row.clip_id: 1 for row in captions if row.by_model}
    return captioned | {row.clip_id: 2 for row in reviewed}


def _repeats(ranked: Sequence[_FilmClip], settings: SelectionSettings) -> Mapping[int, Sequence[int]]:
    """Earlier clips that each clip repeats, by position."""
    if not settings.near_duplicates:
        return {}
    hashed = [_hashed(film, clip) for film, clip in ranked]
    return find_repeats(hashed, settings.duplicate_distance, settings.duplicate_gap_seconds)


def _captioned(ranked: Sequence[_FilmClip], repeats: Mapping[int, Sequence[int]]) -> set[str]:
    """Ids of the clips with a caption, or with a copy that has one by a model."""
    found = {clip.clip_id for film, clip in ranked if not _lacks_caption(film, clip.clip_id)}
    for position, earlier in repeats.items():
        one = ranked[position]
        for other in (ranked[each] for each in earlier):
            found.update(taker[1].clip_id for taker, giver in ((one, other), (other, one)) if _by_model(*giver))
    return found


def _givers(ranked: Sequence[_FilmClip], repeats: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Later clips with a model's caption that repeat each clip, by position."""
    found: dict[int, list[int]] = {}
    for later, earlier in repeats.items():
        for position in earlier if _by_model(*ranked[later]) else ():
            found.setdefault(position, []).append(later)
    return found


def _by_model(film: FilmFacts, clip: Clip) -> bool:
    caption = (film.captions or {}).get(clip.clip_id)
    return caption is not None and caption.by_model


def _kept_by_review(film: FilmFacts, clip: Clip) -> bool:
    review = film.reviewed.get(clip.clip_id)
    return review is not None and review.keep is True


def _copy_rank(film: FilmFacts, clip: Clip) -> tuple[int, ...]:
    return tuple(map(round, copy_rank(clip, film.looks.get(clip.clip_id), film.lines)))


def copy_rank(clip: Clip, looks: Looks | None, lines: int) -> tuple[float, ...]:
    """Rank of a copy of a shot, smaller if better: less text on it, more lines of film, sharper, lower blocks.

    Each counts in steps, since equal copies differ a little. Lines that a clip does not show do not count.
    """
    if looks is None:
        return (LAST,) * 4
    text, height, sharpness = looks.text_share or 0, min(lines, clip.height), looks.sharpness or 0
    return (
        text / TEXT_STEP,
        -log(max(height, 1), SIZE_STEP),
        -log(max(sharpness, 0.01), SHARPNESS_STEP),
        (looks.blockiness or 0) / BLOCK_STEP,
    )


def is_better(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return True if the first rank is better by a whole step, in the first place where they differ by one."""
    return next((ours < theirs for ours, theirs in zip(one, other, strict=True) if abs(ours - theirs) >= 1), False)


def _hashed(film: FilmFacts, clip: Clip) -> HashedClip:
    looks = film.looks.get(clip.clip_id)
    return HashedClip(
        film=film.film_id,
        scene=clip.scene,
        start_seconds=clip.start_seconds,
        seconds=clip.end_seconds - clip.start_seconds,
        held=looks is not None and looks.still_share == 1,
        hashes=looks.hashes if looks else (),
    )


def _verdict(
    film: FilmFacts, clip: Clip, original: str | None, settings: SelectionSettings, *, takes_caption: bool
) -> Verdict:
    looks, level = film.looks.get(clip.clip_id), film.levels.get(clip.clip_id)
    review = film.reviewed.get(clip.clip_id)
    noted = {reason for reason in ("text", "logo") if getattr(settings, reason) == "flag"}
    flags: tuple[str, ...] = ()
    if looks is None or level is None:
        failure = film.failures.get(clip.clip_id)
        reasons = [f"{FAILED}{failure}" if failure else NOT_MEASURED]
        original = None
    else:
        found = [*reasons_at(film.stretches, clip.start_seconds, clip.end_seconds)]
        found += _reasons(looks, level, original, settings)
        flags = tuple(reason for reason in found if reason in noted)
        reasons = [reason for reason in found if reason not in noted]
        lacks_caption = _lacks_caption(film, clip.clip_id) and not takes_caption
        if not reasons and settings.uncaptioned == "drop" and lacks_caption:
            reasons.append("no caption")  # clips dropped for other reasons were never captioned
    if review and review.keep is False:
        reasons.append(BY_REVIEW)
    wanted = review is not None and review.keep is True and level is not None  # a sample has a motion level
    keep = wanted or not reasons
    return Verdict(
        clip_id=clip.clip_id, keep=keep, reasons=tuple(reasons), level=level, duplicate_of=original, flags=flags
    )


def _reasons(looks: Looks, level: int, original: str | None, settings: SelectionSettings) -> Iterator[str]:
    """Yield every reason to drop a clip, the most specific first."""
    if looks.contrast < settings.min_contrast:
        yield "blank"
    if looks.light < settings.min_light or looks.dark_share > settings.max_dark_share:
        yield "dark"
    if looks.text_lines is not None and looks.text_lines >= settings.credits_lines:
        yield "credits"
    if (looks.text_share or 0) > settings.max_text_share or looks.subtitle_lines:
        yield "text"
    if looks.logo_boxes:
        yield "logo"
    if looks.two_groups is not None and looks.two_groups > settings.max_two_groups:
        yield "two scenes"
    if original is not None:
        yield NEAR_DUPLICATE
    if _too_still(looks, level, settings):
        yield "too still"


def _too_still(looks: Looks, level: int, settings: SelectionSettings) -> bool:
    too_many_still_steps = settings.max_still_share is not None and looks.still_share > settings.max_still_share
    return too_many_still_steps or (settings.min_level is not None and level < settings.min_level)


def _lacks_caption(film: FilmFacts, clip_id: str) -> bool:
    review = film.reviewed.get(clip_id)
    if film.captions is None or (review and review.fields):
        return False
    caption = film.captions.get(clip_id)
    return caption is None or caption.fault is not None
