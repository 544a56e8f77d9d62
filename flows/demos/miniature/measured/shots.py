"""Shots step: shot encoder and shot decoder alone, with and without each of their parts, at a quarter of the steps.

Every variant draws the held-out clips from their own conditions: first frame, motion text and motion scope. The game
model has no part in it, so a difference is one of the encoder and the decoder, for a tenth of a whole training's time.

OUT/shots/runs/NAME    the run: `whole`, or an ablation
OUT/shots/NAME.json    by data set, `val` or `unseen`: a figure with its 95 % interval for each field of the clips drawn
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch

from flows.demos.miniature.measured.figures import figures_of
from flows.demos.miniature.measured.games import ScriptedTurn, Shown, read_stories
from flows.demos.miniature.measured.judge_network import Judge
from flows.demos.miniature.measured.measured_models import MeasuredModel, measure
from flows.demos.miniature.measured.reconstructions import SETS
from flows.demos.miniature.model_runs import train_part
from models.checkpoint import Checkpoint
from models.diffusion import draw
from models.frames import decode_latents
from models.turns import turn_seed
from pipeline.core.atomic import replacing
from training.data.encoding import frame_to_see, motion_text

WHOLE = "whole"
ABLATIONS = ("no-motion-scope", "no-warm-up", "random-frame", "linear", "addition", "cross-attention")
STEPS = 1500
FIELDS = ("as asked", "who", "where", "what", "level drawn", "level drawn, error")


def measure_shots(out: Path, seed: int = 0) -> None:
    """Train and measure every variant, one after another; finished ones are skipped."""
    folder = out / "shots" / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "steps.toml") as part:
        part.write_text(f"[shot.joint]\nsteps = {STEPS}\n", encoding="utf-8")
    stories = {name: read_stories(out, data, split) for name, data, split in SETS}

    def figures(model: MeasuredModel, judge: Judge) -> tuple[Any, str]:
        found = {}
        for name, of_set in stories.items():
            shown = list(drawn([turn for story in of_set for turn in story], model, seed))
            every = figures_of(shown, judge, model.checkpoint.config.game_model.window_turns)
            found[name] = {field: every[field] for field in FIELDS}
        right = (f"{name} {each['level drawn']['mean']:.1%}" for name, each in found.items())
        return found, "level drawn as asked: " + ", ".join(right)

    for name in (WHOLE, *ABLATIONS):
        changed = () if name == WHOLE else ("--ablation", name)
        train_part(out, "shot", folder / name, "--config", folder / "steps.toml", *changed)
        measure(out, "shots", seed, figures, [MeasuredModel(name, Checkpoint.open(folder / name / "shot" / "result"))])


@torch.no_grad()
def drawn(turns: list[ScriptedTurn], model: MeasuredModel, seed: int) -> Iterator[Shown]:
    """Draw clips from their own conditions, as `play` draws turns."""
    engine, checkpoint = model.engine(), model.checkpoint
    encoder, texts, pictures = checkpoint.shot_encoder(), checkpoint.text_encoder(), checkpoint.image_encoder()
    shape, unconditional_BLD = checkpoint.config.shot_decoder, encoder.unconditional(1)
    which: Literal["first", "random"] = "random" if model.name == "random-frame" else "first"
    for number, turn in enumerate(turns, start=1):
        frames_THWC = turn.packed.frames(shape.height, shape.width, shape.frames)
        recorded = turn.packed.turn
        seen_BHWC = frames_THWC[frame_to_see(recorded.clip_id, shape.frames, which)][None]
        latents_BTCHW = draw(
            engine.shot_decoder,
            encoder(texts.states([motion_text(recorded)]), pictures.patches(seen_BHWC)),
            unconditional_BLD,
            torch.tensor([recorded.sample.motion.scope_px]) if shape.motion_scope else None,
            seed=turn_seed(seed, number),
            steps=engine.steps,
            guidance=engine.guidance,
        )
        frames_BTHWC = decode_latents(engine.autoencoder, latents_BTCHW)
        yield Shown(turn, frames_BTHWC[0].numpy(), recorded.sample.motion.level, turn.facts.state)
