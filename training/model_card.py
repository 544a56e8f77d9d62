"""Trained checkpoint for the Hugging Face hub: its files, with a card about data, recipe, licences and results.

    OUT/README.md        the card
    OUT/recipe.json      the recipe, if a run is exported
    OUT/...              the files of the checkpoint, hard links if the disk allows it

`animegamer play --checkpoint OUT` plays it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from models.checkpoint import Checkpoint
from models.checkpoint_writer import link_or_copy, writing
from models.config import CONFIG, ModelConfig, inside_id
from pipeline.core.errors import UserError
from training.recipes import PHASES

CARD, RECIPE, TRAINED = "README.md", "recipe.json", "trained.json"
UPLOAD = 'hf upload USER/NAME {out} --repo-type model --exclude ".*"'
"""Command that uploads an exported checkpoint."""
_TRAINED_BY = {
    "image-encoder": "image encoder",
    "stills": "autoencoder, on single frames",
    "clips": "autoencoder, on clips",
    "warm-up": "shot encoder",
    "joint": "shot encoder and shot decoder",
    "game": "game model",
    "adapt": "shot decoder, on the game model's predictions",
    "guide": "shot decoder, without guidance",
    "distill": "shot decoder, in few steps",
}


def export_model(place: Path, out: Path) -> list[str]:
    """Write the checkpoint of a run, of its phase, or of a folder, with its card.

    Returns:
        What only the user can mend before the upload, a line each.

    Raises:
        UserError: a run without a result, a checkpoint that cannot be read, or `out` exists.
    """
    checkpoint = Checkpoint.open(_checkpoint_of(place))
    config, run = checkpoint.config, place if (place / RECIPE).is_file() else None
    with writing(out) as part:
        shutil.copytree(checkpoint.folder, part, dirs_exist_ok=True, copy_function=link_or_copy)
        if run:
            shutil.copyfile(run / RECIPE, part / RECIPE)
        (part / CARD).write_text(card_of(config, _trained(checkpoint.folder), out.name), encoding="utf-8")
    missing = [f"{CARD} names no licence, because only you know it: add yours and that of the films"]
    local = sorted(str(base.id) for base in config.bases.values() if Path(base.id).is_absolute())
    missing += [f"{CONFIG} names bases on this machine, which nobody else has: {', '.join(local)}"] if local else []
    return missing


def _checkpoint_of(place: Path) -> Path:
    """Return the folder of a checkpoint: this one, or the last result of a run or phase."""
    if (place / CONFIG).is_file():
        return place
    results = [place / "result", *(place / phase / "result" for phase in reversed(PHASES))]
    found = next((result for result in results if (result / CONFIG).is_file()), None)
    if found is None:
        raise UserError(f"{place} has no result yet: finish a phase, or export one of `animegamer snapshot`")
    return found


def _trained(folder: Path) -> dict[str, Any]:
    """Return what `trained.json` says; nothing about a checkpoint that was not trained here."""
    try:
        found: dict[str, Any] = json.loads((folder / TRAINED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"phases": []}
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / TRAINED} cannot be read: {error}") from error
    return found


def card_of(config: ModelConfig, trained: dict[str, Any], title: str) -> str:
    """Return the text of a card.

    Args:
        trained: content of `trained.json`.
    """
    return "\n".join([*_front_matter(config), "", f"# {title}", "", *_body(config, trained)]) + "\n"


def _front_matter(config: ModelConfig) -> Iterator[str]:
    yield from ("---", "pipeline_tag: text-to-video", "tags:", "- animation", "- game")
    if bases := _hub_bases(config):
        yield "base_model:"
        yield from (f"- {base}" for base in bases)
    yield "---"


def _body(config: ModelConfig, trained: dict[str, Any]) -> Iterator[str]:
    shot = config.shot_decoder
    yield (
        f"A game of animation shots, in the format of AnimeGamer ({config.size} size): from an instruction and the "
        f"turns before it, it draws {shot.frames} frames of {shot.width}x{shot.height} and predicts the state of the "
        "character."
    )
    yield from ("", "```sh", "animegamer play --checkpoint FOLDER --serve", "```", "", "## Data", "")
    yield f"* Characters: {', '.join(config.characters) or 'none named'}"
    levels = ", ".join(f"{scope:g}" for scope in config.level_values)
    yield from (f"* Motion scope of the levels 1 to 5, in pixels a frame step: {levels}", "", "## Training", "")
    if not trained["phases"]:
        yield "Not trained here."
    for each in trained["phases"]:
        steps = f"{each['step']:,} of {each['steps']:,} steps"
        yield f"* `{each['phase']}` ({_TRAINED_BY.get(each['phase'], 'other')}): {steps}"
    yield from ("", "## Results of the last validation", "", *_results(trained.get("validation", {})))
    yield from ("", "## Licences", "", "The licence of these weights and of the films: not stated.")
    yield from (f"* Base [{base}](https://huggingface.co/{base}): its own licence" for base in _hub_bases(config))


def _results(validation: dict[str, dict[str, float]]) -> Iterator[str]:
    if not validation:
        yield "None recorded."
        return
    yield from ("| Phase | Figure | Value |", "|---|---|---:|")
    for phase, figures in validation.items():
        yield from (f"| {phase} | `{name}` | {value:.4f} |" for name, value in sorted(figures.items()))


def _hub_bases(config: ModelConfig) -> list[str]:
    """Return the ids of the bases on the hub."""
    inside = {inside_id(component) for component in config.bases}
    ids = {base.id for base in config.bases.values()} - inside
    return sorted(each for each in ids if not Path(each).is_absolute())
