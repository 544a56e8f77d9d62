"""Trainings of the miniature's model: the main one, and variants of it that the claims compare.

OUT/model              the main run
OUT/variants/NAME      a run with other settings: `research`, without held-out pairs; few steps, besides an ablation of
                       the paper; the baseline GC; another seed of game model and adaptation
OUT/starts/NAME        checkpoint that an ablation of a network starts from: the fitted one's bases, but a new shot
                       decoder and shot encoder of the ablation's kind

All start from the fitted autoencoder and share the encoded clips, OUT/features. A seed determines the examples' order,
noise and levels of the last two phases; all seeds start from the shot networks of the main run. Ablations and the
baseline GC have fewer steps than the main run. So they are compared with each other and with `short`, which has as few
steps and no other change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

import training
from examples.commands import run_command
from examples.miniature.claims import GC, MAIN, RESEARCH, SEEDS, SHORT, VARIANTS
from examples.miniature.dataset import ANY_PAIRS, TRAINED
from examples.miniature.encoders import FITTED
from flows.console.terminal import say
from models.checkpoint import Checkpoint
from models.config import Component
from models.untrained import new_checkpoint
from pipeline.core.atomic import replacing
from pipeline.core.errors import UserError
from training.recipes import read_recipe

_LAUNCH = Path(training.__file__).parent / "launch" / "2-cpus-ddp.yaml"
_Changes = dict[str, Mapping[str, float]]
_FEW_STEPS: _Changes = {"shot.joint": {"steps": 2000}, "game.loop": {"steps": 1500}, "adapt.loop": {"steps": 1500}}
JOINT = Path(MAIN, "joint", "result")
"""Checkpoint with the shot encoder, and the shot decoder before its adaptation."""
_SEEDED = ("game", "adapt")
ABLATIONS = ("no-motion-scope", "no-warm-up", "random-frame", "linear", "addition", "cross-attention")
"""`no-adaptation` needs no run: it is the main one before its last phase."""
_KEPT: tuple[Component, ...] = ("language_model", "autoencoder", "text_encoder", "image_encoder")


@dataclass(frozen=True)
class Variant:
    """Training with other settings than the main one."""

    name: str
    changes: Mapping[str, Mapping[str, float]] = field(default_factory=_FEW_STEPS.copy)
    """Keys of the recipe that it changes, by table."""
    ablation: str | None = None
    parts: Sequence[str] = ("all",)
    """Parts of `animegamer train`."""
    data: Sequence[str] = TRAINED

    def toml(self) -> str:
        """Return the changes as a file for `--config`."""
        tables = (
            "\n".join([f"[{table}]", *(f"{key} = {value}" for key, value in keys.items())])
            for table, keys in self.changes.items()
        )
        return "\n\n".join(tables) + "\n"


def variants() -> Iterator[Variant]:
    """Yield the variants in the order of their training: the short ones first."""
    yield Variant(SHORT)
    yield from (Variant(name, ablation=name) for name in ABLATIONS)
    yield Variant(GC, {"gc.loop": {"steps": 3700}}, parts=("gc",))  # the steps of the shot decoder of the short ones
    yield Variant(RESEARCH, {}, data=[name for name in TRAINED if name != ANY_PAIRS])
    for seed, name in enumerate(SEEDS):
        if seed:
            yield Variant(name, {f"{part}.loop": {"seed": seed} for part in _SEEDED}, parts=_SEEDED)


def train_model(out: Path, part: str = "all", variant: Variant | None = None, data: Sequence[str] = TRAINED) -> None:
    """Train a part of the model, on two processes if there is no GPU.

    Args:
        out: folder of the miniature, or of other data with a fitted autoencoder.
        part: of `animegamer train`: `features`, `shot`, `game`, `adapt` or `distill`; `all` is shot, game and adapt.
    """
    folder = out / MAIN
    words = [*_training(out, out / FITTED, folder, data, part), *(_settings(variant, folder) if variant else ())]
    run_command(*words, *(() if torch.accelerator.is_available() else ("--accelerate", _LAUNCH)))


def train_variants(out: Path, only: Collection[str] = ()) -> None:
    """Train all variants, or only some by name; finished variants are skipped.

    Without a GPU two are trained at a time, each by one process: one training by two processes would take about half as
    much computing again.

    Raises:
        UserError: there is no variant of a name.
    """
    by_name = {variant.name: variant for variant in variants()}
    for name in only:
        if name not in by_name:
            raise UserError(f"there is no variant {name}; choose from {', '.join(by_name)}")
    chosen = [variant for name, variant in by_name.items() if not only or name in only]
    starts = [out / JOINT if each.parts == _SEEDED else start_of(out, each.ablation) for each in chosen]
    with ThreadPoolExecutor(1 if torch.accelerator.is_available() else 2) as pool:
        list(pool.map(partial(_train_variant, out), chosen, starts))


def _train_variant(out: Path, variant: Variant, start: Path) -> None:
    folder = out / VARIANTS / variant.name
    log = folder / "messages.txt"
    settings = _settings(variant, folder)
    say(f"variants: {variant.name} begins, its messages are in {log}")
    for part in variant.parts:
        run_command(*_training(out, start, folder, variant.data, part), *settings, beside=log)


def start_of(out: Path, ablation: str | None) -> Path:
    """Return the checkpoint that a training starts from; it is written if the ablation changes a network."""
    fitted = Checkpoint.open(out / FITTED)
    if ablation is None:
        return fitted.folder
    config = read_recipe("mini", ablation).model
    if all(getattr(config, part) == getattr(fitted.config, part) for part in ("shot_encoder", "shot_decoder")):
        return fitted.folder
    folder = out / "starts" / ablation
    if not folder.exists():
        new_checkpoint(folder, config, fitted={component: Path(fitted.base(component).id) for component in _KEPT})
    return folder


def _training(
    out: Path, start: Path, folder: Path, data: Sequence[str] = TRAINED, part: str = "all"
) -> list[str | Path]:
    """Return the command of a training."""
    places = ("--from", start, "--out", folder, "--features", out / "features")
    return ["train", part, "--recipe", "mini", *(word for name in data for word in ("--data", out / name)), *places]


def _settings(variant: Variant, folder: Path) -> list[str | Path]:
    """Write the file of a variant's changes, and return the options that name it."""
    changes = folder / "changes.toml"
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(changes) as part:
        part.write_text(variant.toml(), encoding="utf-8")
    return ["--config", changes, *(("--ablation", variant.ablation) if variant.ablation else ())]
