"""Contact sheets of the clips to look at: mixed clips that were kept, and clean clips that were lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np

from pipeline.video.clip_files import read_clip_gray

_WIDTH, _SHOWN = 160, 8


def write_sheets(clips: Mapping[str, tuple[Sequence[Path], Sequence[Path]]], out: Path) -> None:
    """Write a picture per group of films with mixed and one with lost clips, a row for each clip."""
    for group, lists in clips.items():
        for name, paths in zip(("mixed", "lost"), lists, strict=True):
            picture = out / f"{name}-{group.replace(', ', '-').replace(' ', '-')}.png"
            picture.unlink(missing_ok=True)
            if paths:
                cv2.imwrite(str(picture), np.vstack([_row(path) for path in paths]))


def _row(path: Path) -> np.ndarray:
    frames_THW = read_clip_gray(path)
    chosen = np.linspace(0, len(frames_THW) - 1, _SHOWN).round().astype(int)
    height = round(_WIDTH * frames_THW.shape[1] / frames_THW.shape[2])
    row_HW = np.hstack([cv2.resize(frames_THW[number], (_WIDTH, height)) for number in chosen])
    title_HW = np.zeros((16, row_HW.shape[1]), np.uint8)
    cv2.putText(title_HW, path.stem, (2, 12), cv2.FONT_HERSHEY_SIMPLEX, 0.4, 255, 1)
    return np.vstack([title_HW, row_HW])
