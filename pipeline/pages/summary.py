"""Summary of a data set, read once from its tables, with the facts that data card and report share.

A data set may be shown before it is complete (`--until`), so a table that is not made yet reads as empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from pydantic import ValidationError

from pipeline.core.config import ClipSettings, Config
from pipeline.core.plain_text import first_few
from pipeline.core.records import (
    Crop,
    Damage,
    Failure,
    FieldStretch,
    Film,
    Scene,
)
from pipeline.core.store import Dataset, DatasetRecord, FilmFolder, StoreError
from pipeline.publish.coverage import Span, film_remarks, film_spans
from pipeline.publish.seen_clips import ClipFate, SeenClip, film_clips, read_index_if_made, splits_of
from pipeline.publish.shards import Index
from pipeline.publish.vocabulary import Vocabulary, load_vocabulary
from pipeline.reviews.applied import ReviewCounts, count_reviews, load_reviews, review_path
from pipeline.reviews.audit import AuditResults, ForeignAuditError, audit_results
from pipeline.reviews.decisions import FIELDS, KEEP


@dataclass(frozen=True)
class SeenFilm:
    """A film with its scenes, damage, clips, spans and failures. A failed film has neither clips nor scenes."""

    film: Film
    crop: Crop | None
    scenes: tuple[Scene, ...]
    damage: tuple[Damage, ...]
    clips: tuple[SeenClip, ...]
    spans: tuple[Span, ...]
    """Spans by fate; they tile the film and its missing end."""
    failures: tuple[Failure, ...]
    last_failure: Failure | None
    """Failure of the film in the last build although it has samples: all other fields are from an earlier build."""
    fields: tuple[FieldStretch, ...] = ()
    """Stretches of telecine, interlaced and progressive video; none for a film that is progressive."""
    remarks: tuple[str, ...] = ()
    """Remarks on its clips: that there is none, or that much of the pictures is cut off."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the probe, the crop and the last build, and the remarks."""
        warnings = [*self.film.warnings, *(self.crop.warnings if self.crop else ()), *self.remarks]
        if self.last_failure:
            reason = self.last_failure.reason
            warnings.append(f"shown as an earlier build left it, because the last one failed: {reason}")
        return tuple(warnings)


@dataclass(frozen=True)
class Summary:
    """Summary of the whole data set."""

    record: DatasetRecord
    config: Config
    index: Index | None
    films: tuple[SeenFilm, ...]
    reviews: ReviewCounts
    audit: AuditResults | None
    """Results of the audit of this data set; None without a labelled clip."""

    @property
    def title(self) -> str:
        """Title set by the builder, or the names of the films."""
        names = [seen.film.name for seen in self.films]
        return self.config.card.title or first_few(names, 2) or "An empty data set"

    @property
    def clips(self) -> list[SeenClip]:
        """All clips in film and time order."""
        return [clip for film in self.films for clip in film.clips]

    @property
    def kept(self) -> list[SeenClip]:
        """The clips that are samples."""
        return [clip for clip in self.clips if clip.fate == "kept"]

    @property
    def reviewed_fields(self) -> dict[str, int]:
        """Samples in which each field was reviewed, in the order of `FIELDS`, without fields that nobody reviewed."""
        reviews = [clip.reviewed for clip in self.kept if clip.reviewed]
        counts = Counter(name for review in reviews for name in review.fields)
        counts[KEEP] = sum(review.keep is not None for review in reviews)
        return {name: counts[name] for name in FIELDS if counts[name]}

    @property
    def made_by_rules(self) -> bool:
        """True if the captions come from measured facts, without a language model."""
        return self.record.captioner == "rules"


@dataclass(frozen=True)
class LevelRow:
    """One motion level."""

    level: int
    span: str
    """Range of its scopes, in words, px per step."""
    value: str
    """Median scope in px per step; empty while unknown."""
    kept: int
    made: int


def summarise(dataset: Dataset) -> Summary:
    """Read the facts for card and report.

    Raises:
        UserError: a file of the data set cannot be read.
    """
    record = dataset.record
    index = read_index_if_made(dataset)
    vocabulary = load_vocabulary(dataset.root)
    try:
        config = Config.model_validate(record.config)
    except ValidationError as error:
        path = dataset.root / "dataset.json"
        raise StoreError(f"{path}: its config is of another version ({error}); run `animegamer build` again") from error
    films = tuple(
        _seen_film(folder, place, index, vocabulary, config.clips)
        for place, folder in enumerate(dataset.folders())
        if (folder.path / "film.json").exists()
    )
    reviews = count_reviews(load_reviews(dataset, review_path(dataset.root, config.review)))
    return Summary(record, config, index, films, reviews, _audit(dataset, vocabulary))


def count_reasons(clips: Iterable[SeenClip], fate: ClipFate) -> Counter[str]:
    """Number of clips of a fate by reason; a clip with two reasons counts for both."""
    return Counter(reason for clip in clips if clip.fate == fate for reason in clip.reasons)


def level_rows(summary: Summary) -> list[LevelRow]:
    """The five motion levels with their edges, values and counts; none before motion was measured."""
    edges, values = summary.record.edges, summary.record.level_values
    if edges is None:
        return []
    made = Counter(clip.level for clip in summary.clips)
    kept = Counter(clip.level for clip in summary.kept)
    ranges = [*(f"{low:.3g} to {high:.3g}" for low, high in pairwise((0.0, *edges))), f"{edges[-1]:.3g} and more"]
    return [
        LevelRow(level, span, f"{values[level - 1]:.3g}" if values else "", kept[level], made[level])
        for level, span in enumerate(ranges, start=1)
    ]


def _audit(dataset: Dataset, vocabulary: Vocabulary) -> AuditResults | None:
    try:
        return audit_results(dataset, vocabulary.published)
    except ForeignAuditError:
        return None  # says nothing about this data set; `animegamer audit` refuses it


def _seen_film(
    folder: FilmFolder, place: int, index: Index | None, vocabulary: Vocabulary, settings: ClipSettings
) -> SeenFilm:
    film, failure = folder.film, folder.failure
    # selection removes the verdicts of an incomplete film; a film with verdicts is in the shards
    if failure is not None and not folder.table_path("verdicts").exists():
        span = Span(0.0, film.duration_seconds + film.missing_seconds, "failed", failure.reason)
        return SeenFilm(film, None, (), (), (), (span,), (failure,), None)
    scenes, damage = folder.read_if_made("scenes", Scene), folder.read_if_made("damage", Damage)
    clips = tuple(film_clips(folder, splits_of(folder, place, index), vocabulary))
    verdicts = [seen.verdict for seen in clips if seen.verdict]
    spans = film_spans(film, scenes, damage, [seen.clip for seen in clips], verdicts, _end_seconds(folder))
    crop = next(iter(folder.read_if_made("crop", Crop)), None)
    fields = tuple(folder.read_if_made("fields", FieldStretch))
    made = (film, crop, tuple(scenes), tuple(damage), clips, tuple(spans), _failures(folder), failure, fields)
    return SeenFilm(*made, remarks=tuple(film_remarks(folder, settings)))


def _end_seconds(folder: FilmFolder) -> float | None:
    """End of the used part of this film; the last build's `--end` may differ from the one it was cut with."""
    record = folder.stage_record("cut")
    end: float | None = record.ingredients.get("film", {}).get("end_seconds") if record else None
    return end


def _failures(folder: FilmFolder) -> tuple[Failure, ...]:
    records = [folder.stage_record(stage) for stage in ("crop", "cut", "looks", "motion", "screened", "captions")]
    return tuple(failure for record in records if record for failure in record.failures)
