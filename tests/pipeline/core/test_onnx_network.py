"""Networks in ONNX files: nothing is written into the user's folders, and nothing is reported."""

import os
import subprocess
import sys
from pathlib import Path

LOAD = """
import sys
import numpy as np
from pipeline.stages.cutting.transition_scores import TransitionScorer
from pipeline.stages.overlays.text import find_lines
assert "onnxruntime" not in sys.modules
TransitionScorer()
find_lines(np.zeros((480, 720, 3), np.uint8))
assert "onnxruntime" in sys.modules
"""


def test_loading_the_networks_leaves_no_trace_of_the_user(tmp_path: Path) -> None:
    folders = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "ORT_DISABLE_TELEMETRY")}
    subprocess.run([sys.executable, "-c", LOAD], env=environment | folders, check=True)
    assert list(tmp_path.rglob("*")) == []
