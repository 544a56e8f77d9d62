"""Pictures for the training of the network of transitions, fetched or drawn: films, painted art, and figures.

python -m benchmarks.transitions.export bench-transitions
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np

from benchmarks.real.made import CUTS
from benchmarks.transitions.library import SIZE, Notes, bunny_notes
from examples.bunny.film import fetch_bunny
from examples.world.film import FPS, pictures_of
from examples.world.paintings import art_folder
from examples.world.scene_changes import scene_changes
from examples.world.textures import Picture
from examples.world.truth import truth_about
from examples.world.writer import write_film

HELD_OUT = ("bg club", "bg lecturehall", "bg meadow", "bg uni")
"""Painted backgrounds that `make bench-real` holds out."""
STORY = (1145, 11_700)
"""First and last frame of Big Buck Bunny between title and credits."""


def main() -> None:
    """Write the films with what is known about them, and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103], help="seeds of composed films")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    cuts = json.loads(CUTS.read_text())["consensus_adaptive_transnet"]
    _write(given.folder / "bunny", _bunny(), bunny_notes(cuts, *STORY))
    for seed in given.seeds:
        scenes = scene_changes(seed)
        truth = truth_about(scenes, FPS)
        notes: Notes = {
            "scenes": [[one.start_frame, one.end_frame, one.background in HELD_OUT] for one in truth.scenes],
            "transitions": [
                [one.frame, one.kind, one.last_clean_before, one.first_clean_after] for one in truth.transitions
            ],
        }
        _write(given.folder / f"composed-{seed}", pictures_of(scenes), notes)
    _write_art(given.folder)


def _write(path: Path, pictures: Iterable[Picture], notes: Notes) -> None:
    small = (cv2.resize(one_HWC, SIZE, interpolation=cv2.INTER_AREA) for one_HWC in pictures)
    shown = (np.ascontiguousarray(one_HWC, np.uint8) for one_HWC in small)
    write_film(path.with_suffix(".mp4"), shown, fps=Fraction(24), options={"crf": "17", "preset": "slow"})
    path.with_suffix(".json").write_text(json.dumps(notes))


def _bunny() -> Iterator[Picture]:
    with av.open(str(fetch_bunny())) as film:
        for number, frame in enumerate(film.decode(video=0)):
            if number > STORY[1]:
                return
            shown = frame.reformat(width=320, height=180, format="bgr24", interpolation="AREA")
            yield np.asarray(shown.to_ndarray(), np.uint8)


def _write_art(folder: Path) -> None:
    images = art_folder() / "demo/game/images"
    for number, path in enumerate(sorted([*images.glob("bg *.jpg"), *images.glob("concert1.png")])):
        picture_HWC = cv2.imread(str(path))
        assert picture_HWC is not None
        small_HWC = cv2.resize(picture_HWC, (512, 288), interpolation=cv2.INTER_AREA)
        cv2.imwrite(str(folder / f"art{number}.jpg"), small_HWC)
    others = (art_folder() / "the_question/game/images").glob("sylvie*.png")
    figures = sorted([*images.glob("eileen*.png"), *images.glob("lucy*.png"), *others])
    for number, path in enumerate(figures):
        figure_HWC = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert figure_HWC is not None
        width, height = SIZE
        wide = min(width, round(figure_HWC.shape[1] * height / figure_HWC.shape[0]))
        canvas_HWC = np.zeros((height, width, 4), np.uint8)
        left = (width - wide) // 2
        canvas_HWC[:, left : left + wide] = cv2.resize(figure_HWC, (wide, height), interpolation=cv2.INTER_AREA)
        cv2.imwrite(str(folder / f"figure{number:02d}.png"), canvas_HWC)


if __name__ == "__main__":
    main()
