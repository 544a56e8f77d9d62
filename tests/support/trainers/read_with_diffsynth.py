"""Clips and captions as DiffSynth-Studio loads them. Run in its environment: OUT FRAMES HEIGHT WIDTH RESULT."""

import sys

import numpy as np
from diffsynth.core.data.unified_dataset import UnifiedDataset

out, frames, height, width, result = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
load = UnifiedDataset.default_video_operator(base_path=out, height=height, width=width, num_frames=frames)
clips = UnifiedDataset(out, f"{out}/metadata.jsonl", data_file_keys=("video",), main_data_operator=load)
loaded = [clips[number] for number in range(len(clips))]
np.savez(
    result,
    captions=[clip["prompt"] for clip in loaded],
    frames_NTHWC=[[np.asarray(frame) for frame in clip["video"]] for clip in loaded],
)
