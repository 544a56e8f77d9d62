"""Real-film step: the steps of the miniature on the labelled clips of Big Buck Bunny, and what is memorised.

OUT/real-film/dataset              the whole film in clips of the size that `mini` draws
OUT/real-film/start, ...           its own image encoder, autoencoder and model, by the same steps; the model has the
                                   steps of the short variants, since the film has few clips
OUT/real-film/drawn/sheet.png      eight clips as the autoencoder reconstructs them, the first four of the training
                                   data, each above what is drawn for its instruction in a game along the film
OUT/real-film/drawn/clips.mp4      the same, moving
OUT/real-film/memorised.json        how near drawn clips are to their own, and to clips of the training data

A training clip counts as memorised if its drawn version is nearest to itself among all training clips. A held-out clip
counts as memorised if its drawn version is nearer to some training clip than to itself. Nearness is a small squared
difference of latents. Each share is compared with exchanged drawings, because a drawing unlike the whole film is nearer
to some training clip, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from examples.bunny.cast import fetch_cast
from examples.bunny.film import fetch_bunny
from examples.commands import run_command
from examples.miniature.claims import MAIN, SHORT
from examples.miniature.encoders import train_autoencoder, train_autoencoder_more, train_image_encoder
from examples.miniature.model_runs import Variant, train_model
from flows.console.progress import Bars
from flows.console.terminal import say
from models.checkpoint import Checkpoint
from models.engine import Engine
from models.engine_options import EngineOptions
from models.frames import encode_frames
from models.turns import GameState, turn_seed
from pipeline.core.atomic import write_json
from pipeline.core.ingredients import ResultNotes
from pipeline.core.progress import watched
from pipeline.publish.samples import SPLITS, Split
from training.data.order import spread
from training.data.shards import open_shards
from training.data.turns import read_turns
from training.phases.autoencoder import psnr, reconstructed
from training.pictures import Comparison, save_comparisons

CONFIG = Path(__file__).with_suffix(".toml")
_VERSION = 2
"""Version of the measures, raised when they give other figures."""
_OF_SPLIT = 4
"""Clips of each split in the picture."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Clip of the film, and what is drawn for its instruction."""

    instruction: str
    own_THWC: Tensor
    frames_THWC: Tensor


def train_on_film(out: Path) -> None:
    """Build the dataset, train the networks, and measure what is memorised."""
    folder = out / "real-film"
    run_command("build", fetch_bunny(), "--cast", fetch_cast(), "--out", folder / "dataset", "--config", CONFIG)
    train_image_encoder(folder)
    train_autoencoder(folder)
    train_autoencoder_more(folder)
    train_model(folder, variant=Variant(SHORT), data=("dataset",))
    result = folder / MAIN / "adapt" / "result"

    def measured() -> list[Path]:
        engine = Engine.load(result, EngineOptions("cpu", speed="best"))
        with Bars().watching():
            drawn = {split: list(_drawn(engine, folder / "dataset", split)) for split in SPLITS}
        write_json(folder / "memorised.json", memorised(engine, drawn["train"], drawn["val"]))
        shown = [drawn[split][item] for split in SPLITS for item in spread(len(drawn[split]), _OF_SPLIT)]
        own = (reconstructed(engine.autoencoder, each.own_THWC[None])[0].numpy() for each in shown)
        pairs = zip(shown, own, strict=True)
        compared = [Comparison(each.instruction, own_THWC, each.frames_THWC.numpy()) for each, own_THWC in pairs]
        save_comparisons(folder / "drawn", compared)
        return [folder / "memorised.json", folder / "drawn" / "sheet.png"]

    made_from = {"version": _VERSION, "model": Checkpoint.open(result).identity()}
    ResultNotes(folder / "made.json").renew("memorised", made_from, measured)
    figures = json.loads((folder / "memorised.json").read_text())
    say(
        f"real-film: memorised {figures['train, memorised']:.0%} of the training clips"
        f" (by chance {figures['train, memorised by chance']:.0%}), {figures['val, memorised']:.0%} of held-out ones"
        f" ({figures['val, memorised by chance']:.0%}); {folder / 'drawn' / 'sheet.png'}"
    )


def _drawn(engine: Engine, dataset: Path, split: Split) -> Iterator[Drawn]:
    """Play the clips of a split in order, as one game."""
    turns = [packed for packed in read_turns(open_shards(dataset, split)) if packed.turn.instruction]
    state, shape = GameState(), engine.config.shot_decoder
    with watched("Big Buck Bunny", f"play {split}") as watch:
        for number, packed in enumerate(turns):
            watch(number, len(turns))
            instruction = packed.turn.instruction
            made, state = engine.next_turn(state, instruction, turn_seed(0, number + 1))
            own_THWC = packed.frames(shape.height, shape.width, shape.frames)
            yield Drawn(instruction, own_THWC, torch.from_numpy(made.frames_THWC))


def memorised(engine: Engine, shown: Sequence[Drawn], held_out: Sequence[Drawn]) -> dict[str, float]:
    """Return shares of clips memorised, and PSNR in dB of reconstructed and of drawn clips to their own.

    Exchanging the drawn clips gives the shares by chance.
    """
    figures: dict[str, float] = {}
    drawn: dict[Split, Sequence[Drawn]] = {"train": shown, "val": held_out}
    latents = {split: _latents(engine, [each.own_THWC for each in clips]) for split, clips in drawn.items()}
    for split, clips in drawn.items():
        own_NTHWC = torch.stack([each.own_THWC for each in clips])
        drawn_NTHWC = torch.stack([each.frames_THWC for each in clips])
        drawn_NF = _latents(engine, list(drawn_NTHWC))
        exchanged_NF = drawn_NF.roll(-(len(clips) // 2), 0)  # by half of the clips: neighbours are alike
        figures |= {
            f"{split}, clips": len(clips),
            f"{split}, memorised": _learned(split, drawn_NF, latents),
            f"{split}, memorised by chance": _learned(split, exchanged_NF, latents),
            f"{split}, reconstructed, dB": float(psnr(own_NTHWC, reconstructed(engine.autoencoder, own_NTHWC)).mean()),
            f"{split}, drawn, dB": float(psnr(own_NTHWC, drawn_NTHWC).mean()),
        }
    return figures


def _learned(split: Split, drawn_NF: Tensor, latents: dict[Split, Tensor]) -> float:
    """Return the share memorised of drawn clips, given the latents of the recorded ones in the same order."""
    nearest = torch.cdist(drawn_NF, latents["train"]).min(dim=1)
    if split == "train":
        return fmean(map(float, nearest.indices == torch.arange(len(drawn_NF))))
    return fmean(map(float, nearest.values < (drawn_NF - latents[split]).norm(dim=1)))


def _latents(engine: Engine, clips: Sequence[Tensor]) -> Tensor:
    """Return the mean latents of clips as vectors [N, F]; two at once, since torch is slow with one on a CPU."""
    pairs = (torch.stack(list(clips[start : start + 2])) for start in range(0, len(clips), 2))
    return torch.cat([encode_frames(engine.autoencoder, pair).mean_BTCHW.flatten(1) for pair in pairs])
