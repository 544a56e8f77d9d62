"""Painted stories to learn and to play, and networks small enough to learn from them to use the past.

Only the first instruction of a story to play names its figure: the shot tokens of the past are all that carries it from
turn to turn. A game model of the recipe `tiny` ignores them after 300 steps; with 8 shot tokens of width 64, wider
adapters and a single past turn it uses them after 400, which take 40 seconds of CPU time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examples.world.learning_films import story, write_films
from models.checkpoint import Checkpoint
from models.config import tiny_config
from models.untrained import new_checkpoint

LEARNED = tuple(story(f"learned-{number}", named=0.2) for number in range(12))
PLAYED = tuple(story(f"played-{number}", named=0) for number in range(18))
LOOP: dict[str, Any] = {"batch_size": 8, "micro_batch": 8, "learning_rate": 4e-3, "rate_warm_up": 10}
"""Settings of the game model's loop, apart from steps and seed."""
GAME: dict[str, Any] = {"alpha": 4.0, "windows": {"most_turns": 2}}
"""Settings of phase b."""


def learned_data(out: Path) -> Path:
    """Return the data set of the stories to learn."""
    return write_films(out / "data" / "learned", LEARNED)


def played_data(out: Path) -> Path:
    """Return the data set of the stories to play, which are never trained on."""
    return write_films(out / "data" / "played", PLAYED)


def untrained(out: Path) -> Checkpoint:
    """Return an untrained checkpoint of the small networks."""
    tiny, folder = tiny_config(), out / "start"
    config = tiny.replaced(
        shot_encoder=tiny.shot_encoder.model_copy(update={"text_tokens": 4, "image_pixels": 16, "width": 64}),
        game_model=tiny.game_model.model_copy(update={"lora_rank": 32, "lora_alpha": 32, "window_turns": 2}),
    )
    return Checkpoint.open(folder) if folder.exists() else new_checkpoint(folder, config)
