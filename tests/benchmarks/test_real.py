"""Benchmark on real pictures: what a build loses of untouched film, and the sheets that show it."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from benchmarks.real.score import score
from benchmarks.real.sheets import ROWS, clip_rows, stretch_rows, write_sheets
from benchmarks.real.stretches import FALSE_BOUNDARY
from benchmarks.real.truth import Change, Film
from pipeline.core.records import Clip
from pipeline.core.store import Dataset
from tests.support.datasets.built_dataset import copy_of_built
from tests.support.records import verdict


def test_lost_stretches_have_their_reason_and_a_coloured_row(tmp_path: Path) -> None:
    path, data = copy_of_built(tmp_path)  # six seconds in two scenes, a clip in each
    (folder,) = Dataset(data).folders()
    first, second = folder.read("clips", Clip)
    cut = Change("cut", 70 / 24, 70 / 24)

    def lost(*changes: Change) -> tuple[int, int, int, list[tuple[str, ...]]]:
        """Return the clips lost to two scenes and to a false boundary, the room for clips, and the reasons."""
        found = score(Dataset(data), [Film(path, changes, is_held_out=False)])
        return len(found.lost), found.cut_off, found.room, [stretch.reasons for stretch in found.stretches]

    assert lost(cut) == (0, 0, 2, [])
    folder.write("verdicts", [verdict(first.clip_id), verdict(second.clip_id, "two scenes")])
    assert lost(cut) == (1, 0, 2, [("two scenes",)])
    folder.write("clips", [first])
    assert lost(cut) == (0, 0, 2, [("no clip",)])
    assert lost() == (0, 1, 2, [(FALSE_BOUNDARY,)])

    [stretch] = score(Dataset(data), [Film(path, (cut,), is_held_out=False)]).stretches
    write_sheets(tmp_path / "lost", [*stretch_rows([stretch]) * ROWS, *clip_rows([folder.clip_path(first.clip_id)])])
    sheets = [cv2.imread(str(tmp_path / f"lost-{number}.png")) for number in (1, 2)]
    assert sheets[0].shape[0] == ROWS * sheets[1].shape[0]
    assert all(np.ptp(sheet[:90].astype(int), axis=2).mean() > 5 for sheet in sheets), "in colour"
    write_sheets(tmp_path / "lost", [])
    assert not list(tmp_path.glob("lost-*.png"))
