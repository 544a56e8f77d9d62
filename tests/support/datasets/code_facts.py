"""Facts of the code that decide about results made before: ingredients, records, recipes, tensors, prompts.

`made_before.py` writes them to `tests/made_before.json`, and `tests/test_made_before.py` compares them with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import torch
from PIL import Image
from pydantic import BaseModel
from safetensors import safe_open

from flows.game.records import GameSettings, TurnRecord
from models.checkpoint import Checkpoint
from pipeline.captions.cast import load_cast
from pipeline.captions.reply_cache import Replies
from pipeline.core.config import CaptionSettings, Config, checked
from pipeline.core.ingredients import fingerprint
from pipeline.core.records import Clip, Failure, Film, arrow_schema, make_clip_id, make_film_id
from pipeline.core.stage import ingredients_of
from pipeline.core.store import TABLES, DatasetRecord, FileMark, FilmFolder, StageRecord
from pipeline.plan.film_stages import choose_edges, planned_stages
from pipeline.plan.request import BuildRequest
from pipeline.publish.samples import Sample
from pipeline.publish.shards import Index
from pipeline.remote.mirror import Notes
from pipeline.reviews.audit.sampling import AuditSample
from pipeline.reviews.decisions import Decision
from prompts.template import load_prompt
from tests.support.networks.tiny_models import brief_checkpoint
from training.config import Recipe
from training.data.feature_cache import FeatureCache
from training.data.turns import Catalog
from training.phase import Phase
from training.phases.assembly import SplitData, adapt_phase, game_phase, shot_phase
from training.recipes import ABLATIONS, RECIPES, ablation, merged, tiny
from training.run_folder import MadeFrom

Facts = dict[str, Any]
SERVER = CaptionSettings(captioner="server", model="a-model", revision="r1")
SETTINGS: Mapping[str, dict[str, Any]] = {
    "default": {},
    "changed": {
        "film": {"end_seconds": 90.5},
        "crop": {"enabled": False, "keyframes": 12},
        "scenes": {"detect_width": 320, "adaptive_threshold": 2.5, "transition_seconds": 1.0},
        "clips": {"frames": 17, "fps": "24000/1001", "seconds": 1.5, "fit": "fit", "crf": 20},
        "looks": {"text": False},
        "motion": {"background_px": 0.25, "scale": 1.0, "edges": [0.5, 1.0, 2.0, 4.0]},
        "selection": {"max_still_share": 0.9, "min_level": 2, "uncaptioned": "keep"},
    },
    "server": {"captions": SERVER.model_dump()},
}
RECORDS: Mapping[str, type[BaseModel]] = {
    "film.json": Film,
    "<stage>.json": StageRecord,
    "failure.json": Failure,
    "dataset.json": DatasetRecord,
    "index.json": Index,
    "<clip_id>.json": Sample,
    "replies": Replies,
    "mirror": Notes,
    "game.json": GameSettings,
    "turns.jsonl": TurnRecord,
    "review.jsonl": Decision,
    "sample.json": AuditSample,
    "made_from.json": MadeFrom,
    **{f"{table}.parquet": record for table, record in TABLES.items()},
}


def stage_facts(root: Path) -> Facts:
    """Ingredients and fingerprint of every stage for a film without a file, under several settings."""
    folder = FilmFolder(root / "films" / "film-abababab")
    folder.save_film(film_record("film.mp4", b"never there"))
    facts: Facts = {}
    for label, settings in SETTINGS.items():
        config = checked(settings, label)
        edges, _ = choose_edges(config, DatasetRecord())
        request = BuildRequest(films=(), out=root, cast=painted_cast(root / label), config=config)
        for stage in planned_stages(request, edges):
            ingredients = ingredients_of(stage, folder)
            made = {"fingerprint": fingerprint(ingredients), **ingredients}
            if made != facts.get(f"default {stage.name}"):
                facts[f"{label} {stage.name}"] = made
            marks = {f"{stage.name}.parquet": mark(stage.name.encode())}
            record = StageRecord(stage=stage.name, fingerprint="", ingredients={}, files=marks)
            folder.save_stage_record(record)
    return facts


def cast_facts(root: Path) -> Facts:
    """Identity of a cast: names, hash, listing."""
    cast = load_cast(Path(painted_cast(root)))
    return {"names": cast.names, "sha256": cast.sha256, "listing": cast.listing()}


def prompt_facts(_: Path) -> Facts:
    """Identities of the prompts, which stored answers refer to."""
    return {name: load_prompt(name).identity for name in ("who", "what", "actor", "repair", "scene", "scene-repair")}


def record_facts(_: Path) -> Facts:
    """Fields of every record on disk, with their types and defaults."""
    schemas = {name: record.model_json_schema() for name, record in RECORDS.items()}
    return {name: _shape(schema, schema.get("$defs", {})) for name, schema in schemas.items()}


def table_facts(_: Path) -> Facts:
    """Columns of the tables."""
    return {
        name: [str(field) + " null" * field.nullable for field in arrow_schema(row)] for name, row in TABLES.items()
    }


def recipe_facts(_: Path) -> Facts:
    """Fingerprints of the recipes and of the ablations of the tiny one, as a run's `recipe.json` shows them."""
    recipes = {name: recipe() for name, recipe in RECIPES.items()}
    recipes |= {name: ablation(name, tiny()) for name in ABLATIONS}
    shown = {
        name: recipe.model_dump(mode="json", exclude=recipe.unset_later_keys()) for name, recipe in recipes.items()
    }
    return {name: fingerprint(recipe) for name, recipe in shown.items()}


def checkpoint_facts(_: Path) -> Facts:
    """Files of an untrained checkpoint, classes named by its bases, and its tensors with layers counted together."""
    folder = brief_checkpoint()
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    configs = {name: json.loads((folder / name).read_bytes()) for name in files if name.endswith("/config.json")}
    own = [name for name in files if name.endswith(".safetensors") and not name.startswith("bases/")]
    return {
        "files": files,
        "classes": {name: found.get("_class_name", found.get("architectures")) for name, found in configs.items()},
        "tensors": {name: _tensors(folder / name) for name in own},
    }


def trained_facts(root: Path) -> Facts:
    """Saved state of each phase: number of trained parameters in each part, and a hash of their names."""
    checkpoint, recipe = Checkpoint.open(brief_checkpoint()), brief_recipe()
    catalog = Catalog("none", (), ())
    split = SplitData(catalog, FeatureCache(root, catalog, ()))
    shared = recipe, checkpoint, checkpoint.config, split, None
    phases = [shot_phase("warm-up", *shared), shot_phase("joint", *shared), game_phase(*shared), adapt_phase(*shared)]
    adapters = recipe.model_copy(update={"shot": recipe.shot.model_copy(update={"trained": "adapters"})})
    return {
        **{phase.name: _trained(phase) for phase in phases},
        "joint of adapters": _trained(shot_phase("joint", adapters, *shared[1:])),
    }


def libraries() -> str:
    """Hash of versions and of the libraries' output for a picture: equal where they give the same bytes."""
    names = ("av", "numpy", "opencv-python", "peft", "pyarrow", "safetensors", "torch", "webdataset")
    digest = hashlib.sha256(" ".join(map(version, names)).encode())
    noise = np.random.default_rng(0).integers(0, 256, (9, 16, 3), dtype=np.uint8)
    pictures = [cv2.resize(np.roll(noise, n, 1), (180, 120), interpolation=cv2.INTER_CUBIC) for n in range(16)]
    flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    grays = [cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY) for picture in pictures]
    digest.update(flow.calc(grays[0], grays[1], None).tobytes())
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = 180, 120, "yuv420p", Fraction(1, 8)
    encoder.thread_count, encoder.options = 1, {"crf": "17"}
    for picture in pictures:
        for packet in encoder.encode(av.VideoFrame.from_ndarray(picture, format="bgr24").reformat(format="yuv420p")):
            digest.update(bytes(packet))
    for packet in encoder.encode():
        digest.update(bytes(packet))
    digest.update(torch.randn(4096, generator=torch.Generator().manual_seed(0)).numpy().tobytes())
    return digest.hexdigest()[:16]


FACTS: Mapping[str, Callable[[Path], Facts]] = {
    "config": lambda _: Config().model_dump(mode="json"),
    "stages": stage_facts,
    "cast": cast_facts,
    "prompts": prompt_facts,
    "records": record_facts,
    "tables": table_facts,
    "recipes": recipe_facts,
    "checkpoint": checkpoint_facts,
    "trained": trained_facts,
}


def film_record(name: str, content: bytes) -> Film:
    """Film record for any content, which need not be a video."""
    sha256 = hashlib.sha256(content).hexdigest()
    return Film(
        film_id=make_film_id(name, sha256), name=name, source=name, sha256=sha256, bytes=len(content), container="mp4",
        codec="h264", pixel_format="yuv420p", bit_depth=8, width=96, height=64, sample_aspect=Fraction(1),
        rotation_degrees=0, display_width=96, display_height=64, fps=Fraction(24_000, 1001), variable_rate=False,
        interlaced=False, frames=144, duration_seconds=6.0, missing_seconds=0.0, warnings=("a warning",),
    )  # fmt: skip


def clip_record() -> Clip:
    """Clip record for the stored replies."""
    clip_id = make_clip_id("film-abababab", 2.0)
    return Clip(
        clip_id=clip_id, film_id="film-abababab", scene=0, index=1, start_seconds=2.0, end_seconds=4.0, fps=Fraction(8),
        frames=16, width=96, height=64, source_frames=tuple(range(16)), bytes=9, sha256="d" * 64,
    )  # fmt: skip


def painted_cast(folder: Path) -> str:
    """Cast folder with the same files on every machine: uncompressed PNGs."""
    for number, name in enumerate(("Ponyo", "Sosuke")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (80 * number, 90, 200)).save(folder / name / "front.png", compress_level=0)
    return str(folder)


def brief_recipe() -> Recipe:
    """Tiny recipe without the autoencoder phase."""
    return Recipe.model_validate(merged(tiny().model_dump(), {"autoencoder": None}))


def mark(content: bytes) -> FileMark:
    return FileMark(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _shape(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
    """Fields of a schema, without descriptions and class names."""
    if "$ref" in schema:
        schema = {
            **defs[schema["$ref"].rpartition("/")[2]],
            **({"default": schema["default"]} if "default" in schema else {}),
        }
    if "properties" in schema:
        fields = schema["properties"].items()
        return {name + _default(field): _shape(field, defs) for name, field in fields}
    kept = {key: value for key, value in schema.items() if key not in ("title", "description", "default", "$defs")}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _shape(kept[key], defs)
    for key in ("anyOf", "prefixItems"):
        if key in kept:
            kept[key] = [_shape(each, defs) for each in kept[key]]
    return kept["type"] if kept.keys() == {"type"} else kept


def _default(field: Mapping[str, Any]) -> str:
    return f" = {json.dumps(field['default'])}" if "default" in field else ""


def _tensors(path: Path) -> dict[str, int]:
    with safe_open(path, "pt") as file:
        return _counted(file.keys())


def _trained(phase: Phase) -> Facts:
    names = [name for name, each in phase.network.named_parameters() if each.requires_grad]
    parts = _counted([".".join(name.split(".")[:2]) for name in names])
    return {"parts": parts, "names": fingerprint({"names": names})}


def _counted(names: Sequence[str]) -> dict[str, int]:
    return dict(sorted(Counter(re.sub(r"\.\d+(?=\.|$)", ".*", name) for name in names).items()))
