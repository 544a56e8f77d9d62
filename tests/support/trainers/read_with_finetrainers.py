"""Clips and captions as finetrainers loads them. Run in its environment: OUT RESULT.

The wheel of 0.2.0 lacks `finetrainers.patches.dependencies`, so that `import finetrainers` fails; its loader works.
"""

import importlib.util
import json
import sys
import types

import numpy as np

package = types.ModuleType("finetrainers")
package.__path__ = list(importlib.util.find_spec("finetrainers").submodule_search_locations)
sys.modules["finetrainers"] = package
from finetrainers.data.dataset import initialize_dataset, wrap_iterable_dataset_for_preprocessing  # noqa: E402

out, result = sys.argv[1:3]
with open(f"{out}/training.json", encoding="utf-8") as file:  # noqa: PTH123
    [config] = json.load(file)["datasets"]
kind = config.pop("dataset_type")
clips = initialize_dataset(config["data_root"], kind)
loaded = list(wrap_iterable_dataset_for_preprocessing(clips, kind, config))
frames = [((clip["video"].permute(0, 2, 3, 1).numpy() + 1) * 127.5).round().astype(np.uint8) for clip in loaded]
np.savez(result, captions=[clip["caption"] for clip in loaded], frames_NTHWC=frames)
