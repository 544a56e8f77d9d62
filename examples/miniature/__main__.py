"""World in miniature: a drawn world meant for two cores, step by step.

    python -m examples.miniature all --out miniature      every step below, in order
    python -m examples.miniature data --out miniature     one step; it needs those before it

    data               films of the drawn world through the ordinary pipeline       OUT/films OUT/dataset OUT/unseen ...
    image-encoder      untrained checkpoint of size mini, its image encoder trained on frames against captions
                                                                                    OUT/start OUT/image_encoder
    clip               text encoder for the image encoder: a CLIP that measures games                      OUT/clip
    autoencoder        its autoencoder fitted to the clips                          OUT/autoencoder
    autoencoder-more   the rest of that fit                                         OUT/autoencoder/more
    sharpness          PSNR of reconstructions, of what stands still and of what moves             OUT/sharpness.json
    recogniser         network that names who, where and what in clips              OUT/recogniser
    features           all clips encoded for training                               OUT/features
    joint              shot encoder and shot decoder                                OUT/model/joint
    game               game model                                                   OUT/model/game
    adapt              shot decoder on the game model's predictions                 OUT/model/adapt
    distill            shot decoder that draws in four steps without guidance       OUT/model/guide OUT/model/distill
    claims             games along held-out stories, named by the recogniser        OUT/claims
    drift              games of 50 turns                                            OUT/drift
    tables             all figures of claims and drift, as tables                   OUT/tables.md

    facts              what the stories tell by accident, and how often the past tells what a turn must show
    variants           six ablations and GC in few steps, `research`, two more seeds, or those that --only names; then
                       run claims, drift and tables again                           OUT/variants
    real-film          the steps from data to adapt on the labelled clips of Big Buck Bunny         OUT/real-film
    keep               the finished networks in half precision into the repository: `restore` starts the next step from
                       them in another OUT, without the run states
    restore            the kept networks as results of the steps that trained them
    pack               the model in half precision into the package: `animegamer play` without a checkpoint; CLIP and
                       recogniser beside it, for `make demo-eval`
    unpack             package's model, to be measured without the steps from autoencoder to adapt      OUT/unpacked
    uniform            60 turns drawn from the buttons at random, by the packed model   OUT/uniform.png OUT/uniform.json
    strip              eight turns of a game by the packed model, as a picture      OUT/strip.png

A finished step does nothing, and a killed step resumes when the same command is given again. No step of the first
table takes over two hours on two cores that are fast in bfloat16; `timeout 2h` before a command ends it, and saves its
state. OUT/dataset is an ordinary dataset: `animegamer status`, `play` and `train` take it like any other. OUT/more is
more of its kind, all to train. OUT/any-pairs is more with all pairs of character, motion and place; the other two have
no held-out pairs, and every scene of OUT/unseen has one. The model learns from the first three; the variant
`research` leaves OUT/any-pairs out.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from flows.console.progress import Bars, TrainBars
from flows.console.terminal import say
from pipeline.core.errors import UserError

STEPS: Mapping[str, int] = {
    "data": 30,
    "image-encoder": 10,
    "clip": 2,
    "autoencoder": 60,
    "autoencoder-more": 90,
    "sharpness": 3,
    "recogniser": 40,
    "features": 20,
    "joint": 75,
    "game": 55,
    "adapt": 85,
    "distill": 40,
    "claims": 60,
    "drift": 15,
    "tables": 0,
}
"""Steps with their minutes on two cores that are fast in bfloat16, estimated."""
APART = ("facts", "variants", "real-film", "keep", "restore", "pack", "unpack", "strip", "uniform")
"""Steps that `all` leaves out: hours more, or those on files of the repository."""


def run_step(step: str, out: Path, only: Collection[str] = ()) -> None:
    """Run a step. Each imports its own modules, so that `--help` and `data` work without torch."""
    match step:
        case "data":
            from examples.miniature.dataset import build_datasets, films_of_the_world

            build_datasets(out, films_of_the_world())
        case "facts":
            from examples.miniature.dataset import TRAINED, films_of_the_world
            from examples.miniature.facts import say_facts

            films = films_of_the_world()
            say_facts([scene for name in TRAINED for film in films[name] for scene in film.scenes])
        case "image-encoder":
            from examples.miniature.encoders import train_image_encoder

            with (bars := TrainBars()).shown():
                train_image_encoder(out, watch=bars.step)
        case "clip":
            from examples.miniature.clip import train_clip

            train_clip(out)
        case "autoencoder" | "autoencoder-more":
            from examples.miniature.encoders import train_autoencoder, train_autoencoder_more

            with (bars := TrainBars()).shown():
                (train_autoencoder if step == "autoencoder" else train_autoencoder_more)(out, watch=bars.step)
        case "sharpness":
            from examples.miniature.sharpness import measure_sharpness

            measure_sharpness(out)
        case "recogniser":
            from examples.miniature.recogniser import train_recogniser

            with (bars := TrainBars()).shown():
                train_recogniser(out, watch=bars.step)
        case "features" | "joint" | "game" | "adapt" | "distill":
            from examples.miniature.model_runs import train_model

            train_model(out, "shot" if step == "joint" else step)
        case "variants":
            from examples.miniature.model_runs import train_variants

            train_variants(out, only)
        case "claims" | "drift":
            from examples.miniature.claims import measure_claims, measure_drift

            (measure_claims if step == "claims" else measure_drift)(out)
        case "tables":
            from examples.miniature.tables import write_tables

            say(f"the figures are in {write_tables(out)}")
        case "real-film":
            from examples.miniature.real_film import train_on_film

            train_on_film(out)
        case "strip":
            from examples.miniature.package import draw_strip

            draw_strip(out)
        case "uniform":
            from examples.miniature.uniform import play_uniformly

            play_uniformly(out)
        case _:
            from examples.miniature import package

            on_files: Mapping[str, Callable[[Path], None]] = {
                "keep": package.keep_networks,
                "restore": package.restore_networks,
                "pack": package.pack_networks,
                "unpack": package.unpack_model,
            }
            on_files[step](out)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.miniature", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=[*STEPS, "all", *APART], help="step to run")
    parser.add_argument("--out", type=Path, default=Path("miniature"), help="folder for everything")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="names of the `variants` to train")
    asked = parser.parse_args()
    if asked.only and asked.step != "variants":
        parser.error(f"--only chooses among `variants`, `{asked.step}` has nothing to choose from")
    steps = [*STEPS] if asked.step == "all" else [asked.step]
    for name in steps:
        if name in STEPS:
            say(f"{name}: about {STEPS[name]} minutes on two cores")
    if asked.step == "all":
        say(f"in all about {sum(STEPS.values()) / 60:.0f} hours")
    for name in steps:
        started, spent = time.monotonic(), _cpu_seconds()
        try:
            with Bars().watching():
                run_step(name, asked.out, asked.only)
        except UserError as error:
            raise SystemExit(str(error)) from error
        say(f"{name}: {time.monotonic() - started:.0f} s, {_cpu_seconds() - spent:.0f} CPU seconds")


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its finished children."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    main()
