"""Folders made before, and the file `tests/made_before.json` that holds them and the facts of the code as text.

    python -m tests.support.datasets.made_before

`facts` (`code_facts.py`) are values that the current code must reproduce: fingerprints, fields on disk, names of
tensors. `folders` are a data set, a training run, a checkpoint, a game and replies as the version that wrote the file
left them, text files only: `tests/test_made_before.py` unpacks them and checks that no work in them is repeated. They
are of schema 1, and are kept when the facts are written again.
Rewrite the file only in a change that deliberately makes old results stale or adds fields, and say so in the changelog.

Facts are independent of the machine. x264, OpenCV's optical flow and torch's random numbers use other instructions on
other processors and may give other bytes. These bytes are in `bytes`, which is compared only where the libraries turn
the same picture into the same bytes (`libraries`).
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from flows.game.folder import GameFolder
from flows.game.play_file import play_turn
from flows.game.records import GameSettings
from models.checkpoint import ADAPTER, DECODER_LORA, DECODER_OWN, RESAMPLERS, SHOT_ENCODER, Checkpoint
from models.checkpoint_writer import save_config
from models.config import CONFIG, inside_id, tiny_config
from models.engine_options import EngineOptions
from pipeline.captions.answers import Answers
from pipeline.captions.cast import Cast
from pipeline.captions.messages import Reply
from pipeline.captions.reply_cache import Replies, save_replies
from pipeline.core.config import checked
from pipeline.core.ingredients import fingerprint
from pipeline.core.progress import silent
from pipeline.core.records import Clip, Failure, Motion, make_clip_id
from pipeline.core.stage import ingredients_of, perform
from pipeline.core.store import Dataset, FilmFolder, StageRecord
from pipeline.plan.build_plan import make_plan
from pipeline.plan.film_stages import STAGE_NAMES
from pipeline.plan.publish import WritePages, WriteShards, publish_stages
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.publish.shards import Index
from tests.support.datasets.code_facts import (
    FACTS,
    SERVER,
    Facts,
    brief_recipe,
    clip_record,
    film_record,
    libraries,
    mark,
)
from tests.support.media.films import make_film
from tests.support.networks.painted_engine import PaintedEngine
from tests.support.networks.tiny_models import brief_checkpoint
from training.baselines.config import BaselineKind
from training.baselines.config import tiny as tiny_baseline
from training.baselines.encoding import open_features
from training.baselines.folder import CONFIG as BASELINE_CONFIG
from training.baselines.folder import BaselineFolder
from training.baselines.run import train_baseline
from training.data.definitions import Name, open_cache
from training.data.feature_cache import FeatureCache
from training.phase_settings import PHASES
from training.run import TrainingRun
from training.run_folder import RunFolder

SMALL = {"looks": {"text": False}, "clips": {"width": 180, "height": 120}, "run": {"threads": 1}}
CAST = Cast(names=("Ponyo", "Sosuke"), sha256="c" * 64)
ANSWER = "<S>fox</S><MD>jump over a brook</MD><EV>night forest</EV><MA>nimbly</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"
FEATURES: tuple[Name, ...] = ("latents", "patches", "text", "shot_tokens", "predictions")


def build_facts(data: Path) -> Facts:
    """Result of a build: names of files, the index, clip records and one sample; without measured values."""
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
    """Parts of a build that depend on the processor."""
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


def build(root: Path) -> Path:
    """Build and publish a small data set: two scenes, captions by rules."""
    film = make_film(root / "film.mp4", frames=144, scenes=[0, 70])
    request = BuildRequest(films=(film,), out=root / "data", config=checked(SMALL, "small"))
    plan = make_plan(request, Workspace(request.out))
    for stage in plan.stages:
        perform(stage, plan.dataset.folder(plan.films[0]))
    for stage in publish_stages(plan.config):
        stage.run(plan.dataset, silent)
    return root / "data"


def film_file(root: Path) -> Path:
    """Film file of a finished data set: identified by its content and never decoded."""
    path = root / "film.mp4"
    path.write_bytes(b"known by its content")
    return path


def write_dataset(root: Path) -> None:
    """Write a data set to `root/data`, every stage done and published; files that are not text have fake content."""
    file = film_file(root)
    film = film_record(file.name, file.read_bytes())
    dataset = Dataset(root / "data")
    folder = dataset.folder(film.film_id)
    folder.save_film(film)
    plan = make_plan(BuildRequest(films=(file,), out=dataset.root), Workspace(str(dataset.root)))
    tables = {"cut": ("scenes", "damage", "clips")}
    for stage in plan.stages:
        names = [f"{table}.parquet" for table in tables.get(stage.name, (stage.name,))]
        names += [f"clips/{make_clip_id(film.film_id, 2.0)}.mp4"] * (stage.name == "cut")
        ingredients = ingredients_of(stage, folder)
        marks = {name: mark(name.encode()) for name in names}
        made = StageRecord(
            stage=stage.name, fingerprint=fingerprint(ingredients), ingredients=ingredients, files=marks,
            failures=(Failure(record_id="a clip", reason="a reason"),),
        )  # fmt: skip
        folder.save_stage_record(made)
    WriteShards(plan.config).run(dataset, silent)
    WritePages(plan.config).run(dataset, silent)
    folder.save_film(film)  # without the path of the file


def write_replies(root: Path) -> None:
    """Write a model's replies about one clip, the first to each question unusable."""
    clip, said = clip_record(), {"who": "[Number]1[Index]2", "what": f"{ANSWER}<AC>Sosuke</AC>"}
    answers = Answers(clip, 3, SERVER, CAST, Replies(clip_id=clip.clip_id))
    while question := answers.open_question:
        reply = Reply(said[question.request] if answers.kept.to(question.fingerprint) else "?")
        kept = answers.kept.adding(question.fingerprint, question.request, question.ingredients, reply)
        answers = replace(answers, kept=kept)
    save_replies(FilmFolder(root), answers.kept)


def write_checkpoint(root: Path) -> None:
    """Write the configuration of a tiny checkpoint; with the files of `made_up` it has an identity."""
    root.mkdir(parents=True)
    save_config(root, tiny_config())


def write_baseline(root: Path, kind: BaselineKind) -> None:
    """Write the configuration of a tiny baseline."""
    root.mkdir(parents=True)
    (root / BASELINE_CONFIG).write_text(tiny_baseline(kind).model_dump_json(indent=2), encoding="utf-8")


def write_game(root: Path, checkpoint: Path) -> None:
    """Write a game of three turns, one of them a retry."""
    options = EngineOptions(steps=50, guidance=6.0)
    folder = GameFolder.create(root, GameSettings.of(Checkpoint.open(checkpoint), options, seed=7))
    for parent, instruction in ((None, "Ponyo runs"), ("0001", "Sosuke waves"), ("0001", "ポニョ sleeps")):
        play_turn(folder, PaintedEngine(), instruction, parent)


def made_up(root: Path) -> Path:
    """Put files with fake content in place of the weights of a checkpoint or baseline; return the folder."""
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
    """Request every phase of a run whose results exist; return its messages."""
    messages: list[str] = []
    place = RunFolder(root / "run", str(source), trackers=(), say=messages.append)
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
    return messages


def caches(root: Path, source: Path) -> list[FeatureCache]:
    """Feature caches of the run and of the baselines."""
    place = RunFolder(root / "run", str(source))
    catalog, checkpoint = place.catalogs()["train"], Checkpoint.open(root / "checkpoint")
    own = open_cache(place.features, catalog, checkpoint, brief_recipe(), FEATURES)
    baselines = [BaselineFolder.open(root / kind) for kind in ("gc", "gfc")]
    return [own, *(open_features(it, root / f"features-{it.config.kind}", catalog) for it in baselines)]


def headers(root: Path, source: Path) -> Facts:
    """Headers of the feature files."""
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


def unpack(texts: Mapping[str, str], root: Path) -> Path:
    """Write the text files of a folder."""
    for name, content in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return root


def packed(root: Path) -> dict[str, str]:
    """Text files of a folder by their path."""
    paths = [path for path in sorted(root.rglob("*.json*")) if "/." not in path.relative_to(root.parent).as_posix()]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _first_sample(data: Path) -> Facts:
    shard = sorted((data / "shards" / "train").iterdir())[0]
    with tarfile.open(shard) as tar:
        first = {member.name.rpartition(".")[2]: tar.extractfile(member) for member in tar.getmembers()[:3]}
        sample = json.loads(first["json"].read())  # type: ignore[union-attr]
        text = first["txt"].read().decode()  # type: ignore[union-attr]
    sample["motion"] |= {"scope_px": "measured", "camera_px": "measured"}
    return {"members": list(first), "json": json.dumps(sample), "txt": text}


def as_lines(value: Any, levels: int) -> str:
    """JSON with one line per entry down to a level, so that a change is one line of a diff."""
    if levels == 0 or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    entries = (f"{json.dumps(name)}: {as_lines(value[name], levels - 1)}" for name in sorted(value))
    return "{\n" + ",\n".join(entries) + "\n}"


def written(root: Path) -> Facts:
    """Content of the file as the current code writes it; `root` is an empty folder."""
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
        "identity": Checkpoint.open(before / "checkpoint").identity(),
        "libraries": libraries(),
        "bytes": build_bytes(data),
    }


def main() -> None:
    """Write the file; what an earlier version left in it stays."""
    file = Path("tests/made_before.json")
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        now = written(Path(folder))
    left = {name: known[name] for name in ("folders", "headers", "identity") if name in known}
    file.write_text(as_lines(now | left, levels=3) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
