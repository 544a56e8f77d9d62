"""Benchmark of embeddings: CPU time a clip beside text detection, and the search of many clips.

python -m benchmarks.embeddings --pictures net/ --clips data/films/FILM/clips
python -m benchmarks.embeddings --search 100000
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.publish.similar_clips import PictureVectors
from pipeline.stages.embedding.network_files import find_network
from pipeline.stages.embedding.networks import OnnxPictureEncoder
from pipeline.stages.overlays.text import find_lines
from pipeline.video.clip_files import read_clip

_SIZE, _PICTURES, _MOST_CLIPS = 512, 3, 8


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of a call, in all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def cost(pictures: str, folder: Path) -> None:
    """Print CPU time a clip of three pictures, and of text detection on two, in turns; the first clip warms up."""
    encoder = OnnxPictureEncoder(find_network(pictures, "pictures", fetch=True))
    rows = []
    for path in sorted(folder.glob("*.mp4"))[: _MOST_CLIPS + 1]:
        frames_THWC = read_clip(path)
        embedding = cpu_seconds(lambda: encoder.vectors([frames_THWC[at] for at in (2, 8, 13)]))  # noqa: B023
        text = cpu_seconds(lambda: [find_lines(frames_THWC[at]) for at in (4, 12)])  # noqa: B023
        rows.append((embedding, text))
    for name, seconds in zip(("three pictures", "text on two"), np.median(rows[1:], axis=0), strict=True):
        print(f"{name}: {1000 * seconds:.0f} ms of CPU time a clip, median of {len(rows) - 1}")


def search(clips: int, folder: Path) -> None:
    """Print time and memory of a search, and of all pairs, in random vectors on disk."""
    path = folder / "pictures.npy"
    shape = (clips, _PICTURES, _SIZE)
    stored = np.lib.format.open_memmap(path, "w+", np.float16, shape)  # type: ignore[no-untyped-call]
    random = np.random.default_rng(0)
    for start in range(0, clips, 4096):
        part = random.normal(size=(min(4096, clips - start), _PICTURES, _SIZE)).astype(np.float32)
        stored[start : start + 4096] = part / np.linalg.norm(part, axis=2, keepdims=True)
    stored.flush()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    vectors = PictureVectors(tuple(map(str, range(clips))), (np.load(path, mmap_mode="r"),), "")
    query_QD = np.asarray(vectors.parts[0][7], np.float32)
    for name, work in (("search", lambda: vectors.likeness(query_QD)), ("pairs", lambda: vectors.pairs(0.99))):
        start_time = time.perf_counter()
        seconds = cpu_seconds(work)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{name} in {clips:,} clips: {time.perf_counter() - start_time:.1f} s, {seconds:.1f} s of CPU time, "
            f"{most / 1024:,.0f} MiB at most ({before / 1024:,.0f} before)"
        )
    path.unlink()


def main() -> None:
    """Run what the options name."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pictures", help="network to time")
    options.add_argument("--clips", type=Path, help="folder of clips for it")
    options.add_argument("--search", type=int, help="number of clips to search")
    options.add_argument("--folder", type=Path, default=Path(), help="folder for the vectors")
    chosen = options.parse_args()
    if chosen.pictures:
        cost(chosen.pictures, chosen.clips)
    if chosen.search:
        search(chosen.search, chosen.folder)


if __name__ == "__main__":
    main()
