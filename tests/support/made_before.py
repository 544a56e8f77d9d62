"""Folders and facts that decide what is read, skipped and continued, as text: what `tests/made_before.json` holds.

    python -m tests.support.made_before > tests/made_before.json

`facts` are values that the code of today must give again: fingerprints, fields on disk, names of tensors. `folders` are
a data set, a training run, a checkpoint, a game and replies as the version that wrote the file left them, without what
is no text: `test_made_before.py` unpacks them and sees that nothing in them is done again. Write the file anew only in
a change that means to make old results stale, and say so in the changelog.

Facts hold nothing that depends on the machine. x264, OpenCV's optical flow and torch's random numbers take other
instructions on other processors, and may then give other bytes: these are in `bytes`, which is compared only where the
libraries make the same of the same picture (`libraries`).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tarfile
import tempfile
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

from flows.game.folder import GameFolder
from flows.game.play_file import play_turn
from flows.game.records import GameSettings, TurnRecord
from models.checkpoint import (
    ADAPTER,
    CONFIG,
    DECODER_LORA,
    DECODER_OWN,
    RESAMPLERS,
    SHOT_ENCODER,
    Checkpoint,
    save_config,
)
from models.config import inside_id, tiny_config
from models.engine_options import EngineOptions
from pipeline.captions.cast import Cast, load_cast
from pipeline.captions.questions import questions_about
from pipeline.captions.reply_cache import Exchange, Replies, save_replies
from pipeline.captions.server_captioner import ServerCaptioner
from pipeline.core.config import CaptionSettings, Config, checked
from pipeline.core.ingredients import fingerprint
from pipeline.core.progress import silent
from pipeline.core.records import Clip, Failure, Film, Motion, arrow_schema, make_clip_id, make_film_id
from pipeline.core.stage import ingredients_of, perform
from pipeline.core.store import (
    TABLES,
    Dataset,
    DatasetRecord,
    FileMark,
    FilmFolder,
    StageRecord,
)
from pipeline.plan.build_plan import make_plan
from pipeline.plan.film_stages import STAGE_NAMES, choose_edges, planned_stages
from pipeline.plan.publish import WritePages, WriteShards, publish_stages
from pipeline.plan.request import BuildRequest
from pipeline.publish.samples import Sample
from pipeline.publish.shards import Index
from pipeline.remote.mirror import Notes
from prompts.template import load_prompt
from tests.support.films import make_film
from tests.support.painted_engine import PaintedEngine
from tests.support.tiny_models import brief_checkpoint
from training.baselines.config import BaselineKind
from training.baselines.config import tiny as tiny_baseline
from training.baselines.encoding import open_features
from training.baselines.folder import CONFIG as BASELINE_CONFIG
from training.baselines.folder import BaselineFolder
from training.baselines.run import train_baseline
from training.config import Recipe
from training.data.encoding import Name, open_cache
from training.data.feature_cache import FeatureCache
from training.data.turns import Catalog
from training.phase import Phase
from training.phases.assembly import SplitData, adapt_phase, game_phase, shot_phase
from training.recipes import ABLATIONS, RECIPES, ablation, merged, tiny
from training.run import PHASES, TrainingRun
from training.run_folder import MadeFrom, RunFolder

Facts = dict[str, Any]
SMALL = {"looks": {"text": False}, "clips": {"width": 180, "height": 120}, "run": {"threads": 1}}
SERVER = CaptionSettings(captioner="server", model="a-model", revision="r1")
CAST = Cast(names=("Ponyo", "Sosuke"), sha256="c" * 64)
ANSWER = "<S>fox</S><MD>jump over a brook</MD><EV>night forest</EV><MA>nimbly</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"
FEATURES: tuple[Name, ...] = ("latents", "patches", "text", "shot_tokens", "predictions")
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
    "made_from.json": MadeFrom,
    **{f"{table}.parquet": record for table, record in TABLES.items()},
}


def stage_facts(root: Path) -> Facts:
    """Ingredients and fingerprint of every stage on a film that was never there, for some settings."""
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
            marks = {f"{stage.name}.parquet": _mark(stage.name.encode())}
            record = StageRecord(stage=stage.name, fingerprint="", ingredients={}, files=marks)
            folder.save_stage_record(record)
    return facts


def cast_facts(root: Path) -> Facts:
    """What a cast is known by."""
    cast = load_cast(Path(painted_cast(root)))
    return {"names": cast.names, "sha256": cast.sha256, "listing": cast.listing()}


def prompt_facts(_: Path) -> Facts:
    """Identities of the prompts; an answer belongs to one."""
    return {name: load_prompt(name).identity for name in ("who", "what", "repair", "scene", "scene-repair")}


def record_facts(_: Path) -> Facts:
    """Fields of everything on disk, with their types and defaults."""
    schemas = {name: record.model_json_schema() for name, record in RECORDS.items()}
    return {name: _shape(schema, schema.get("$defs", {})) for name, schema in schemas.items()}


def table_facts(_: Path) -> Facts:
    """Columns of the tables."""
    return {
        name: [str(field) + " null" * field.nullable for field in arrow_schema(row)] for name, row in TABLES.items()
    }


def recipe_facts(_: Path) -> Facts:
    """Fingerprints of the recipes and of the ablations of the tiny one; a run's `recipe.json` shows what is in them."""
    recipes = {name: recipe() for name, recipe in RECIPES.items()}
    recipes |= {name: ablation(name, tiny()) for name in ABLATIONS}
    return {name: fingerprint(recipe.model_dump(mode="json")) for name, recipe in recipes.items()}


def checkpoint_facts(_: Path) -> Facts:
    """Files of an untrained checkpoint, classes that its bases name, and its tensors, layers counted together."""
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
    """What the saved state of each phase holds: how many parameters it trains in which parts, a hash of their names."""
    checkpoint, recipe = Checkpoint.open(brief_checkpoint()), brief_recipe()
    catalog = Catalog("none", (), ())
    split = SplitData(catalog, FeatureCache(root, catalog, ()))
    given = recipe, checkpoint, checkpoint.config, split, None
    phases = [shot_phase("warm-up", *given), shot_phase("joint", *given), game_phase(*given), adapt_phase(*given)]
    adapters = recipe.model_copy(update={"shot": recipe.shot.model_copy(update={"trained": "adapters"})})
    return {
        **{phase.name: _trained(phase) for phase in phases},
        "joint of adapters": _trained(shot_phase("joint", adapters, *given[1:])),
    }


def build_facts(data: Path) -> Facts:
    """What a build leaves: names of files, the index, facts about clips, a whole sample; without what is measured."""
    [folder] = Dataset(data).folders()
    index = json.loads((data / "shards" / "index.json").read_bytes())
    index["shards"] = [{**shard, "bytes": 0, "sha256": "", "made_from": ""} for shard in index["shards"]]
    index["level_values"] = len(index["level_values"])
    clips = [{**row.model_dump(mode="json"), "bytes": 0, "sha256": ""} for row in folder.read("clips", Clip)]
    files = [path.relative_to(data).as_posix() for path in sorted(data.rglob("*")) if path.is_file()]
    facts = {
        "files": [name for name in files if "/." not in f"/{name}"],
        "clips": clips,
        "index": index,
        "sample": _first_sample(data),
        "published": {name: sorted(entry) for name, entry in json.loads((data / "published.json").read_text()).items()},
    }
    known: Facts = json.loads(json.dumps(facts).replace(folder.film_id, "FILM"))
    return known


def build_bytes(data: Path) -> Facts:
    """What of a build depends on the processor too."""
    [folder] = Dataset(data).folders()
    records = [record for name in STAGE_NAMES if (record := folder.stage_record(name))]
    index = Index.model_validate_json((data / "shards" / "index.json").read_bytes())
    return {
        "film": folder.film.sha256,
        "stages": {record.stage: [record.fingerprint, record.result] for record in records},
        "shards": {shard.name: [shard.sha256, shard.made_from] for shard in index.shards},
        "published": json.loads((data / "published.json").read_bytes())["shards"]["made_from"],
        "scopes": {row.clip_id: row.scope_px for row in folder.read("motion", Motion)},
        "checkpoint": Checkpoint.open(brief_checkpoint()).identity(),
    }


def libraries() -> str:
    """A hash of versions, and of what the libraries make of a picture: equal where they give the same bytes."""
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


def build(root: Path) -> Path:
    """A small data set, really built: two scenes, captions by rules, published."""
    film = make_film(root / "film.mp4", frames=144, scenes=[0, 70])
    request = BuildRequest(films=(film,), out=root / "data", config=checked(SMALL, "small"))
    plan = make_plan(request)
    for stage in plan.stages:
        perform(stage, plan.dataset.folder(plan.films[0]))
    for stage in publish_stages(plan.config):
        stage.run(plan.dataset, silent)
    return root / "data"


def film_record(name: str, content: bytes) -> Film:
    """A film of some content, which need not be one."""
    sha256 = hashlib.sha256(content).hexdigest()
    return Film(
        film_id=make_film_id(name, sha256), name=name, source=name, sha256=sha256, bytes=len(content), container="mp4",
        codec="h264", pixel_format="yuv420p", bit_depth=8, width=96, height=64, sample_aspect=Fraction(1),
        rotation_degrees=0, display_width=96, display_height=64, fps=Fraction(24_000, 1001), variable_rate=False,
        interlaced=False, frames=144, duration_seconds=6.0, missing_seconds=0.0, warnings=("a warning",),
    )  # fmt: skip


def clip_record() -> Clip:
    """A clip to ask about."""
    clip_id = make_clip_id("film-abababab", 2.0)
    return Clip(
        clip_id=clip_id, film_id="film-abababab", scene=0, index=1, start_seconds=2.0, end_seconds=4.0, fps=Fraction(8),
        frames=16, width=96, height=64, source_frames=tuple(range(16)), bytes=9, sha256="d" * 64,
    )  # fmt: skip


def painted_cast(folder: Path) -> str:
    """A cast folder whose files are the same everywhere: PNGs that are not compressed."""
    for number, name in enumerate(("Ponyo", "Sosuke")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (80 * number, 90, 200)).save(folder / name / "front.png", compress_level=0)
    return str(folder)


def film_file(root: Path) -> Path:
    """The file of a film whose data set is there already: it is known by its content and never decoded."""
    path = root / "film.mp4"
    path.write_bytes(b"known by its content")
    return path


def write_dataset(root: Path) -> None:
    """A data set in `root/data` with every stage done and published, its files of another kind than text made up."""
    file = film_file(root)
    film = film_record(file.name, file.read_bytes())
    dataset = Dataset(root / "data")
    folder = dataset.folder(film.film_id)
    folder.save_film(film)
    plan = make_plan(BuildRequest(films=(file,), out=dataset.root))
    tables = {"cut": ("scenes", "damage", "clips")}
    for stage in plan.stages:
        names = [f"{table}.parquet" for table in tables.get(stage.name, (stage.name,))]
        names += [f"clips/{make_clip_id(film.film_id, 2.0)}.mp4"] * (stage.name == "cut")
        ingredients = ingredients_of(stage, folder)
        marks = {name: _mark(name.encode()) for name in names}
        made = StageRecord(
            stage=stage.name, fingerprint=fingerprint(ingredients), ingredients=ingredients, files=marks,
            failures=(Failure(record_id="a clip", reason="a reason"),),
        )  # fmt: skip
        folder.save_stage_record(made)
    WriteShards(plan.config).run(dataset, silent)
    WritePages(plan.config).run(dataset, silent)
    folder.save_film(film)  # without the place where it lay


def write_replies(root: Path) -> None:
    """What a model answered about one clip, asked with and without a cast."""
    clip, said = clip_record(), {"who": "[Number]1[Index]2", "what": ANSWER}
    kept = Replies(clip_id=clip.clip_id)
    for question in questions_about(clip, 3, SERVER, CAST):
        asked = Exchange(
            request=question.request, ingredients=question.ingredients, replies=("?", said[question.request])
        )
        kept = kept.adding(question.fingerprint, asked)
    save_replies(FilmFolder(root), kept)


def caption_of(root: Path) -> Facts:
    """What a caption makes of the replies that are kept; nobody is there to be asked."""
    clip = clip_record()
    [caption] = ServerCaptioner(SERVER, CAST).captions(FilmFolder(root), [clip], {clip.clip_id: 3}, silent)
    return caption.model_dump(mode="json")


def write_checkpoint(root: Path) -> None:
    """The configuration of a tiny checkpoint; what `made_up` adds makes it one that has an identity."""
    root.mkdir(parents=True)
    save_config(root, tiny_config())


def write_baseline(root: Path, kind: BaselineKind) -> None:
    """The configuration of a tiny baseline."""
    root.mkdir(parents=True)
    (root / BASELINE_CONFIG).write_text(tiny_baseline(kind).model_dump_json(indent=2), encoding="utf-8")


def write_game(root: Path, checkpoint: Path) -> None:
    """A game of three turns, one of them tried again."""
    options = EngineOptions(steps=50, guidance=6.0)
    folder = GameFolder.create(root, GameSettings.of(Checkpoint.open(checkpoint), options, seed=7))
    for parent, instruction in ((None, "Ponyo runs"), ("0001", "Sosuke waves"), ("0001", "ポニョ sleeps")):
        play_turn(folder, PaintedEngine(), instruction, parent)


def made_up(root: Path) -> Path:
    """Put files of no meaning where a checkpoint or a baseline has its weights; returns the folder."""
    names = [ADAPTER, RESAMPLERS, SHOT_ENCODER, DECODER_LORA, DECODER_OWN]
    names += [f"{inside_id(component)}/model.safetensors" for component in tiny_config().bases]
    if (root / BASELINE_CONFIG).exists():
        parts = ("vae", "transformer", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")
        names = ["pytorch_lora_weights.safetensors"]
        names += [f"bases/{part}/{name}/weights.bin" for part in ("video", "picture") for name in parts]
    sizes = {"max_text_seq_length": 16, "d_model": 32, "hidden_size": 24, "latent_channels": 4}
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
        if name.startswith("bases/"):
            (path.parent / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    return root


def train_all(root: Path, source: Path) -> list[str]:
    """Ask for every phase of a run whose results are there; returns what it says."""
    said: list[str] = []
    place = RunFolder(root / "run", str(source), trackers=(), say=said.append)
    checkpoint = made_up(root / "checkpoint")
    for phase in (*PHASES, "gc", "gfc"):
        result = root / "run" / phase / "result"
        result.mkdir(parents=True, exist_ok=True)
        (result / CONFIG).write_bytes((checkpoint / CONFIG).read_bytes())
        made_up(result)
    run = TrainingRun(place, brief_recipe(), checkpoint)
    for train in (run.shot, run.game, run.adapt):
        train()
    for kind in ("gc", "gfc"):
        train_baseline(kind, place, brief_recipe(), made_up(root / kind))
    return said


def caches(root: Path, source: Path) -> list[FeatureCache]:
    """The feature caches of the run and of the baselines."""
    place = RunFolder(root / "run", str(source))
    catalog, checkpoint = place.catalogs()["train"], Checkpoint.open(root / "checkpoint")
    own = open_cache(place.features, catalog, checkpoint, brief_recipe(), FEATURES)
    baselines = [BaselineFolder.open(root / kind) for kind in ("gc", "gfc")]
    return [own, *(open_features(it, root / f"features-{it.config.kind}", catalog) for it in baselines)]


def headers(root: Path, source: Path) -> Facts:
    """Headers of the files of features."""
    found: Facts = {}
    for cache in caches(root, source):
        for name, feature in cache.features.items():
            cache.fill_from_turns(
                name, lambda turns, shape=feature.shape: torch.zeros(len(turns), *shape), batch_size=9
            )
        for path in sorted(cache.folder.rglob("*.safetensors")):
            with safe_open(path, "pt") as file:
                found[path.relative_to(root).as_posix()] = file.metadata()
    return found


def brief_recipe() -> Recipe:
    """The tiny recipe without the fit of an autoencoder."""
    return Recipe.model_validate(merged(tiny().model_dump(), {"autoencoder": None}))


def unpack(texts: Mapping[str, str], root: Path) -> Path:
    """Write the text files of a folder."""
    for name, content in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return root


def packed(root: Path) -> dict[str, str]:
    """The text files of a folder by their path."""
    paths = [path for path in sorted(root.rglob("*.json*")) if "/." not in path.relative_to(root.parent).as_posix()]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _mark(content: bytes) -> FileMark:
    return FileMark(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _shape(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
    """A schema as its fields, without its words and without names of classes."""
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


def _first_sample(data: Path) -> Facts:
    shard = sorted((data / "shards" / "train").iterdir())[0]
    with tarfile.open(shard) as tar:
        first = {member.name.rpartition(".")[2]: tar.extractfile(member) for member in tar.getmembers()[:3]}
        sample = json.loads(first["json"].read())  # type: ignore[union-attr]
        text = first["txt"].read().decode()  # type: ignore[union-attr]
    sample["motion"] |= {"scope_px": "measured", "camera_px": "measured"}
    return {"members": list(first), "json": json.dumps(sample), "txt": text}


def as_lines(value: Any, levels: int) -> str:
    """JSON with a line for every entry down to some level, so that a change shows as one."""
    if levels == 0 or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    entries = (f"{json.dumps(name)}: {as_lines(value[name], levels - 1)}" for name in sorted(value))
    return "{\n" + ",\n".join(entries) + "\n}"


def written(root: Path) -> Facts:
    """All of it, as the code of today writes it; `root` is an empty folder."""
    data = build(root)
    facts = {name: make(root / name) for name, make in FACTS.items()} | {"build": build_facts(data)}
    before = root / "before"
    before.mkdir()
    write_dataset(before)
    write_replies(before / "film")
    write_checkpoint(before / "checkpoint")
    write_baseline(before / "gc", "gc")
    write_baseline(before / "gfc", "gfc")
    folders = {name: packed(before / name) for name in ("data", "film", "checkpoint", "gc", "gfc")}
    train_all(before, data)
    write_game(before / "game", before / "checkpoint")
    run = {name: text for name, text in packed(before / "run").items() if "/result/" not in name}
    folders |= {"run": run, "game": packed(before / "game")}
    folders["source"] = {"shards/index.json": (data / "shards" / "index.json").read_text(encoding="utf-8")}
    return {
        "facts": facts,
        "folders": folders,
        "headers": headers(before, data),
        "caption": caption_of(before / "film"),
        "identity": Checkpoint.open(before / "checkpoint").identity(),
        "libraries": libraries(),
        "bytes": build_bytes(data),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(as_lines(written(Path(folder)), levels=3) + "\n")
