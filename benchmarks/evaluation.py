"""Benchmark of evaluation: clips a second of each part of the metrics, from cache too, and memory as clips become more.

    make bench-eval                     clips of 17 frames, 480x720, and a CLIP ViT-B/32 with random weights
    .venv/bin/python -m benchmarks.evaluation --device cuda --clips 256 [--clip ID --dreamsim FOLDER]

Time is that of the wall and of all CPU cores. The networks are those of an evaluation; random weights take as long as
trained ones.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import cv2
import torch
from rich.console import Console
from rich.table import Table
from transformers import CLIPConfig, CLIPModel

from examples.world.shapes import DEEDS, FIGURES, PLACES, SPEEDS, ShapeClip, paint
from pipeline.core.config import MotionSettings
from pipeline.video.clip_files import write_clip
from training.evaluation.metrics.appearance import Appearance
from training.evaluation.metrics.features import (
    CLIPS_AT_ONCE,
    ClipMotions,
    EmbeddedFrames,
    Extractor,
    Features,
    HashedFrames,
    decode_clip,
)
from training.evaluation.metrics.networks import Clip, TextNetwork, load_clip, load_dreamsim

WIDTH, HEIGHT = 720, 480


def write_clips(folder: Path, count: int) -> list[Path]:
    """Write clips of the full size that all differ."""
    paths = []
    shapes = product(FIGURES, DEEDS, PLACES, range(1, len(SPEEDS) + 1))
    contents = [ShapeClip(*shape) for shape, _ in zip(shapes, range(count), strict=False)]
    for number in range(count):
        paths.append(folder / f"{number:05d}.mp4")
        if number < len(contents):
            frames = [cv2.resize(frame_HWC, (WIDTH, HEIGHT)) for frame_HWC in paint(contents[number])]
            write_clip(paths[-1], frames, Fraction(8), crf=17)
        else:  # bytes after the film are ignored by readers, and make another content
            paths[-1].write_bytes(paths[number % len(contents)].read_bytes() + number.to_bytes(4, "big"))
    return paths


def random_clip(device: str) -> TextNetwork:
    """CLIP ViT-B/32 with random weights, which embeds pictures only."""
    torch.manual_seed(0)
    return Clip(CLIPModel(CLIPConfig()), None, device)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return seconds of the wall and of the CPU that some work took."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - wall, time.process_time() - cpu


def measured(paths: Sequence[Path], extractors: Sequence[Extractor], features: Path) -> Table:
    """Return a table of the speed of decoding, of each extractor, of all together, and from the cache."""
    table = Table("part", "clips a second", "CPU s a clip")

    def add(part: str, work: Callable[[], object], clips: int) -> None:
        wall, cpu = timed(work)
        table.add_row(part, f"{clips / wall:.1f}", f"{cpu / clips:.4f}")

    batch = paths[:CLIPS_AT_ONCE]
    pictures = [decode_clip(path) for path in batch]
    add("decoding", lambda: [decode_clip(path) for path in batch], len(batch))
    for extractor in extractors:
        extractor.describe(pictures[:1])  # first use: kernels are chosen, libraries loaded
        add(extractor.identity, lambda extractor=extractor: extractor.describe(pictures), len(batch))  # type: ignore[misc]
    cache = Features(features, extractors)
    cache.fill(batch)
    early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    add("all, each clip decoded once", lambda: cache.fill(paths[len(batch) :]), len(paths) - len(batch))
    late = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    add("all, from the cache", lambda: cache.fill(paths), len(paths))
    table.caption = (
        f"peak memory {early / 2**10:.0f} MiB after {len(batch)} clips, {late / 2**10:.0f} after {len(paths)}"
    )
    return table


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=24)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clip", help="id or folder; unset: random weights")
    parser.add_argument("--dreamsim", type=Path, help="folder of its weights")
    given = parser.parse_args()
    network = load_clip(given.clip, given.device) if given.clip else random_clip(given.device)
    extractors: list[Extractor] = [ClipMotions(MotionSettings()), EmbeddedFrames(Appearance()), HashedFrames()]
    extractors.append(EmbeddedFrames(network))
    if given.dreamsim:
        extractors.append(EmbeddedFrames(load_dreamsim(given.dreamsim, given.device)))
    with tempfile.TemporaryDirectory() as folder:
        paths = write_clips(Path(folder), given.clips)
        table = measured(paths, extractors, Path(folder) / "features")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
