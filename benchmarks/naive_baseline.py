"""Naive baseline of `make bench`: the same work as a chain of separate tools over the whole film.

Scene detection decodes the film once, each clip is cut by seeking and encoded again, optical flow reads the clips with
decord and runs Farneback at full size, and the result is a tar. It has no crop, no facts, no verdicts and no checks; it
represents the scripts in common use.

    python -m benchmarks.naive_baseline FILM OUT END_SECONDS       prints the counts as JSON
"""

from __future__ import annotations

import json
import sys
import tarfile
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import cv2
import numpy as np
from scenedetect import AdaptiveDetector, SceneManager, open_video

FRAMES, FPS, SECONDS, WIDTH, HEIGHT = 16, 8, 2, 720, 480


def find_scenes(film: Path, end_seconds: float) -> list[tuple[float, float]]:
    """Find scenes with PySceneDetect's decode loop and default detector; return start and end of each in seconds."""
    manager = SceneManager()
    manager.add_detector(AdaptiveDetector())
    manager.detect_scenes(open_video(str(film), backend="pyav"), end_time=end_seconds)
    return [(start.seconds, end.seconds) for start, end in manager.get_scene_list(start_in_scene=True)]


def cut_clip(film: Path, start_seconds: float, target: Path) -> None:
    """Seek, decode two seconds, sample, scale and encode, as `ffmpeg -ss START -t 2 -vf fps=8,scale` would."""
    with av.open(str(film)) as source, av.open(str(target), "w") as sink:
        video = source.streams.video[0]
        stream = sink.add_stream("libx264", rate=FPS, options={"crf": "18"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        source.seek(round(start_seconds / video.time_base), stream=video)  # type: ignore[operator]
        wanted = start_seconds
        count = 0
        for frame in source.decode(video):
            if frame.time is None or frame.time < wanted - 1e-6:
                continue
            picture = frame.reformat(width=WIDTH, height=HEIGHT, format="yuv420p")
            picture.pts, picture.time_base = count, Fraction(1, FPS)
            sink.mux(stream.encode(picture))
            count, wanted = count + 1, wanted + 1 / FPS
            if count == FRAMES:
                break
        sink.mux(stream.encode(None))


def motion_scope(clip: Path) -> float:
    """Return the mean Farneback magnitude above 0.2 px over the clip's frame steps."""
    import decord

    frames = decord.VideoReader(str(clip))[:].asnumpy()
    grays = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    magnitudes = []
    for before, after in pairwise(grays):
        vectors = np.zeros((*before.shape, 2), np.float32)
        flow = cv2.calcOpticalFlowFarneback(before, after, vectors, 0.5, 3, 15, 3, 5, 1.2, 0)
        magnitude = np.linalg.norm(flow, axis=2)
        magnitudes.append(magnitude[magnitude > 0.2])
    values = np.concatenate(magnitudes)
    return float(values.mean()) if values.size else 0.0


def main() -> None:
    """Run the baseline once and print the counts."""
    av.logging.set_libav_level(av.logging.PANIC)  # x264 logs a page for every clip
    film, out, end_seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    out.mkdir(parents=True)
    clips: list[Path] = []
    for start, end in find_scenes(film, end_seconds):
        for number in range(int((end - start) // SECONDS)):
            clip = out / f"{len(clips):06d}.mp4"
            cut_clip(film, start + number * SECONDS, clip)
            clips.append(clip)
    with tarfile.open(out / "shard.tar", "w") as shard:
        for clip in clips:
            clip.with_suffix(".json").write_text(json.dumps({"scope_px": motion_scope(clip)}))
            shard.add(clip, clip.name)
            shard.add(clip.with_suffix(".json"), clip.with_suffix(".json").name)
    print(json.dumps({"clips": len(clips)}))


if __name__ == "__main__":
    main()
