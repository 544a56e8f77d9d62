"""Facts about sound: loudness and silence of known signals, and speech in a voice put together from formants."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

from examples.bunny.film import fetch_bunny
from pipeline.stages.hearing.facts import loudness_lufs, silent_share, speech_probabilities, speech_share
from pipeline.video.film_sound import SoundPieces
from pipeline.video.sound_files import SAMPLE_RATE, Samples, audio_frame
from tests.support.trainers.environments import SILERO, run_script

SECONDS = 2.0
VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))
"""First three formants of five vowels, Hz (Peterson and Barney, 1952)."""


def tone(decibels: float, hertz: float = 997) -> Samples:
    """A sine of this peak level in both channels."""
    times_T = np.arange(round(SECONDS * SAMPLE_RATE)) / SAMPLE_RATE
    return np.tile((10 ** (decibels / 20) * np.sin(2 * np.pi * hertz * times_T)).astype(np.float32), (2, 1))


def voice() -> Samples:
    """Vowels, six a second: pulses of a voice of about 120 Hz through a resonance for each formant."""
    rate, syllable = 16_000, 2_560
    times_T = np.arange(round(SECONDS * rate)) / rate
    turns_T = np.cumsum(120 * (1 + 0.15 * np.sin(2 * np.pi * 1.3 * times_T))) / rate
    pulses_T = np.diff(np.floor(turns_T), prepend=0)
    parts = [pulses_T[start : start + syllable] for start in range(0, pulses_T.size, syllable)]
    said = [
        np.hanning(part.size) * resonances(part, VOWELS[number % len(VOWELS)], rate)
        for number, part in enumerate(parts)
    ]
    voice_T = np.repeat(np.concatenate(said), SAMPLE_RATE // rate)
    return np.tile((0.5 * voice_T / np.abs(voice_T).max()).astype(np.float32), (2, 1))


def resonances(samples_T: NDArray[np.float64], formants: tuple[int, ...], rate: int) -> NDArray[np.float64]:
    for hertz, width in zip(formants, (80, 100, 120), strict=True):
        radius = np.exp(-np.pi * width / rate)
        first, second = 2 * radius * np.cos(2 * np.pi * hertz / rate), -(radius**2)
        heard = [0.0, 0.0]
        for sample in samples_T:
            heard.append(float(sample * (1 - first - second) + first * heard[-1] + second * heard[-2]))
        samples_T = np.array(heard[2:])
    return samples_T


@pytest.mark.parametrize("decibels", [-3.0, -23.0, -60.0])
def test_loudness_is_that_of_the_standard(decibels: float) -> None:
    """A sine of 997 Hz in both channels is as loud as its peak level (EBU Tech 3341)."""
    assert loudness_lufs(tone(decibels)) == pytest.approx(decibels, abs=0.1)


def test_silence() -> None:
    half_CT = tone(-20)
    half_CT[:, half_CT.shape[1] // 2 :] = 0
    assert silent_share(half_CT) == pytest.approx(0.5, abs=0.02)
    assert (silent_share(tone(-56)), silent_share(tone(-58))) == (0.0, 1.0)  # the RMS of a sine is 3 dB lower
    assert loudness_lufs(tone(-80)) is None


def test_a_voice_is_speech_and_tones_and_noise_are_not() -> None:
    noise_CT = 0.1 * np.random.default_rng(0).standard_normal(tone(0).shape).astype(np.float32)
    assert speech_share(voice()) > 0.9
    half_CT = np.concatenate((voice(), np.zeros_like(voice())), axis=1)
    assert speech_share(half_CT) == pytest.approx(0.5, abs=0.1)
    for other_CT in (tone(-10), tone(-10, 120), noise_CT):
        assert speech_share(other_CT) < 0.1


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_speech_is_that_of_the_package(tmp_path: Path) -> None:
    """Real sound of a film, and a voice, by the torch network of `silero-vad` in an environment of its own."""
    film = SoundPieces(fetch_bunny(), None)
    clips_NCT = [voice(), *(film.piece(10.0 * number, Fraction(2)) for number in range(50))]
    mono = [AudioResampler(format="fltp", layout="mono", rate=16_000) for _ in clips_NCT]
    sounds_NT = [
        np.concatenate([part.to_ndarray()[0] for frame in (audio_frame(clip_CT), None) for part in one.resample(frame)])
        for one, clip_CT in zip(mono, clips_NCT, strict=True)
    ]
    np.save(tmp_path / "sounds.npy", np.stack(sounds_NT))
    run_script(SILERO, "speech_by_silero.py", tmp_path / "sounds.npy", tmp_path / "found.npy")
    ours_NW = np.stack([speech_probabilities(clip_CT) for clip_CT in clips_NCT])
    theirs_NW = np.load(tmp_path / "found.npy")
    assert np.allclose(ours_NW, theirs_NW, atol=1e-4)
    assert ours_NW.max() > 0.9
