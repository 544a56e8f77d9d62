"""Clips and captions as SimpleTuner reads them from a folder. Run in its environment: OUT RESULT.

Its factory of data backends needs the weights of a model; these are the parts of it that read the files.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ["SIMPLETUNER_LOG_LEVEL"] = "WARNING"

import numpy as np
from simpletuner.helpers.data_backend.config.image import ImageBackendConfig
from simpletuner.helpers.data_backend.local import LocalDataBackend
from simpletuner.helpers.image_manipulation.load import load_video
from simpletuner.helpers.prompts import PromptHandler
from simpletuner.helpers.training import video_file_extensions
from simpletuner.helpers.training.state_tracker import StateTracker

out, result = sys.argv[1:3]
with open(f"{out}/config/clips/config.json", encoding="utf-8") as file:  # noqa: PTH123
    arguments = json.load(file)
with open(arguments["data_backend_config"], encoding="utf-8") as file:  # noqa: PTH123
    described = json.load(file)[0]
config = ImageBackendConfig.from_dict(described, arguments)
config.validate(arguments)
backend = LocalDataBackend(None, config.id)
StateTracker.set_args(SimpleNamespace(output_dir=Path(result).parent))
files = backend.list_files(video_file_extensions, config.instance_data_dir)
StateTracker.set_image_files(files, data_backend_id=config.id)
captions, missing, paths = PromptHandler.get_all_captions(
    config.instance_data_dir,
    use_captions=True,
    prepend_instance_prompt=False,
    data_backend=backend,
    caption_strategy=config.caption_strategy,
    return_image_paths=True,
)
assert not missing
order = np.argsort(paths)
frames = [load_video(paths[number]) for number in order]
np.savez(result, captions=[captions[number] for number in order], frames_NTHWC=frames)
