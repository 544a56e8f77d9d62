"""Plan of an export: the chosen clips with their captions and files, checked before anything is written.

request = ExportRequest(TRAINERS["musubi-tuner"], out, preset=PRESETS["wan"])
plan = make_plan(dataset, request, STAGE_NAMES)
written = write_export(plan)         # run.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.core.config import Config, SoundSettings, recorded
from pipeline.core.errors import UserError
from pipeline.core.film_settings import given_language
from pipeline.core.plain_text import counted, first_few
from pipeline.core.records import Film, RecordError, Verdict
from pipeline.core.stage import is_whole
from pipeline.core.store import ClipFormat, Dataset, FilmFolder
from pipeline.publish.export.captions import CaptionForm, CaptionStyle, check_style
from pipeline.publish.export.clips import ClipForm, ExportClip
from pipeline.publish.export.film_checks import (
    check_available,
    check_rate,
    film_notices,
    inside_scenes,
    length_notices,
)
from pipeline.publish.export.folder import check_folder, check_room_for_cuts, check_room_for_files
from pipeline.publish.export.recut import CutLog, Span, spans_to_cut
from pipeline.publish.export.references import Portraits, find_portraits
from pipeline.publish.export.trainers import PRESETS, Preset, TableKind, Trainer
from pipeline.publish.seen_clips import ClipChoice, SeenClip, seen_clips
from pipeline.remote.objects import is_address
from pipeline.reviews.applied import carried_over, load_reviews, read_reviewed, review_path

_FILMS_NAMED = 6
"""Films that a notice names."""


@dataclass(frozen=True)
class ExportRequest:
    """Request of the user."""

    trainer: Trainer
    out: Path
    preset: Preset | None = None
    choice: ClipChoice = field(default_factory=ClipChoice)
    form: CaptionForm | None = None
    trigger: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    table: TableKind | None = None
    """Kind of the table; None: the trainer's first."""
    dialogue: bool = False
    """Quote what is said in a clip in its caption, and write its subtitles beside it for people."""
    references: bool = False
    """Give each clip a picture of its character from another scene."""
    stills: int = 0
    """Most stills of each look of a character."""

    @property
    def table_kind(self) -> TableKind | None:
        """Kind of the table to write; None for a trainer without one."""
        return self.table or (self.trainer.table.kinds[0] if self.trainer.table else None)


@dataclass(frozen=True)
class ExportPlan:
    """Export that has been checked."""

    request: ExportRequest
    dataset: Dataset
    config: Config
    clips: tuple[ExportClip, ...]
    form: CaptionForm
    format: ClipFormat
    family: Preset | None
    """Models that the files are for."""
    cuts: bool
    """True: the clips are cut again from the films."""
    notices: tuple[str, ...]
    portraits: Portraits | None = None
    """Pictures of characters, if the export has references or stills."""

    @property
    def sound(self) -> SoundSettings | None:
        """Settings of the sound in the files; None without sound."""
        wanted = self.dataset.record.keeps_sound or (self.cuts and self.family is not None and self.family.spans)
        return self.config.sound if wanted else None

    def sound_of(self, film: Film) -> SoundSettings | None:
        """Settings of the sound in the files of a film, in the language of its track; None without sound."""
        given = given_language(self.config.films, film.film_id, film.source)
        if self.sound is None or self.sound.language or given is None:
            return self.sound
        return self.sound.model_copy(update={"language": given})

    @property
    def holds_last(self) -> bool:
        """True if the files show their last frame twice."""
        return self.request.trainer.holds_last and self.family is not None and self.family.spans

    @property
    def heard(self) -> tuple[ExportClip, ...]:
        """Clips whose files have sound; clips of a film without a sound track have none."""
        if self.sound is None:
            return ()
        if not self.cuts:
            return tuple(clip for clip in self.clips if clip.seen.sound)
        films = {folder.film_id for folder in self.folders if folder.film.audio_tracks != ()}
        return tuple(clip for clip in self.clips if clip.seen.clip.film_id in films)

    def to_cut(self, log: CutLog, folder: FilmFolder) -> tuple[Span, ...]:
        """Spans of a film whose files are not in the export yet."""
        chosen = (clip for clip in self.clips if clip.seen.clip.film_id == folder.film_id)
        starts = {clip.file: clip.seen.clip.start_seconds for clip in chosen}
        return spans_to_cut(log, folder, starts, self.format, self.sound_of(folder.film), holds_last=self.holds_last)

    @property
    def folders(self) -> list[FilmFolder]:
        """Films of the chosen clips, in the order of the dataset."""
        films = {clip.seen.clip.film_id for clip in self.clips}
        return [folder for folder in self.dataset.folders() if folder.film_id in films]


def make_plan(dataset: Dataset, request: ExportRequest, stages: Sequence[str]) -> ExportPlan:
    """Choose the clips and check everything that an export needs; nothing is written.

    Films that have not finished all `stages` are left out. Raises a UserError if no clip can be exported in this way.
    """
    check_folder(request.out, request.trainer.name, dataset)
    config = recorded(dataset.record.config, dataset.root)
    kept, notices = _kept(dataset, request.choice, stages)
    notices += _unpublished(dataset, config)
    clips_format = _format_of(kept)
    family = _family(request, clips_format)
    cuts = request.preset is not None and (
        request.preset.clips != clips_format or (request.preset.spans and not dataset.record.keeps_sound)
    )
    form = request.form or request.trainer.form
    clips, more = _captioned(dataset, request, kept, notices, cuts=cuts)
    _check_table(request, clips)
    notices += more
    plan = ExportPlan(request, dataset, config, clips, form, clips_format, family, cuts=cuts, notices=tuple(notices))
    plan = _without_silent(plan)
    return _with_portraits(_checked_films(plan) if cuts else _checked_files(plan))


def _with_portraits(plan: ExportPlan) -> ExportPlan:
    """The plan with pictures of characters; with references, clips without one are left out."""
    request, trainer = plan.request, plan.request.trainer
    if request.references and not trainer.reads_references:
        raise UserError(f"--references: {trainer.title} takes none with these models; give --for ltx-trainer or folder")
    if not (request.references or request.stills):
        return plan
    try:
        shape = (plan.format.width, plan.format.height)
        portraits = find_portraits(plan.dataset, [clip.seen for clip in plan.clips], shape)
    except RecordError as error:
        raise UserError(f"{error}; run `animegamer build` again") from error
    if not portraits.by_name:
        raise UserError("no chosen clip has a named figure; name some with `animegamer cast`")
    plan = replace(plan, portraits=portraits)
    if not request.references:
        return plan
    paired = [replace(clip, reference=portraits.reference_for(clip.seen)) for clip in plan.clips]
    clips = tuple(clip for clip in paired if clip.reference)
    if not clips:
        raise UserError("no chosen clip has a character that is also seen in another scene of the chosen clips")
    missing = len(plan.clips) - len(clips)
    left_out = [f"{counted(missing, 'clip')} left out: no picture of a character of theirs from another scene"]
    return replace(plan, clips=clips, notices=(*plan.notices, *(left_out if missing else ())))


def _kept(dataset: Dataset, choice: ClipChoice, stages: Sequence[str]) -> tuple[list[SeenClip], list[str]]:
    """The chosen clips of films that are built to the end, and notices about the other films."""
    record, everything = dataset.record, seen_clips(dataset)
    chosen = {seen.clip.film_id for seen in ClipChoice(choice.films).of(record, everything)}
    unfinished = {
        film.film_id: film.name
        for film in record.films
        if film.film_id in chosen and not _is_finished(dataset.folder(film.film_id), stages)
    }
    found = replace(choice, verdict="kept").of(record, everything)
    kept = [seen for seen in found if seen.clip.film_id not in unfinished]
    left_out = [_unfinished(list(unfinished.values()))] if unfinished else []
    if not kept:
        why = "; ".join(["no kept clip meets these conditions", *left_out])
        raise UserError(f"{dataset.root}: {why}; `animegamer status` shows the dataset")
    if any(seen.split is None for seen in kept):
        raise UserError(f"{dataset.root} is not published yet; finish `animegamer build` first")
    return kept, left_out


def _unfinished(names: Sequence[str]) -> str:
    named = first_few(names, _FILMS_NAMED)
    return f"left out, because their last build did not finish: {named}; run `animegamer build` on them again"


def _unpublished(dataset: Dataset, config: Config) -> list[str]:
    """A notice if the review file has decisions that the dataset was not published with."""
    reviews = load_reviews(dataset, review_path(dataset.root, config.review))
    cast, changed = dataset.record.cast, set[str]()
    rows = {folder.film_id: reviews.rows(folder, cast) for folder in dataset.folders()} if reviews.standings else {}
    if config.selection.prefer == "quality":
        made = {film_id: dataset.folder(film_id).read_if_made("verdicts", Verdict) for film_id in rows}
        verdicts = {film_id: each for film_id, each in made.items() if each}
        rows |= carried_over({film_id: rows[film_id] for film_id in verdicts}, verdicts)
    for folder in dataset.folders():
        wanted = {row.clip_id: row for row in rows.get(folder.film_id, ())}
        have = read_reviewed(folder)
        changed |= {clip_id for clip_id in wanted.keys() | have.keys() if wanted.get(clip_id) != have.get(clip_id)}
    if not changed:
        return []
    return [f"reviews of {counted(len(changed), 'clip')} are not published yet; run `animegamer build` to use them"]


def _captioned(
    dataset: Dataset, request: ExportRequest, kept: Sequence[SeenClip], known: Sequence[str], *, cuts: bool
) -> tuple[tuple[ExportClip, ...], list[str]]:
    """The clips with a caption of the wanted form, and notices about the others; an error has the `known` notices."""
    style = CaptionStyle(request.form or request.trainer.form, request.trigger, request.names)
    check_style(style, {name for seen in kept for name in (seen.answer and seen.answer.characters) or ()})
    if request.dialogue and style.form is CaptionForm.tags:
        raise UserError("--dialogue: tags hold no speech; give --captions sentence or instruction")
    form = ClipForm(request.trainer, style, request.preset if cuts else None, dialogue=request.dialogue)
    try:
        return form.clips(dataset, kept)
    except UserError as error:
        raise UserError("; ".join([str(error), *known])) from error


def _check_table(request: ExportRequest, clips: Sequence[ExportClip]) -> None:
    """Reject a kind of table that the trainer does not read, and captions that it would lose."""
    trainer, table = request.trainer, request.trainer.table
    if request.table and (table is None or request.table not in table.kinds):
        known = f"its tables are {' or '.join(table.kinds)}" if table else "it reads no table"
        raise UserError(f"--table {request.table}: {trainer.title} does not read it; {known}")
    if table and request.table == "csv":
        for clip in clips:
            if clip.caption in table.missing_in_csv:
                raise UserError(
                    f"{clip.seen.clip.clip_id}: {trainer.title} reads the caption {clip.caption!r} in CSV as missing; "
                    f"give --table {table.kinds[0]}"
                )


def _format_of(kept: Sequence[SeenClip]) -> ClipFormat:
    formats = Counter(
        ClipFormat(frames=clip.frames, fps=clip.fps, width=clip.width, height=clip.height)
        for clip in (seen.clip for seen in kept)
    )
    if len(formats) > 1:
        raise UserError("the films were cut with different settings; build them again together, or choose --film")
    return next(iter(formats))


def _family(request: ExportRequest, clips: ClipFormat) -> Preset | None:
    """Preset of the models that the export is for: the request's, or a preset with the frames and rate of the clips."""
    trainer = request.trainer
    if request.preset:
        if trainer.is_hub and request.preset.spans:
            raise UserError(f"--preset {request.preset.name}: the hub's table describes single clips; use --for folder")
        if trainer.presets and request.preset.name not in trainer.presets:
            why = trainer.unfit.get(request.preset.name, "it has no training for these models, or none known here")
            raise UserError(f"{trainer.title}, --preset {request.preset.name}: {why}; {_presets(trainer)}")
        return request.preset
    if not trainer.presets:
        return None
    alike = [PRESETS[name] for name in trainer.presets if PRESETS[name].has_frames_of(clips)]
    if fitting := next((preset for preset in alike if preset.takes_size_of(clips)), None):
        return fitting
    if alike:
        raise UserError(
            f"the clips are {clips.width}x{clips.height}, and {trainer.title} trains models whose width and height are "
            f"multiples of {alike[0].side}; {_presets(trainer)}"
        )
    taken = " or ".join(sorted({PRESETS[name].taken for name in trainer.presets}))
    raise UserError(
        f"the clips have {clips.frames} frames at {float(clips.fps):g} a second, and {trainer.title} trains models of "
        f"{taken} frames at their own rate: it would drop or repeat some; {_presets(trainer)}"
    )


def _presets(trainer: Trainer) -> str:
    known = [f"{name} ({PRESETS[name].frames} at {PRESETS[name].fps})" for name in trainer.presets]
    return f"give --preset {' or '.join(known)}"


def _checked_files(plan: ExportPlan) -> ExportPlan:
    """Check that the clip files are there, and that copies have room."""
    for clip in plan.clips:
        try:
            size = clip.source.stat().st_size
        except OSError as error:
            raise UserError(f"{clip.source}: cannot be read ({error.strerror}); run `animegamer build`") from error
        if size != clip.seen.clip.bytes:
            raise UserError(f"{clip.source} was changed or damaged; delete it and run `animegamer build` again")
    heard = {clip.file: clip.seen.clip.bytes + clip.seen.sound.bytes for clip in plan.heard if clip.seen.sound}
    linked = [(clip.source, clip.file) for clip in plan.clips if clip.file not in heard]
    check_room_for_files(plan.request.out, linked, heard)
    if not plan.holds_last:
        return plan
    notice = f"{plan.request.trainer.title} leaves out the last frames of these clips, because they are not cut again"
    return replace(plan, notices=(*plan.notices, notice))


def _without_silent(plan: ExportPlan) -> ExportPlan:
    """Leave out clips without sound if the trainer would skip them."""
    trainer, heard = plan.request.trainer, plan.heard
    silent = len(plan.clips) - len(heard)
    spans = plan.family is not None and plan.family.spans and not plan.request.references
    if not (trainer.hears_all and spans and heard and silent):
        return plan
    notice = f"{counted(silent, 'clip')} left out: without a sound track, {trainer.title} would skip them"
    return replace(plan, clips=heard, notices=(*plan.notices, notice))


def _checked_films(plan: ExportPlan) -> ExportPlan:
    """Check that films are fast enough and available; leave out clips whose last frame is in the next scene."""
    preset = plan.family
    assert preset is not None
    notices, inside = [*plan.notices], set[str]()
    if not preset.spans:
        notices += length_notices(plan.format, preset.clips)
    for folder in plan.folders:
        check_rate(folder.film, preset)
        notices += film_notices(folder.film, preset)
        if plan.sound and folder.film.audio_tracks == ():
            notices.append(f"{folder.film.name} has no sound track, so its clips have no sound")
        inside |= inside_scenes(folder, preset)
    clips = tuple(clip for clip in plan.clips if clip.seen.clip.clip_id in inside)
    if not clips:
        raise UserError(f"no chosen clip has {preset.frames} frames at {preset.fps} a second inside its scene")
    if missing := len(plan.clips) - len(clips):
        notices.append(f"{missing} clips left out: their last frame would be in the next scene")
    plan = replace(plan, clips=clips, format=preset.clips, notices=tuple(notices))
    _check_what_is_cut(plan)
    return plan


def _check_what_is_cut(plan: ExportPlan) -> None:
    """Check that the films with clips to cut are available, and that there is room."""
    out = plan.request.out
    log = CutLog(out)
    needed = [folder.film for folder in plan.folders if plan.to_cut(log, folder)]
    for film in needed:
        check_available(film)
    fetched = max((film.bytes for film in needed if is_address(film.source)), default=0)
    check_room_for_cuts(out, [(clip.seen.clip, clip.file) for clip in plan.clips], plan.format, fetched)


def _is_finished(folder: FilmFolder, stages: Sequence[str]) -> bool:
    """Return True if the captions and verdicts of a film belong to its clips, because its last build has finished.

    Comparing ids is not enough: clips of different lengths have the same id if they begin at the same time.
    """
    if not is_whole(folder, stages):
        return False
    screened, final = (
        {row.clip_id: row.level for row in folder.read_if_made(table, Verdict)} for table in ("screened", "verdicts")
    )
    return screened == final  # publishing takes clips and levels from the screening
