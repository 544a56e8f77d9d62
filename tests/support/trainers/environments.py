"""Environments of trainers and other packages, made by uv from the package index and kept for the next run.

They pin what we do not want, and take gigabytes, so only nightly tests use them. Without an index the tests are
skipped; in CI they fail.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from platformdirs import user_cache_path

SCRIPTS = Path(__file__).parent
# torchcodec reads sound with shared libraries of FFmpeg, which PyAV brings.
DIFFSYNTH = ("diffsynth==2.1.12", "torchaudio==2.11.1", "torchcodec==0.17.0", "av==18.1.0")
# The wheel of finetrainers 0.2.0 states no upper bounds; these are the newest versions that its loader works with.
FINETRAINERS = (
    *("finetrainers==0.2.0", "datasets<4", "torch==2.6.0", "torchvision==0.21.0", "torchao==0.9.0"),
    *("diffusers<0.34", "transformers<4.50", "huggingface_hub<1", "setuptools<80", "numpy<2.3", "av<16"),
)
# 3.1.6 is the newest for Python 3.11; torch must have the CUDA version of torchaudio, which it imports.
SIMPLETUNER = ("simpletuner==3.1.6", "torch==2.11.0", "torchaudio==2.11.0")
WEBSHART = ("webshart==0.4.6",)
CROISSANT = ("mlcroissant==1.1.1",)
SILERO = ("silero-vad==6.2.3", "numpy==2.2.6")


def python_with(requirements: Sequence[str]) -> Path:
    """Return the Python of an environment with these packages; it is made if it is not there."""
    key = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:12]
    folder = user_cache_path("animegamer") / "trainers" / key
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        uv = str(Path(sys.prefix, "bin", "uv"))
        _run(uv, "venv", "--quiet", "--clear", "--python", "3.11", str(folder))
        _run(uv, "pip", "install", "--quiet", "--python", str(python), *requirements)
        ready.touch()
    return python


def run_script(requirements: Sequence[str], name: str, *arguments: object) -> str:
    """Run a script of this folder in an environment and return its output."""
    python = python_with(requirements)
    command = [str(python), str(SCRIPTS / name), *map(str, arguments)]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    if found := list(python.parents[1].glob("lib/python*/site-packages/av.libs")):
        clean["LD_LIBRARY_PATH"] = os.pathsep.join([_ffmpeg(found[0]), *map(str, found)])
    done = subprocess.run(command, capture_output=True, text=True, env=clean, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _ffmpeg(libraries: Path) -> str:
    """Folder with FFmpeg's libraries under their own names, as `libavutil.so.60`; PyAV adds hashes to them."""
    folder = libraries.with_name("ffmpeg")
    folder.mkdir(exist_ok=True)
    for file in libraries.iterdir():
        if match := re.fullmatch(r"(lib(?:av|sw)[a-z]+)-[0-9a-f]+(\.so\.\d+)\..*", file.name):
            link = folder / "".join(match.groups())
            if not link.is_symlink():
                link.symlink_to(file)
    return str(folder)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        message = f"the environment of a trainer cannot be made: {done.stderr[-500:]}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
