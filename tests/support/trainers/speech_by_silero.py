"""Probability of speech by the package `silero-vad` itself, with torch. Run in its environment: SOUNDS RESULT.

SOUNDS is an array of clips and samples at 16 kHz, saved by numpy, and so is RESULT, of clips and windows of 512.
"""

import sys

import numpy as np
import torch
from silero_vad import load_silero_vad

model = load_silero_vad()
found = []
for sound in np.load(sys.argv[1]):
    model.reset_states()
    windows = torch.from_numpy(sound).split(512)
    with torch.no_grad():
        found.append([model(torch.nn.functional.pad(part, (0, 512 - len(part))), 16_000).item() for part in windows])
np.save(sys.argv[2], np.array(found))
