"""Scene boundaries and clips on films from outside, in settings that people use.

    make bench-real REAL=DIR
    make bench-real REAL=DIR QUICK=1

DIR holds films with `truth.tsv` and `INDEX.tsv` (`benchmarks/real/truth.py`). Beside them: transitions that FFmpeg
makes between real scenes (`benchmarks/real/made.py`), and Big Buck Bunny untouched. Half of the titles, the trailer and
half of the art are held out: thresholds are tuned on the others. `--transnetv2` measures a yardstick beside ours.

Big Buck Bunny and all made transitions are measured as they are; the other settings take a sixth of the transitions.

A boundary is right within a change or two frames beside it. A clip is mixed if two scenes each fill a tenth of it; a
frame of a gradual change belongs to the scene with the larger weight. A false boundary costs a scene the clips that fit
between its changes and were not made. Ranges are 95% Wilson intervals.

The folder of each setting has contact sheets of the mixed clips and of the clips lost to `two scenes`. Of Big Buck
Bunny, they show every stretch without a kept clip.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.real.made import CUTS, made_films
from benchmarks.real.score import Score, build, score, yardstick
from benchmarks.real.settings import SETTINGS, Setting, stored
from benchmarks.real.sheets import clip_rows, stretch_rows, write_sheets
from benchmarks.real.truth import BLANK, Change, Film, read_titles
from examples.bunny.film import fetch_bunny
from pipeline.reviews.intervals import wilson

LENGTHS = (0.5, 1.5, 2.5)
"""Upper ends of the groups of lengths, seconds."""
UNTOUCHED = "untouched"
"""Group of Big Buck Bunny."""
MARKED = (
    *(("cut", frame, frame) for frame in (5307, 8091, 9584, 10613, 14314)),
    *(("dissolve", first, last) for first, last in ((760, 794), (11182, 11192))),
    *((BLANK, first, last) for first, last in ((5, 50), (7168, 7184), (7206, 7226), (11051, 11063), (11086, 11104))),
    *((BLANK, first, last) for first, last in ((11722, 11760), (11770, 11802))),
)
"""Further changes of Big Buck Bunny by frame. We looked at every boundary found that the list of cuts lacks; none of
those in the end titles is a change."""


def bunny() -> Film:
    """Return Big Buck Bunny with the cuts that two detectors agree on, and the changes marked by eye."""
    cuts = json.loads(CUTS.read_text())
    frames = [*(("cut", frame, frame) for frame in cuts["consensus_adaptive_transnet"]), *MARKED]
    changes = [Change(kind, first / cuts["fps"], last / cuts["fps"]) for kind, first, last in frames]
    return Film(fetch_bunny(), tuple(sorted(changes, key=lambda change: change.seconds)), is_held_out=False)


Groups = dict[str, list[Film]]


def halves(titles: Sequence[Film], made: Sequence[Film]) -> Groups:
    """Return titles and made films, each by half."""
    return {
        f"{name}, {half}": [film for film in films if film.is_held_out == (half == "held out")]
        for name, films in (("titles", titles), ("made", made))
        for half in ("tuning", "held out")
    }


def yardsticks(setting: Setting, groups: Groups, folder: Path, python: Path) -> dict[str, Score]:
    """Score TransNetV2 in one setting by group."""
    paths = {film.path: stored(film.path, setting, folder) for group in groups.values() for film in group}
    return {name: yardstick(group, paths, python) for name, group in groups.items()}


def measure(setting: Setting, groups: Groups, folder: Path) -> dict[str, Score]:
    """Build all films in one setting and score them by group."""
    films = {film.path: stored(film.path, setting, folder) for group in groups.values() for film in group}
    out = folder / "built" / setting.name.replace(" ", "-")
    dataset = build(list(films.values()), out, setting.config)
    scores = {name: score(dataset, group) for name, group in groups.items()}
    for name, found in scores.items():
        group = name.replace(", ", "-").replace(" ", "-")
        lost = stretch_rows(found.stretches) if name == UNTOUCHED else clip_rows(found.lost)
        write_sheets(out / f"mixed-{group}", clip_rows(found.mixed))
        write_sheets(out / f"lost-{group}", lost)
    return scores


def share(part: int, whole: int) -> str:
    """Return a count of another one with its share and interval."""
    if not whole:
        return "-"
    low, high = wilson(part / whole, whole)
    return f"{part}/{whole} {part / whole:.3f} ({low:.3f} to {high:.3f})"


def clips_table(results: dict[str, dict[str, Score]]) -> Table:
    """Table of the clips: a row for each setting and group of films."""
    losses = "lost to two scenes", "lost to a false boundary"
    table = Table("setting", "films", "mixed of kept", "kept s", "changes that leave a mixed clip", *losses)
    for setting, scores in results.items():
        for group, found in scores.items():
            mixed, leaking = share(len(found.mixed), found.kept), share(len(found.leaking), len(found.gradual))
            lost = share(len(found.lost), found.clean), share(found.cut_off, found.room)
            table.add_row(setting, group, mixed, f"{found.kept_seconds:.0f}", leaking, *lost)
    return table


def boundaries_table(results: dict[str, dict[str, Score]], title: str) -> Table:
    """Table of the boundaries: recall and precision of cuts and gradual changes."""
    table = Table("setting", "films", "cuts found", "gradual found", "cuts right", "gradual right", title=title)
    for setting, scores in results.items():
        for group, found in scores.items():
            cuts, gradual = found.changes["cut"], found.changes.total() - found.changes["cut"]
            recall = share(found.found["cut"], cuts), share(found.found.total() - found.found["cut"], gradual)
            right = [share(found.right[kind], found.boundaries[kind]) for kind in ("cut", "gradual")]
            table.add_row(setting, group, *recall, *right)
    return table


def kinds_table(scores: dict[str, Score]) -> Table:
    """Table of the made transitions that leave a mixed kept clip, by kind and length."""
    table = Table("films", "kind", *(f"to {length:g} s" for length in LENGTHS), title="changes that leave a mixed clip")
    for group, found in scores.items():
        for kind in sorted({change.kind for change in found.leaking}):
            of_kind = [change for change in found.gradual if change.kind == kind]
            table.add_row(group, kind, *_by_length(of_kind, found.leaking))
    return table


def _by_length(changes: Sequence[Change], leaking: Sequence[Change]) -> list[str]:
    cells, shorter = [], 0.0
    for length in LENGTHS:
        group = [one for one in changes if shorter < one.end_seconds - one.start_seconds <= length + 1e-6]
        cells.append(f"{sum(one in leaking for one in group)}/{len(group)}")
        shorter = length + 1e-6
    return cells


def main() -> None:
    """Compose, build, measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("real", type=Path, help="folder of films with the table of their changes")
    parser.add_argument("--folder", type=Path, default=Path("bench-real"), help="films and datasets, kept between runs")
    parser.add_argument("--quick", action="store_true", help="few made transitions throughout, no Big Buck Bunny")
    parser.add_argument("--only", metavar="SETTING", action="append", help="one of the settings; may be repeated")
    parser.add_argument("--transnetv2", metavar="PYTHON", type=Path, help="interpreter of its environment")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    titles, made = read_titles(given.real), made_films(given.folder, quick=given.quick)
    few = made if given.quick else made_films(given.folder, quick=True)
    whole = halves(titles, made) | ({} if given.quick else {UNTOUCHED: [bunny()]})
    chosen = {one: halves(titles, few) if one.filters or one.changes_clips_only else whole for one in SETTINGS}
    chosen = {one: groups for one, groups in chosen.items() if not given.only or one.name in given.only}
    in_turn = track(chosen.items(), console=Console(stderr=True))
    results = {one.name: measure(one, groups, given.folder) for one, groups in in_turn}
    console = Console(width=int(os.environ.get("COLUMNS", "200")))
    console.print(boundaries_table(results, "ours"))
    if given.transnetv2:
        others = {
            one.name: yardsticks(one, groups, given.folder, given.transnetv2)
            for one, groups in chosen.items()
            if not one.changes_clips_only
        }
        console.print(boundaries_table(others, "TransNetV2"))
    console.print(clips_table(results), kinds_table(next(iter(results.values()))))


if __name__ == "__main__":
    main()
