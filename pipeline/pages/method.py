"""Method of a data set in sentences, for the data card and the report: settings of each stage, and software."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from pipeline.captions.caption_server import SERVED
from pipeline.core.config import CaptionSettings, MotionSettings, SelectionSettings
from pipeline.core.records import FieldStretch
from pipeline.core.store import DatasetRecord
from pipeline.pages.charts import clock
from pipeline.pages.summary import SeenFilm, Summary
from pipeline.video.colour import DIFFUSE_WHITE, PEAK
from prompts.template import load_prompt


def made_with(summary: Summary) -> list[tuple[str, str]]:
    """The method as (stage, sentence), from the configuration of the last build."""
    config = summary.config
    clips, looks, chosen, shards = config.clips, config.looks, config.selection, config.shards
    text = f"; text boxes by the detector of RapidOCR {_version('rapidocr')}" if looks.text else "; text not looked for"
    crop = f"one crop per film, from up to {config.crop.keyframes} keyframes" if config.crop.enabled else "not cropped"
    return [
        ("Borders", crop),
        ("Scenes", f"cuts, dissolves, fades and wipes; cuts with detectors of PySceneDetect {_version('scenedetect')}"),
        (
            "Clips",
            f"{clips.frames} frames at {clips.fps} frames per second, every {clips.seconds:g} s of a scene, "
            f"{'the last one reaching back over its rest, ' if clips.placing == 'overlap' else ''}"
            f"{clips.margin_frames} film frames away from its ends; {clips.width}x{clips.height} ({clips.fit}), "
            f"H.264 at CRF {clips.crf}, by presentation time",
        ),
        ("Looks", f"light, contrast, stillness, perceptual hashes{text}"),
        ("Motion", _motion_sentence(config.motion, summary.record)),
        ("Captions", _caption_sentence(config.captions, summary)),
        (
            "Selection",
            f"dropped if darker than {chosen.min_light:g} of 255, if contrast is below {chosen.min_contrast:g}, "
            f"if text covers more than {chosen.max_text_share:.0%}{_duplicate_phrase(chosen)}",
        ),
        (
            "Shards",
            f"WebDataset tars; {shards.val_share:.0%} of each film to the split val, "
            f"by blocks of {shards.block_seconds:g} s; of films too short for that, {shards.val_share:.0%} as a whole",
        ),
    ]


def treatments(seen: SeenFilm) -> list[str]:
    """Sentences about what was done to the pictures of a film beyond cropping and scaling; most films have none."""
    hdr = "HDR ({}, BT.2020), mapped to SDR BT.709: light up to {:g} cd/m² as in SDR, highlights up to {:g} compressed"
    sentences = {
        "pq": hdr.format("PQ", DIFFUSE_WHITE, PEAK),
        "hlg": hdr.format("HLG", DIFFUSE_WHITE, PEAK),
        "bt2020": "SDR of BT.2020, mapped to BT.709: colours outside the smaller gamut are clipped",
    }
    transfer = seen.film.transfer
    colours = [sentences[transfer]] if transfer in sentences else []
    return colours + _field_treatments(seen.fields)


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


def software(summary: Summary) -> str:
    """Names and versions of the packages used, as far as they are installed here."""
    packages = ["animegamer-pipeline", "av", "opencv-python", "numpy", "scenedetect", "rapidocr", "webdataset"]
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
    prompts = ", ".join(f"{name} {load_prompt(name).version}" for name in ("who", "what", "actor"))
    kept = sum(clip.caption.is_kept for clip in summary.kept if clip.caption)
    why = "from an earlier form of the questions, or without its replies"
    older = f"; {kept} of the kept clips have a caption {why}" if kept else ""
    runs_code = summary.record.captioner in {model.repository for model in SERVED.values()}
    code = ", served with code of the model's repository (trust-remote-code)" if runs_code else ""
    by = f"{summary.record.captioner}{revision}{code}"
    return f"{by}, temperature {captions.temperature:g}, prompt versions {prompts}{older}"
