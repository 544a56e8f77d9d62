"""Networks in ONNX files, run on one thread of the CPU, so that every rerun gives the same numbers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime


def load_network(content: bytes) -> onnxruntime.InferenceSession:
    """Return the session of a network; threads may share it.

    onnxruntime reports every session to its maker since 1.29, and keeps an id of the machine in the user's cache. It is
    told not to, unless the user has set `ORT_DISABLE_TELEMETRY`. It reads this when it is imported.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
