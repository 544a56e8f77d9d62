"""Clips and captions as DiffSynth-Studio loads them. Run in its environment: OUT FRAMES HEIGHT WIDTH RESULT.

With a column `input_audio`, it loads them as its training of LTX-2 does, with their sound.
"""

import json
import sys
from pathlib import Path

import numpy as np
from diffsynth.core.data.operators import LoadAudioWithTorchaudio, ToAbsolutePath
from diffsynth.core.data.unified_dataset import UnifiedDataset

out, frames, height, width, result = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
table = f"{out}/metadata.jsonl"
with_sound = "input_audio" in json.loads(Path(table).read_text(encoding="utf-8").splitlines()[0])
ltx2 = {"time_division_factor": 8, "frame_rate": 24, "fix_frame_rate": True} if with_sound else {}
load = UnifiedDataset.default_video_operator(base_path=out, height=height, width=width, num_frames=frames, **ltx2)
keys = ("video", "input_audio") if with_sound else ("video",)
special = {"input_audio": ToAbsolutePath(out) >> LoadAudioWithTorchaudio(frames, 8, 1, frame_rate=24)}
clips = UnifiedDataset(out, table, data_file_keys=keys, main_data_operator=load, special_operator_map=special)
loaded = [clips[number] for number in range(len(clips))]
np.savez(
    result,
    captions=[clip["prompt"] for clip in loaded],
    frames_NTHWC=[[np.asarray(frame) for frame in clip["video"]] for clip in loaded],
    sounds_NCT=[clip["input_audio"][0].numpy() for clip in loaded if with_sound],
    rates=[clip["input_audio"][1] for clip in loaded if with_sound],
)
