"""Benchmark of the game: seconds per turn and part, memory, and the share of the GPU's peak used in denoising.

    make bench-model                                          tiny, on this machine
    .venv/bin/python -m benchmarks.model --size full         the published sizes with random weights, on a GPU
    .venv/bin/python -m benchmarks.model --size tiny mini    both, and the ratio of their turns

Each way of running is a separate process, so that its peak memory is measured alone. The first turns fill the window
and are not counted: a turn costs most with a full window. Random weights take the same time as trained ones. `full`
needs 20 GB of disk for a temporary checkpoint.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from models.checkpoint import PLAYED, Checkpoint
from models.config import CONFIGS, Base, ModelConfig, Sampling, Size, inside_id
from models.engine import Engine
from models.engine_options import EngineOptions
from models.shot_decoder import ShotDecoder, decoder_options, denoise
from models.turns import GameState, turn_seed
from models.untrained import new_checkpoint
from training.speed import PEAK_TFLOPS

INSTRUCTION = "Character: Qiqi; Motion: slowly fly over the sea; Background: morning sky."
PARTS = ("game model", "denoising", "frames")
_THIS = (sys.executable, "-m", "benchmarks.model")
WAYS = {
    "plain": EngineOptions(compile=False),
    "compiled": EngineOptions(compile=True),
    "tiled": EngineOptions(tiled=True),
    "int8": EngineOptions(tiled=True, precision="int8"),
    "offloaded": EngineOptions(offload=True),
}


def random_config(size: Size) -> ModelConfig:
    """Return a configuration with random bases for playing, so that nothing is downloaded."""
    config = CONFIGS[size]()
    inside = {name: Base(id=inside_id(name)) for name in PLAYED}
    return config.replaced(bases={**config.bases, **inside})


def step_tflop(config: ModelConfig, transformer: dict[str, Any]) -> float:
    """Return the work of one denoising step with guidance, in 10^12 operations, counted without weights."""
    with torch.device("meta"):
        decoder = ShotDecoder(**{**transformer, **decoder_options(config)})
        shot, channels = config.shot_decoder, decoder.config.in_channels
        latents = torch.empty(2, shot.latent_frames, channels, shot.height // 8, shot.width // 8)
        tokens = torch.empty(2, config.shot_encoder.shot_tokens, config.shot_encoder.width)
        with FlopCounterMode(display=False) as counter:
            denoise(decoder, latents, tokens, torch.empty(2, dtype=torch.long), torch.empty(2))
    return float(counter.get_total_flops()) / 1e12


def measure(checkpoint: Path, steps: int, guidance: float, turns: int, way: str) -> dict[str, Any]:
    """Play in this process: fill the window, then measure `turns` turns."""
    engine = Engine.load(checkpoint, replace(WAYS[way], steps=steps, guidance=guidance))
    state, seconds = GameState(), []
    for number in range(engine.window_turns + turns):
        turn, state = engine.next_turn(state, INSTRUCTION, turn_seed(0, number))
        seconds.append(turn.seconds)
    counted = seconds[-turns:]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "seconds": {part: statistics.median(each[part] for each in counted) for part in PARTS},
        "main_gib": peak,
        "card_gib": torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else None,
    }


def table_of(results: dict[str, dict[str, Any]], tflop: float, steps: int, title: str, device: str) -> Table:
    """Return a table of the measurements, side by side; `tflop` is the work of a denoising step."""
    peak = PEAK_TFLOPS.get(device)
    table = Table(title=f"{title}, median, on {device}")
    table.add_column("")
    for heading in ("turn s", *(f"{part} s" for part in PARTS), "TFLOP/s denoising", "main GiB", "card GiB"):
        table.add_column(heading, justify="right")
    for way, result in results.items():
        seconds = result["seconds"]
        rate = tflop * steps / seconds["denoising"]
        share = f" ({rate / peak:.0%} of peak)" if peak else ""
        card = f"{result['card_gib']:.1f}" if result["card_gib"] is not None else "-"
        parts = [f"{seconds[part]:.2f}" for part in PARTS]
        table.add_row(
            way, f"{sum(seconds.values()):.2f}", *parts, f"{rate:.3g}{share}", f"{result['main_gib']:.1f}", card
        )
    return table


def _ways(chosen: list[str] | None) -> Iterator[str]:
    here = ["plain", "compiled", *(["tiled", "offloaded"] if torch.cuda.is_available() else [])]
    yield from chosen or here


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=CONFIGS, nargs="+", default=["tiny"], help="sizes of the networks")
    parser.add_argument("--steps", type=int, default=Sampling().steps, help="denoising steps a turn")
    parser.add_argument("--guidance", type=float, default=Sampling().guidance, help="guidance scale; 1: none")
    parser.add_argument("--turns", type=int, default=3, help="turns measured, after the window is full")
    parser.add_argument("--way", action="append", choices=WAYS, help="run only this way; may be repeated")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, a line for each size")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="checkpoint", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if "full" in options.size and not torch.cuda.is_available():
        parser.error("--size full takes a GPU: on a CPU a turn would last for hours")
    if options.make:
        new_checkpoint(options.make, random_config(options.size[0]), say=lambda line: print(line, file=sys.stderr))
    elif options.checkpoint:
        asked = (options.checkpoint, options.steps, options.guidance, options.turns, options.way[0])
        print(json.dumps(measure(*asked)))
    else:
        first, *others = ((size, _compare_ways(size, options)) for size in options.size)
        for size, seconds in others if not options.json else ():
            print(f"a turn of {size} takes {seconds / first[1]:.2f} times as long as one of {first[0]}")


def _compare_ways(size: Size, options: argparse.Namespace) -> float:
    """Make a checkpoint, measure each way of running it in a separate process, and print the figures.

    Return the seconds of a turn in the first of these ways.
    """
    config = random_config(size)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "checkpoint"
        subprocess.run([*_THIS, "--make", str(place), "--size", size], check=True)
        checkpoint = Checkpoint.open(place)
        results = {way: _in_a_process(checkpoint, options, way) for way in _ways(options.way)}
        shape = ShotDecoder.load_config(checkpoint.base("transformer").id)
    wanted = ("num_attention_heads", "attention_head_dim", "num_layers", "time_embed_dim", "text_embed_dim")
    guided = options.guidance != 1
    tflop = step_tflop(config, {name: shape[name] for name in wanted}) / (1 if guided else 2)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    if options.json:
        print(json.dumps({"size": size, "steps": options.steps, "step_tflop": tflop, "ways": results}))
    else:
        title = f"{size}: a turn of {options.steps} steps with{'' if guided else 'out'} guidance"
        Console(width=120).print(table_of(results, tflop, options.steps, title, device))
    return float(sum(next(iter(results.values()))["seconds"].values()))


def _in_a_process(checkpoint: Checkpoint, options: argparse.Namespace, way: str) -> dict[str, Any]:
    command = [*_THIS, "--in", str(checkpoint.folder), "--way", way]
    command += ["--steps", str(options.steps), "--turns", str(options.turns), "--guidance", str(options.guidance)]
    process = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    main()
