"""Summary of a dataset, read once from its tables, and its method in sentences, for the data card and the report.

A dataset may be shown before it is complete (`--until`), so a table that is not made yet reads as empty.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise

from pipeline.captions.caption_server import SERVED
from pipeline.core.config import CaptionSettings, Config, MotionSettings, SelectionSettings, recorded
from pipeline.core.dialogue import SubtitleTrack
from pipeline.core.plain_text import first_few
from pipeline.core.records import Crop, Damage, Failure, FieldStretch, Film, Scene
from pipeline.core.store import Dataset, DatasetRecord, FilmFolder
from pipeline.pages.charts import clock
from pipeline.publish.coverage import Span, film_remarks, film_spans
from pipeline.publish.seen_clips import ClipFate, SeenClip, film_clips, read_index_if_made, splits_of
from pipeline.publish.shards import Index
from pipeline.publish.vocabulary import Vocabulary, load_vocabulary
from pipeline.reviews.applied import ReviewCounts, count_reviews, load_reviews, review_path
from pipeline.reviews.audit import Results, audit_results
from pipeline.reviews.decisions import FIELDS, KEEP
from pipeline.stages.stretches import stretches_of
from pipeline.video.colour import DIFFUSE_WHITE, PEAK
from prompts.template import load_prompt


@dataclass(frozen=True)
class SeenFilm:
    """A film with its scenes, damage, clips, spans and failures. A failed film has neither clips nor scenes."""

    film: Film
    crops: tuple[Crop, ...]
    """Crops in order of time; none for a failed film."""
    scenes: tuple[Scene, ...]
    damage: tuple[Damage, ...]
    clips: tuple[SeenClip, ...]
    spans: tuple[Span, ...]
    """Spans by fate; they tile the film and its missing end."""
    failures: tuple[Failure, ...]
    last_failure: Failure | None
    """Failure of a film with samples in the last build: all other fields are from an earlier build."""
    fields: tuple[FieldStretch, ...] = ()
    """Stretches of telecine, interlaced and progressive video; none for a film that is progressive."""
    remarks: tuple[str, ...] = ()
    """Remarks on its clips: that there is none, or that much of the pictures is cut off."""
    subtitles: tuple[SubtitleTrack, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the probe, the crop and the last build, and the remarks."""
        warnings = [*self.film.warnings, *(text for crop in self.crops for text in crop.warnings), *self.remarks]
        if self.last_failure:
            reason = self.last_failure.reason
            warnings.append(f"shown as an earlier build left it, because the last one failed: {reason}")
        return tuple(warnings)


@dataclass(frozen=True)
class Summary:
    """Summary of the whole dataset."""

    record: DatasetRecord
    config: Config
    index: Index | None
    films: tuple[SeenFilm, ...]
    reviews: ReviewCounts
    audit: Results | None
    """Results of the audit of this dataset; None without a labelled clip."""

    @property
    def title(self) -> str:
        """Title set by the builder, or the names of the series and films."""
        names = list(dict.fromkeys(seen.film.series or seen.film.name for seen in self.films))
        return self.config.card.title or first_few(names, 2) or "An empty dataset"

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
    """Read the facts for card and report. Raises UserError if a file of the dataset cannot be read."""
    record = dataset.record
    index = read_index_if_made(dataset)
    vocabulary = load_vocabulary(dataset.root)
    config = recorded(record.config, dataset.root)
    films = tuple(
        _seen_film(folder, place, index, vocabulary, config)
        for place, folder in enumerate(dataset.folders())
        if (folder.path / "film.json").exists()
    )
    reviews = count_reviews(load_reviews(dataset, review_path(dataset.root, config.review)))
    return Summary(record, config, index, films, reviews, audit_results(dataset, vocabulary.published))


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


def _seen_film(folder: FilmFolder, place: int, index: Index | None, vocabulary: Vocabulary, config: Config) -> SeenFilm:
    film, failure = folder.film, folder.failure
    # selection removes the verdicts of an incomplete film; a film with verdicts is in the shards
    if failure is not None and not folder.table_path("verdicts").exists():
        span = Span(0.0, film.duration_seconds + film.missing_seconds, "failed", failure.reason)
        return SeenFilm(film, (), (), (), (), (span,), (failure,), None)
    scenes, damage = folder.read_if_made("scenes", Scene), folder.read_if_made("damage", Damage)
    clips = tuple(film_clips(folder, splits_of(folder, place, index), vocabulary))
    verdicts = [seen.verdict for seen in clips if seen.verdict]
    stretches = stretches_of(film, config.selection)
    spans = film_spans(film, scenes, damage, [seen.clip for seen in clips], verdicts, _end_seconds(folder), stretches)
    crops = tuple(folder.read_if_made("crop", Crop))
    fields = tuple(folder.read_if_made("fields", FieldStretch))
    made = (film, crops, tuple(scenes), tuple(damage), clips, tuple(spans), _failures(folder), failure, fields)
    subtitles = tuple(folder.read_if_made("subtitles", SubtitleTrack))
    return SeenFilm(*made, remarks=tuple(film_remarks(folder, config.clips)), subtitles=subtitles)


def _end_seconds(folder: FilmFolder) -> float | None:
    """End of the used part of this film; the last build's `--end` may differ from the one it was cut with."""
    record = folder.stage_record("cut")
    end: float | None = record.ingredients.get("film", {}).get("end_seconds") if record else None
    return end


def _failures(folder: FilmFolder) -> tuple[Failure, ...]:
    records = [folder.stage_record(stage) for stage in ("crop", "cut", "looks", "motion", "screened", "captions")]
    return tuple(failure for record in records if record for failure in record.failures)


def made_with(summary: Summary) -> list[tuple[str, str]]:
    """The method as (stage, sentence), from the configuration of the last build."""
    config = summary.config
    clips, looks, chosen, shards = config.clips, config.looks, config.selection, config.shards
    text = f"; text boxes by the detector of RapidOCR {_version('rapidocr')}" if looks.text else "; text not looked for"
    crop = (
        f"cropped, by the borders of up to {config.crop.keyframes} keyframes" if config.crop.enabled else "not cropped"
    )
    return [
        ("Borders", crop),
        (
            "Scenes",
            f"cuts with PySceneDetect {_version('scenedetect')}; dissolves, fades and wipes with a small network",
        ),
        (
            "Clips",
            f"{clips.frames} frames at {clips.fps} frames per second, every {clips.seconds:g} s of a scene, "
            f"{'the last one reaching back over its rest, ' if clips.placing == 'overlap' else ''}"
            f"{clips.margin_frames} film frames away from its ends; {clips.width}x{clips.height} ({clips.fit}), "
            f"H.264 at CRF {clips.crf}, by presentation time",
        ),
        ("Looks", f"light, contrast, stillness, perceptual hashes, black bars, logos that stay in place{text}"),
        ("Motion", _motion_sentence(config.motion, summary.record)),
        ("Captions", _caption_sentence(config.captions, summary)),
        (
            "Selection",
            f"dropped if darker than {chosen.min_light:g} of 255, if contrast is below {chosen.min_contrast:g}, "
            f"if text covers more than {chosen.max_text_share:.0%} or is a subtitle{_noted(chosen.text)}, "
            f"if the film has a logo there{_noted(chosen.logo)}{_duplicate_phrase(chosen)}",
        ),
        (
            "Shards",
            f"WebDataset tars; {shards.val_share:.0%} of the films goes to the split val, each as a whole"
            if shards.split == "film"
            else f"WebDataset tars; {shards.val_share:.0%} of each film goes to the split val, "
            f"by blocks of {shards.block_seconds:g} s; of films too short for that, {shards.val_share:.0%} as a whole",
        ),
    ]


def treatments(seen: SeenFilm) -> list[str]:
    """Sentences about the treatment of a film's pictures beyond cropping and scaling; most films have none."""
    hdr = "HDR ({}, BT.2020), mapped to SDR BT.709: light up to {:g} cd/m² as in SDR, highlights up to {:g} compressed"
    sentences = {
        "pq": hdr.format("PQ", DIFFUSE_WHITE, PEAK),
        "hlg": hdr.format("HLG", DIFFUSE_WHITE, PEAK),
        "bt2020": "SDR of BT.2020, mapped to BT.709: colours outside the smaller gamut are clipped",
    }
    transfer = seen.film.transfer
    colours = [sentences[transfer]] if transfer in sentences else []
    crops = [note for crop in seen.crops for note in crop.notes]
    return colours + crops + _field_treatments(seen.fields)


def _field_treatments(stretches: Iterable[FieldStretch]) -> list[str]:
    """A sentence for each kind of fields that was undone, with the length of film that had it."""
    seconds: dict[str, float] = defaultdict(float)
    for stretch in stretches:
        seconds[stretch.kind] += stretch.end_seconds - stretch.start_seconds
    undone = {"telecine": "telecine matched back to film frames", "interlaced": "interlaced video deinterlaced"}
    return [f"{sentence}, {clock(seconds[kind])} of it" for kind, sentence in undone.items() if seconds[kind]]


def _duplicate_phrase(chosen: SelectionSettings) -> str:
    if not chosen.near_duplicates:
        return "; near-duplicates were not searched for"
    return f", or if its perceptual hashes differ from another clip's by at most {chosen.duplicate_distance} bits"


def _noted(treatment: str) -> str:
    return " (kept with a flag)" if treatment == "flag" else ""


def software(summary: Summary) -> str:
    """Names and versions of the packages used, as far as they are installed here."""
    packages = [
        "animegamer-pipeline",
        "av",
        "opencv-python",
        "numpy",
        "scenedetect",
        "onnxruntime",
        "rapidocr",
        "webdataset",
    ]
    if not _by_opencv(summary.record):
        packages += ["ptlflow", "torch"]
    return ", ".join(f"{package} {_version(package)}" for package in packages)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # the films were prepared on a machine that had it
        return "(not on the machine that wrote this)"


def _by_opencv(record: DatasetRecord) -> bool:
    return record.flow_model is None or record.flow_model.partition("@")[0] == "dis"


def _motion_sentence(motion: MotionSettings, record: DatasetRecord) -> str:
    if record.flow_model is None:
        return "not measured yet"
    name, _, scale = record.flow_model.partition("@")
    by = "DIS of OpenCV" if _by_opencv(record) else f"{name} of ptlflow"
    size = f" at {scale} of the clip's size" if scale not in ("", "1") else ""
    left_out = f"magnitudes below {motion.background_px:g} px left out"
    return f"optical flow by {by}{size}; {left_out}; level edges: {record.edges_from}"


def _caption_sentence(captions: CaptionSettings, summary: Summary) -> str:
    if summary.record.captioner is None:
        return "none"
    if summary.made_by_rules:
        return "RULES, NOT A LANGUAGE MODEL: sentences made from the measured motion, camera motion and light"
    revision = f" at revision {captions.revision}" if captions.revision else ""
    names = ("who", "what", "actor", *(["dialogue"] if captions.dialogue else []))
    prompts = ", ".join(f"{name} {load_prompt(name).version}" for name in names)
    kept = sum(clip.caption.is_kept for clip in summary.kept if clip.caption)
    why = "from an earlier form of the questions, or without its replies"
    older = f"; {kept} of the kept clips have a caption {why}" if kept else ""
    copied = sum(clip.caption.is_copied for clip in summary.kept if clip.caption)
    older += f"; {copied} of the kept clips have the caption of a poorer copy" if copied else ""
    runs_code = summary.record.captioner in {model.repository for model in SERVED.values()}
    code = ", served with code of the model's repository (trust-remote-code)" if runs_code else ""
    by = f"{summary.record.captioner}{revision}{code}"
    return f"{by}, temperature {captions.temperature:g}, prompt versions {prompts}{older}"
