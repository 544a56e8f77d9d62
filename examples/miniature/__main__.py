"""World in miniature: a drawn world meant for two cores, step by step.

    python -m examples.miniature all --out miniature      every step below, in order
    python -m examples.miniature data --out miniature     one step; it needs those before it

    data            films of the drawn world through the ordinary pipeline       OUT/films OUT/dataset OUT/unseen ...
    image-encoder   untrained checkpoint of size mini, its image encoder trained on frames against captions
                                                                                 OUT/start OUT/image_encoder
    autoencoder     its autoencoder fitted to the clips                          OUT/autoencoder
    judge           network that names who, where and what in clips              OUT/judge
    model           the three phases of training                                 OUT/model
    claims          games along held-out stories, named by the judge             OUT/claims
    drift           games of 50 turns                                            OUT/drift
    tables          all figures of claims and drift, as tables                   OUT/tables.md

    variants        six ablations and GC in few steps, two more seeds, or those that --only names; then run claims,
                    drift and tables again                                       OUT/variants
    real-film       the steps from data to model on the labelled clips of Big Buck Bunny         OUT/real-film
    pack            the model in half precision into the package: `animegamer play` without a checkpoint
    unpack          package's model, to be measured without the steps autoencoder and model                 OUT/unpacked
    strip           eight turns of a game by the packed model, as a picture     OUT/strip.png

A step that is done does nothing, and one that was killed resumes when the same command is given again. OUT/dataset is
an ordinary data set: `animegamer status`, `play` and `train` take it like any other. OUT/unseen holds clips of pairs of
character, motion and place that are never together in OUT/dataset; OUT/judging holds more of them, for the judge alone.
OUT/more is more of the kind of OUT/dataset, all to train.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from flows.console.display import TrainBars
from flows.console.progress import Bars
from flows.console.terminal import say
from pipeline.core.errors import UserError


def data(out: Path) -> None:
    """Compose the films and build their data sets."""
    from examples.miniature.dataset import build_datasets, films_of_the_world

    with Bars().watching():
        build_datasets(out, films_of_the_world())


def image_encoder(out: Path) -> None:
    """Train the image encoder."""
    from examples.miniature.image_encoder import train_image_encoder

    train_image_encoder(out)


def autoencoder(out: Path) -> None:
    """Fit the autoencoder."""
    from examples.miniature.autoencoder import train_autoencoder

    train_autoencoder(out)


def judge(out: Path) -> None:
    """Train the judge network."""
    from examples.miniature.measured.judge import train_judge

    bars = TrainBars()
    with bars.shown():
        train_judge(out, watch=bars.step)


def model(out: Path) -> None:
    """Train shots, game and adaptation."""
    from examples.miniature.model_runs import train_model

    train_model(out)


def variants(out: Path, only: Collection[str] = ()) -> None:
    """Train variants of the model."""
    from examples.miniature.model_runs import train_variants

    train_variants(out, only)


def claims(out: Path) -> None:
    """Measure games of the trained models."""
    from examples.miniature.measured.claims import measure_claims

    with Bars().watching():
        measure_claims(out)


def drift(out: Path) -> None:
    """Measure games of 50 turns."""
    from examples.miniature.measured.drift import measure_drift

    with Bars().watching():
        measure_drift(out)


def tables(out: Path) -> None:
    """Write the figures as tables."""
    from examples.miniature.measured.tables import write_tables

    say(f"the figures are in {write_tables(out)}")


def real_film(out: Path) -> None:
    """Train on the clips of Big Buck Bunny, and measure what is learned by heart."""
    from examples.miniature.real_film import train_on_film

    train_on_film(out)


def pack(out: Path) -> None:
    """Write the model into the package."""
    from examples.miniature.package import pack_model

    pack_model(out)


def unpack(out: Path) -> None:
    """Take the model of the package for the trained one."""
    from examples.miniature.package import unpack_model

    unpack_model(out)


def strip(out: Path) -> None:
    """Draw a game of the packed model."""
    from examples.miniature.strip import draw_strip

    draw_strip(out)


STEPS: dict[str, Callable[[Path], None]] = {
    "data": data,
    "image-encoder": image_encoder,
    "autoencoder": autoencoder,
    "judge": judge,
    "model": model,
    "claims": claims,
    "drift": drift,
    "tables": tables,
}
"""Steps in order. Each imports its own module: `--help` and `data` work without torch."""
APART: dict[str, Callable[[Path], None]] = {
    "variants": variants,
    "real-film": real_film,
    "pack": pack,
    "unpack": unpack,
    "strip": strip,
}
"""Steps that `all` leaves out: hours more, or the package's own."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.miniature",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("step", choices=[*STEPS, "all", *APART], help="step to run")
    parser.add_argument("--out", type=Path, default=Path("miniature"), help="folder for everything")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="of `variants`: those of these names")
    asked = parser.parse_args()
    if asked.only and asked.step != "variants":
        parser.error(f"--only chooses among `variants`, `{asked.step}` has nothing to choose from")
    steps = STEPS | APART | {"variants": partial(variants, only=asked.only)}
    for name in STEPS if asked.step == "all" else [asked.step]:
        started, spent = time.monotonic(), _cpu_seconds()
        try:
            steps[name](asked.out)
        except UserError as error:
            raise SystemExit(str(error)) from error
        say(f"{name}: {time.monotonic() - started:.0f} s, {_cpu_seconds() - spent:.0f} CPU seconds")


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its finished children."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    main()
