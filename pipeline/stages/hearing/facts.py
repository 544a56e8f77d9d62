"""Facts about the sound of a clip: loudness, silence and speech.

Speech is found by Silero VAD 6.2.3 (`speech.onnx`, MIT, `speech.LICENSE`; from the wheel of `silero-vad`), which gives
a probability for every 32 ms.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from av.audio.resampler import AudioResampler
from av.error import BlockingIOError as NeedsMoreError
from av.error import EOFError as FinishedError
from av.filter import Graph
from numpy.typing import NDArray

from pipeline.core.onnx_network import load_network
from pipeline.video.sound_files import SAMPLE_RATE, Samples, audio_frame

if TYPE_CHECKING:
    import onnxruntime

GATE_LUFS = -70.0
"""Absolute gate of BS.1770: quieter sound has no loudness."""
SILENCE_DBFS = -60.0
WINDOW = SAMPLE_RATE // 50
"""Samples of the windows that are silent or not: 20 ms."""
SPEECH = 0.5
"""Probability from which Silero VAD takes a window for speech."""
_SPEECH_RATE, _SPEECH_WINDOW, _SPEECH_CONTEXT = 16_000, 512, 64


def loudness_lufs(samples_CT: Samples) -> float | None:
    """Integrated loudness by ITU-R BS.1770 (FFmpeg's `ebur128`); None below `GATE_LUFS`, or for less than 0.4 s."""
    graph = Graph()
    source = graph.add_abuffer(
        sample_rate=SAMPLE_RATE,
        format="fltp",
        layout="stereo",
        time_base=f"1/{SAMPLE_RATE}",  # type: ignore[arg-type]
    )
    graph.link_nodes(source, graph.add("ebur128", "metadata=1"), graph.add("abuffersink")).configure()
    frame = audio_frame(samples_CT)
    frame.pts = 0
    graph.push(frame)
    graph.push(None)
    loudness = GATE_LUFS
    while True:
        try:
            loudness = float(graph.pull().metadata.get("lavfi.r128.I", loudness))
        except (FinishedError, NeedsMoreError):
            return loudness if loudness > GATE_LUFS else None


def silent_share(samples_CT: Samples) -> float:
    """Share of windows of 20 ms whose RMS over both channels is below `SILENCE_DBFS`."""
    windows = max(1, samples_CT.shape[1] // WINDOW)
    power_N = [float(np.mean(part**2)) for part in np.array_split(samples_CT, windows, axis=1)]
    return float(np.mean(np.array(power_N) < 10 ** (SILENCE_DBFS / 10)))


def speech_share(samples_CT: Samples) -> float:
    """Share of windows of 32 ms that Silero VAD takes for speech."""
    probability_N = speech_probabilities(samples_CT)
    return float(np.mean(probability_N >= SPEECH)) if probability_N.size else 0.0


def speech_probabilities(samples_CT: Samples) -> NDArray[np.float32]:
    """Probability of speech in each window of 32 ms of a clip."""
    mono = AudioResampler(format="fltp", layout="mono", rate=_SPEECH_RATE)
    parts = [part.to_ndarray()[0] for frame in (audio_frame(samples_CT), None) for part in mono.resample(frame)]
    samples_T = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    # Each window comes with the last samples of the one before; the last window is filled up with zeros.
    windows = -(-samples_T.size // _SPEECH_WINDOW)
    padded_T = np.zeros(_SPEECH_CONTEXT + windows * _SPEECH_WINDOW, np.float32)
    padded_T[_SPEECH_CONTEXT : _SPEECH_CONTEXT + samples_T.size] = samples_T
    all_NT = np.lib.stride_tricks.sliding_window_view(padded_T, _SPEECH_CONTEXT + _SPEECH_WINDOW)[::_SPEECH_WINDOW]
    state = np.zeros((1, 1, 128), np.float32)
    found: NDArray[np.float32] = _network().run(["speech_probs"], {"input": all_NT, "h": state, "c": state})[0]
    return found


@cache
def _network() -> onnxruntime.InferenceSession:
    return load_network(Path(__file__).with_name("speech.onnx").read_bytes())
