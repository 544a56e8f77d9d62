"""Benchmark of carried characters: exact sets and micro-F1 after 20, 40 and 80 reviews, beside two baselines.

python -m benchmarks.cast --dataset data/       Big Buck Bunny, built; drawn films are drawn
python -m benchmarks.cast --dataset data/ --fit     confidence, fitted to the training half
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.cast.films import HALF_SECONDS, FilmClips, bunny, composed_cast, drawn_world
from pipeline.core.store import Dataset
from pipeline.reviews.carry import Guess, Likeness, carry, most_telling
from pipeline.reviews.intervals import wilson
from pipeline.stages.embedding.network_files import OWN, find_network
from pipeline.stages.embedding.networks import OnnxPictureEncoder

DRAWS, ROUND = 50, 20
"""Random draws of reviewed clips, and reviews after which the page is loaded again."""
SHARES = (0.25, 0.5, 0.75, 1.0)
Rows = Sequence[int]


@dataclass(frozen=True)
class Case:
    """Film with the likeness of its clips, and a likeness of histograms, shape (clips, clips)."""

    film: FilmClips
    likeness: Likeness
    histograms_CC: NDArray[np.float32]

    @classmethod
    def of(cls, film: FilmClips, encoder: OnnxPictureEncoder) -> Case:
        """Embed the clips of a film."""
        vectors = np.stack([encoder.vectors(list(each)).astype(np.float16) for each in film.pictures])
        colours = np.stack([np.mean([_histogram(one) for one in each], axis=0) for each in film.pictures])
        both = np.stack([np.minimum(colours, one).sum(axis=1) for one in colours])
        return cls(film, Likeness.of(vectors, [0] * len(vectors), film.scenes, film.seconds), both)

    def guessed(self, reviewed: Rows) -> dict[int, Guess]:
        """Return the guesses about the other clips."""
        return carry(self.likeness, {row: self.film.truth[row] for row in reviewed})

    def proposed(self, count: int) -> list[int]:
        """The first clips that the page shows, if it is loaded again after every round."""
        chosen: list[int] = []
        while len(chosen) < count:
            guesses, doubt_C = self.guessed(chosen), np.ones(len(self.film.truth))
            for row, guess in guesses.items():
                doubt_C[row] = 1 - guess.confidence
            chosen += most_telling(self.likeness, chosen, min(ROUND, count - len(chosen)), doubt_C)
        return chosen

    def nearest(self, reviewed: Rows, by: str) -> dict[int, Guess]:
        """Guesses of a baseline: the nearest reviewed clip in time, or by histograms."""
        second_C, known = np.array(self.film.seconds), np.array(reviewed)
        found = {}
        for row in set(range(len(second_C))) - set(reviewed):
            alike = -np.abs(second_C[known] - second_C[row]) if by == "time" else self.histograms_CC[row, known]
            truth = self.film.truth[known[alike.argmax()]]
            found[row] = Guess(truth.characters, truth.actor, float(alike.max()))
        return found


def _histogram(picture_HWC: NDArray[np.uint8]) -> NDArray[np.float32]:
    hues = cv2.cvtColor(cv2.resize(picture_HWC, (224, 128), interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2HSV)
    counts = cv2.calcHist([hues], [0, 1, 2], None, [12, 4, 4], [0, 180, 0, 256, 0, 256]).ravel()
    return np.asarray(counts / counts.sum(), np.float32)


@dataclass(frozen=True)
class Score:
    """Scores of one set of guesses."""

    exact: float
    micro_f1: float
    seen: float
    """Exact among clips of scenes with a reviewed clip; `unseen` likewise without."""
    unseen: float
    by_share: tuple[float, ...]
    """Exact among the surest `SHARES`."""
    actor: float
    guesses: int

    @classmethod
    def of(cls, film: FilmClips, reviewed: Rows, guesses: dict[int, Guess]) -> Score:
        """Score guesses; micro-F1 counts names."""
        rows = sorted(guesses, key=lambda row: -guesses[row].confidence)
        said = [set(guesses[row].characters) for row in rows]
        true = [set(film.truth[row].characters) for row in rows]
        right = np.array([one == other for one, other in zip(said, true, strict=True)], float)
        both = sum(len(one & other) for one, other in zip(said, true, strict=True))
        scenes = {film.scenes[row] for row in reviewed}
        in_seen = np.array([film.scenes[row] in scenes for row in rows])
        return cls(
            exact=float(right.mean()),
            micro_f1=2 * both / max(sum(map(len, said)) + sum(map(len, true)), 1),
            seen=_mean(right[in_seen]),
            unseen=_mean(right[~in_seen]),
            by_share=tuple(_mean(right[: max(1, round(share * len(right)))]) for share in SHARES),
            actor=_mean(np.array([guesses[row].actor == film.truth[row].actor for row in rows], float)),
            guesses=len(rows),
        )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def draws(clips: int, count: int) -> Iterator[list[int]]:
    """Yield random draws of reviewed clips, the same ones at each run."""
    for seed in range(DRAWS):
        yield sorted(np.random.default_rng(seed).choice(clips, count, replace=False).tolist())


def table(case: Case, counts: Sequence[int]) -> None:
    """Print a row for each number of reviews, way of choosing them, and method."""
    print(f"\n{case.film.name}: {len(case.film.truth)} clips, {len(set(case.film.scenes))} scenes")
    print("| reviewed | rule | exact | interval | F1 | scene seen | not seen | surest quarter, half, 3/4 | actor |")
    print("|---|---|---:|---|---:|---:|---:|---|---:|")
    for count in counts:
        random, page = list(draws(len(case.film.truth), count)), [case.proposed(count)]
        for where, chosen in (("random", random), ("page", page)):
            for rule in ("carried", "time", "histogram"):
                scores = [
                    Score.of(case.film, rows, case.guessed(rows) if rule == "carried" else case.nearest(rows, rule))
                    for rows in chosen
                ]
                _row(f"{count} {where}", rule, scores)


def _row(reviewed: str, rule: str, scores: Sequence[Score]) -> None:
    exact = [score.exact for score in scores]
    if len(scores) > 1:
        low, high = np.percentile(exact, [2.5, 97.5])
    else:
        low, high = wilson(exact[0], scores[0].guesses)
    values = [
        np.nanmean([getattr(score, name) for score in scores]) for name in ("exact", "micro_f1", "seen", "unseen")
    ]
    shares = np.mean([score.by_share[:3] for score in scores], axis=0)
    actor = np.nanmean([score.actor for score in scores])
    print(
        f"| {reviewed} | {rule} | {values[0]:.1%} | {low:.0%} to {high:.0%} | {values[1]:.2f} | {values[2]:.0%} | "
        f"{values[3]:.0%} | {', '.join(f'{share:.0%}' for share in shares)} | {actor:.0%} |",
        flush=True,
    )


def calibration(case: Case, counts: Sequence[int], *, fit: bool) -> None:
    """Print how often guesses of a confidence are right; with `fit`, the slope and shift that suit their odds."""
    found = [
        (guess.confidence, set(guess.characters) == set(case.film.truth[row].characters))
        for count in counts
        for rows in draws(len(case.film.truth), count)
        for row, guess in case.guessed(rows).items()
    ]
    said, right = np.array([one for one, _ in found]), np.array([one for _, one in found], float)
    for low, high in ((0, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 0.9), (0.9, 1.01)):
        inside = (said >= low) & (said < high)
        print(
            f"confidence {low:.0%} to {min(high, 1):.0%}: {inside.mean():.0%} of guesses, "
            f"{_mean(right[inside]):.0%} right"
        )
    if fit:
        odds = np.log(said / (1 - said))
        weights = np.zeros(2)
        inputs = np.stack([odds, np.ones_like(odds)], axis=1)
        for _ in range(20):  # Newton's method for a logistic regression
            share = 1 / (1 + np.exp(-inputs @ weights))
            curve = (inputs * (share * (1 - share))[:, None]).T @ inputs
            weights += np.linalg.solve(curve, inputs.T @ (right - share))
        print(f"slope {weights[0]:.2f} and shift {weights[1]:.2f} on top of the present ones")


def main() -> None:
    """Run the films."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dataset", type=Path, required=True, help="dataset built from Big Buck Bunny")
    options.add_argument("--network", default=OWN, help="network of pictures")
    options.add_argument("--fit", action="store_true", help="fit the confidence to the training half alone")
    options.add_argument("--films", nargs="+", default=["bunny", "world", "composed"])
    given = options.parse_args()
    encoder = OnnxPictureEncoder(find_network(given.network, "pictures", fetch=True))
    if "bunny" in given.films:
        whole = bunny(Dataset(given.dataset))
        training = Case.of(whole.part("bunny, training half", lambda second: second < HALF_SECONDS), encoder)
        if given.fit:
            calibration(training, (10, 20, 40), fit=True)
            return
        held_out = Case.of(whole.part("bunny, held out", lambda second: second >= HALF_SECONDS), encoder)
        table(Case.of(whole, encoder), (20, 40, 80))
        table(training, (10, 20, 40))
        table(held_out, (10, 20, 40))
        calibration(held_out, (10, 20, 40), fit=False)
    for name, film in (("world", drawn_world), ("composed", composed_cast)):
        if name in given.films:
            table(Case.of(film(), encoder), (20, 40, 80))


if __name__ == "__main__":
    main()
