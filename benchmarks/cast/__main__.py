"""Benchmark of carried characters: exact sets and micro-F1 after 20, 40 and 80 reviews, beside two baselines.

python -m benchmarks.cast --dataset data/                       Big Buck Bunny, built; drawn films are drawn
python -m benchmarks.cast --dataset data/ --curve risk.png      risk against coverage too
python -m benchmarks.cast --dataset data/ --named               characters that were named on the cast page
python -m benchmarks.cast --dataset data/ --fit                 confidence, fitted to the training half
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.cast.films import HALF_SECONDS, FilmClips, bunny, composed_cast, drawn_world, labels
from pipeline.core.records import Clip
from pipeline.core.store import Dataset
from pipeline.reviews.applied import load_reviews
from pipeline.reviews.carry import Guess, Likeness, carry, most_telling
from pipeline.reviews.decisions import REVIEW_FILE
from pipeline.reviews.intervals import wilson
from pipeline.stages.embedding.network_files import OWN, find_network
from pipeline.stages.embedding.networks import OnnxPictureEncoder

DRAWS, ROUND = 50, 20
"""Random draws of reviewed clips, and reviews after which the page is loaded again."""
RULES = "carried", "time", "histogram"
Rows = Sequence[int]
_HALVES: dict[str, Callable[[float], bool]] = {
    "whole film": lambda _: True,
    "first half": lambda second: second < HALF_SECONDS,
    "held-out half": lambda second: second >= HALF_SECONDS,
}


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

    def scores(self, chosen: Sequence[Rows], rule: str) -> list[Score]:
        """Score a rule for each choice of reviewed clips."""
        guessed = {"carried": self.guessed}.get(rule, lambda rows: self.nearest(rows, rule))
        return [Score.of(self.film, rows, guessed(rows)) for rows in chosen]

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

    right: NDArray[np.float64]
    """1 for each guess of exactly the right characters, the surest first, else 0."""
    micro_f1: float
    """Of names."""
    seen: float
    """Exact among clips of scenes with a reviewed clip; `unseen` likewise without."""
    unseen: float
    actor: float

    @classmethod
    def of(cls, film: FilmClips, reviewed: Rows, guesses: dict[int, Guess]) -> Score:
        """Score guesses."""
        rows = sorted(guesses, key=lambda row: -guesses[row].confidence)
        right, micro_f1 = agreement([(guesses[row].characters, film.truth[row].characters) for row in rows])
        scenes = {film.scenes[row] for row in reviewed}
        in_seen = np.array([film.scenes[row] in scenes for row in rows])
        return cls(
            right,
            micro_f1,
            _mean(right[in_seen]),
            _mean(right[~in_seen]),
            _mean(np.array([guesses[row].actor == film.truth[row].actor for row in rows], float)),
        )

    @property
    def exact(self) -> float:
        """Share of exactly right guesses."""
        return _mean(self.right)

    @property
    def half(self) -> float:
        """The same of the surest half."""
        return _mean(self.right[: max(1, round(len(self.right) / 2))])


def agreement(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> tuple[NDArray[np.float64], float]:
    """Return 1 for each pair of equal sets of names, else 0, and the micro-F1 of names."""
    right = np.array([set(said) == set(true) for said, true in pairs], float)
    both = sum(len({*said} & {*true}) for said, true in pairs)
    return right, 2 * both / max(sum(len({*said}) + len({*true}) for said, true in pairs), 1)


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def orders(case: Case, count: int) -> dict[str, list[list[int]]]:
    """Return reviewed clips: random draws, the same ones at each run; evenly spaced ones; the first of the page."""
    clips = len(case.film.truth)
    random = [sorted(np.random.default_rng(seed).choice(clips, count, replace=False).tolist()) for seed in range(DRAWS)]
    spaced = np.unique(np.linspace(0, clips - 1, count).round().astype(int)).tolist()
    return {"random": random, "spaced": [spaced], "page": [case.proposed(count)]}


def table(case: Case, counts: Sequence[int]) -> None:
    """Print a row for each number of reviews and way of choosing them."""
    print(f"\n{case.film.name}: {len(case.film.truth)} clips, {len(set(case.film.scenes))} scenes\n")
    baselines = " | ".join(f"{rule}: exact, half, F1" for rule in RULES[1:])
    print(f"| reviewed | exact | interval | F1 | scene seen, not | surest half | actor | {baselines} |")
    print("|---|---:|---|---:|---|---:|---:|---|---|")
    for count in counts:
        for order, chosen in orders(case, count).items():
            _row(f"{count} {order}", *(case.scores(chosen, rule) for rule in RULES))


def _row(reviewed: str, carried: Sequence[Score], *baselines: Sequence[Score]) -> None:
    exact = [score.exact for score in carried]
    low, high = np.percentile(exact, [2.5, 97.5]) if len(exact) > 1 else wilson(exact[0], len(carried[0].right))
    values = [
        reviewed,
        f"{np.mean(exact):.1%}",
        f"{low:.0%} to {high:.0%}",
        f"{_of(carried, 'micro_f1'):.2f}",
        f"{_of(carried, 'seen'):.0%}, {_of(carried, 'unseen'):.0%}",
        *(f"{_of(carried, name):.0%}" for name in ("half", "actor")),
        *(f"{_of(one, 'exact'):.1%}, {_of(one, 'half'):.0%}, {_of(one, 'micro_f1'):.2f}" for one in baselines),
    ]
    print(f"| {' | '.join(values)} |", flush=True)


def _of(scores: Sequence[Score], name: str) -> float:
    return float(np.nanmean([getattr(score, name) for score in scores]))


def named(dataset: Dataset) -> None:
    """Print how the reviewed characters of a dataset agree with the labels of the clips that overlap them most."""
    (folder,) = dataset.folders()
    clips = folder.read("clips", Clip)
    reviews = load_reviews(dataset, dataset.root / REVIEW_FILE).standings
    pairs: list[tuple[float, tuple[Sequence[str], Sequence[str]]]] = []
    for (start, end), fields in sorted(labels().items()):
        best = max(clips, key=lambda clip: min(end, clip.end_seconds) - max(start, clip.start_seconds))
        said = reviews.get(best.clip_id, {}).get("characters")
        if said and best.start_seconds < end and best.end_seconds > start:
            pairs.append(((start + end) / 2, (said.value, fields["characters"])))  # type: ignore[arg-type]
    print("| | spans with a clip | exact | micro-F1 |\n|---|---:|---:|---:|")
    for name, is_in in _HALVES.items():
        right, micro_f1 = agreement([pair for middle, pair in pairs if is_in(middle)])
        print(f"| {name} | {len(right)} | {_mean(right):.1%} | {micro_f1:.2f} |")


def draw_risk(path: Path, cases: Sequence[tuple[str, Case, int]]) -> None:
    """Draw the share of wrong guesses against the share of clips that are guessed, the surest first.

    Args:
        path: picture to write.
        cases: title, film and number of reviews of each panel.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, (title, case, count) in zip(figure.subplots(1, len(cases), sharey=True), cases, strict=True):
        chosen = orders(case, count)
        for rule, colour in zip(RULES, ("tab:blue", "tab:orange", "tab:green"), strict=True):
            for order, line in (("page", "-"), ("random", ":")):
                right = np.array([score.right for score in case.scores(chosen[order], rule)]).mean(axis=0)
                guessed = np.arange(1, len(right) + 1)
                wrong = 1 - right.cumsum() / guessed
                few = len(right) // 20  # the first ones say little
                axes.plot(guessed[few:] / len(right), wrong[few:], line, color=colour, label=f"{rule}, {order}")
        axes.set(title=title, xlabel="share of the other clips, surest first", xlim=(0, 1), ylim=(0, 0.5))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("wrong")
    figure.axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=100)


def calibration(case: Case, counts: Sequence[int], *, fit: bool) -> None:
    """Print how often guesses of a confidence are right; with `fit`, the slope and shift that suit their odds."""
    found = [
        (guess.confidence, set(guess.characters) == set(case.film.truth[row].characters))
        for count in counts
        for rows in orders(case, count)["random"]
        for row, guess in case.guessed(rows).items()
    ]
    said, right = np.array([one for one, _ in found]), np.array([one for _, one in found], float)
    print("\n| confidence | share of guesses | right |\n|---|---:|---:|")
    for low, high in ((0, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 0.9), (0.9, 1.01)):
        inside = (said >= low) & (said < high)
        print(f"| {low:.0%} to {min(high, 1):.0%} | {inside.mean():.0%} | {_mean(right[inside]):.0%} |")
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
    options.add_argument("--curve", type=Path, help="picture of wrong guesses against clips guessed, of Big Buck Bunny")
    options.add_argument("--films", nargs="+", default=["bunny", "world", "composed"])
    options.add_argument("--named", action="store_true", help="score the characters that the cast page wrote")
    given = options.parse_args()
    if given.named:
        named(Dataset(given.dataset))
        return
    encoder = OnnxPictureEncoder(find_network(given.network, "pictures", fetch=True))
    if "bunny" in given.films:
        whole = bunny(Dataset(given.dataset))
        training = Case.of(whole.part("bunny, training half", _HALVES["first half"]), encoder)
        if given.fit:
            calibration(training, (10, 20, 40), fit=True)
            return
        held_out = Case.of(whole.part("bunny, held out", _HALVES["held-out half"]), encoder)
        case = Case.of(whole, encoder)
        table(case, (20, 40, 80))
        table(held_out, (10, 20, 40))
        table(training, (10, 20, 40))
        if given.curve:
            draw_risk(given.curve, [("whole film, 40 reviews", case, 40), ("held-out half, 20 reviews", held_out, 20)])
        calibration(held_out, (10, 20, 40), fit=False)
    for name, film in (("world", drawn_world), ("composed", composed_cast)):
        if name in given.films:
            table(Case.of(film(), encoder), (20, 40, 80))


if __name__ == "__main__":
    main()
