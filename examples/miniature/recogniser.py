"""Recogniser step: the network trained on drawn clips, and its accuracy on held-out clips and on unseen pairs.

It learns from all training data, as the model of the package does: without clips of held-out pairs, it named the wrong
motion in four of five of them. It also learns from every second clip as the autoencoder reconstructs it, at the size of
the model. Motion is blurred there, and a recogniser of sharp clips alone mistook half of the motions.

OUT/recogniser/result                  the network
OUT/recogniser/accuracy.json           share of clips named correctly, by dataset and field: the margin of all its
                                       figures; and of the clips whose scenes look like none it learned from
OUT/recogniser/reconstructions.json    PSNR of reconstructions, and share of them named as their originals
OUT/recogniser/curve.jsonl             its learning curve: accuracy on held-out clips over CPU seconds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from examples.miniature.dataset import TRAINED
from examples.miniature.encoders import FITTED, LearningCurve
from examples.miniature.games import SETS
from examples.miniature.recogniser_network import HEIGHT, LABELS, ONE_OF, WIDTH, Field, Recogniser, loss_of, seen_acting
from examples.miniature.truth import SceneFacts, Truths
from flows.console.terminal import say
from models.acceleration import arrange
from models.checkpoint import Checkpoint
from models.prompt_batch import TensorBatch
from pipeline.core.atomic import write_json
from pipeline.core.progress import watched
from pipeline.publish.samples import Split
from training.config import LoopSettings
from training.data.order import Position
from training.data.shards import open_shards
from training.data.turns import Catalog, fingerprint_of, read_turns, scaled
from training.phase import ALONE, Share
from training.phase_folder import check_made_from, note_made_from
from training.phases.autoencoder import psnr, read_frames, reconstructed
from training.processes import frozen_dtype, new_accelerator
from training.trainer import StepWatcher, Trainer

LOOP = LoopSettings(
    steps=3000, batch_size=16, micro_batch=16, learning_rate=2e-3, rate_warm_up=50, ema_decay=0.99,
    save_every=250, validate_every=250,
)  # fmt: skip
_AT_ONCE = 16
_BACK_OF = 2
"""One clip in so many is learned from its reconstruction too."""


@dataclass(frozen=True, eq=False)
class LabelledClips(TensorBatch):
    """Clips with their truth: a batch, or all clips of a split."""

    frames_BTHWC: Tensor
    """uint8 RGB."""
    truth: Mapping[Field, Tensor]
    """For a field with one correct label, its number [B]; otherwise 1, 0 or (unknown) -1 for each label [B, K]."""

    def __len__(self) -> int:
        return len(self.frames_BTHWC)

    def __getitem__(self, place: Position) -> int:
        """Return the number of a clip."""
        return place.item

    def some(self, numbers: Sequence[int]) -> LabelledClips:
        """Return some of the clips."""
        chosen = torch.tensor(numbers)
        return LabelledClips(self.frames_BTHWC[chosen], {field: rows[chosen] for field, rows in self.truth.items()})


class _Loss(nn.Module):
    """Recogniser with its loss."""

    def __init__(self, recogniser: Recogniser) -> None:
        super().__init__()
        self.recogniser = recogniser

    def forward(self, batch: LabelledClips) -> dict[str, Tensor]:
        return loss_of(self.recogniser(batch.frames_BTHWC), batch.truth)


@dataclass(eq=False)
class RecogniserPhase:
    """Training of the recogniser."""

    network: _Loss
    examples: LabelledClips
    held_out: LabelledClips
    name: str = "recogniser"
    units: Sequence[str] = ()
    varied: bool = False

    def size_of(self, _example: int) -> int:
        """Return 1: all clips are of one size."""
        return 1

    def collate(self, examples: Sequence[int]) -> LabelledClips:
        """Collate clips by their numbers."""
        return self.examples.some(examples)

    def validate(
        self,
        network: nn.Module,  # noqa: ARG002  # the recogniser inside is the one prepared
        device: torch.device,  # noqa: ARG002
        pictures: Path | None,  # noqa: ARG002
        share: Share = ALONE,  # noqa: ARG002  # a few hundred clips
    ) -> dict[str, float]:
        """Return the accuracy on held-out clips by field."""
        return accuracy(self.network.recogniser, self.held_out)

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write the recogniser."""
        self.network.recogniser.save(folder, {name.removeprefix("recogniser."): value for name, value in state.items()})


def train_recogniser(out: Path, loop: LoopSettings = LOOP, watch: StepWatcher | None = None) -> Recogniser:
    """Train the recogniser on the training split and measure it; a repeated call resumes it, or does nothing."""
    folder, truths = out / "recogniser", Truths.read(out)
    settings = loop.model_dump(exclude=loop.unset_later_keys())
    learned: list[tuple[Path, Split]] = [(out / name, "train") for name in TRAINED]
    data = [fingerprint_of(open_shards(source, split)) for source, split in learned]
    fitted = Checkpoint.open(out / FITTED)
    made_from = {"data": data, "settings": settings, "autoencoder": fitted.identity()}
    check_made_from(folder, made_from)
    note_made_from(folder, made_from)
    if not (folder / "accuracy.json").exists():
        torch.manual_seed(loop.seed)
        held_out = _held_out(out, truths, learned)
        if not (folder / "result").exists():
            examples = with_reconstructions(read_labelled(learned, truths), learned, fitted)
            phase = RecogniserPhase(_Loss(Recogniser()), examples, held_out["val"])
            Trainer(phase, loop, folder, new_accelerator("auto")).run(LearningCurve(folder / "curve.jsonl", watch))
            del examples, phase  # gigabytes
        recogniser = Recogniser.open(folder / "result")
        found = {name: {"clips": len(clips), **accuracy(recogniser, clips)} for name, clips in held_out.items()}
        for name, shares in found.items():
            say(f"recogniser, {name}: " + ", ".join(f"{field} {shares[field]:.1%}" for field in LABELS))
        back = measure_reconstructions(out, fitted, recogniser)
        for name, each in back.items():
            say(f"recogniser, {name}, reconstructed: {each['psnr']:.1f} dB, {each['named']:.1%} named as the originals")
        write_json(folder / "reconstructions.json", back)
        write_json(folder / "accuracy.json", found)
    return Recogniser.open(folder / "result")


def _held_out(out: Path, truths: Truths, learned: Sequence[tuple[Path, Split]]) -> dict[str, LabelledClips]:
    """Return the held-out clips by dataset, and for each the clips whose scenes look like no training scene."""
    looks, found = truths.looks_in(learned), {}
    for name, source, split in SETS:
        found[name] = read_labelled([(out / source, split)], truths)
        turns = Catalog.read(open_shards(out / source, split)).turns
        new = [number for number, turn in enumerate(turns) if truths.of(turn.sample).look not in looks]
        if new:
            found[f"{name}, new scenes"] = found[name].some(new)
    return found


def read_labelled(sources: Sequence[tuple[Path, Split]], truths: Truths) -> LabelledClips:
    """Read all clips of splits of datasets at the recogniser's size, with their truth."""
    shards = [shard for source, split in sources for shard in open_shards(source, split)]
    rows, frames_NTHWC = [], torch.empty(0, dtype=torch.uint8)
    for number, packed in enumerate(read_turns(shards)):
        frames_THWC = packed.frames(HEIGHT, WIDTH, packed.turn.sample.frames)
        if not number:  # gigabytes: in a list, they would take their space twice
            frames_NTHWC = frames_THWC.new_empty(sum(shard.entry.samples for shard in shards), *frames_THWC.shape)
        frames_NTHWC[number] = frames_THWC
        rows.append(labels_of(truths.of(packed.turn.sample)))
    return LabelledClips(frames_NTHWC, {field: torch.stack([row[field] for row in rows]) for field in LABELS})


def with_reconstructions(
    clips: LabelledClips, sources: Sequence[tuple[Path, Split]], checkpoint: Checkpoint
) -> LabelledClips:
    """Return the clips, and every second one again as a checkpoint's autoencoder reconstructs it.

    Args:
        sources: datasets and splits that the clips are from.
    """
    autoencoder = checkpoint.autoencoder(dtype=frozen_dtype("auto"))
    arrange(autoencoder, autoencoder.dtype)
    shape, chosen, some = checkpoint.config.shot_decoder, range(0, len(clips), _BACK_OF), list[Tensor]()
    every = (turn for source, split in sources for turn in read_turns(open_shards(source, split)))
    packed = islice(every, 0, None, _BACK_OF)
    with watched("recogniser", "reconstruct") as watch:
        while turns := list(islice(packed, _AT_ONCE)):
            frames = [turn.frames(shape.height, shape.width, shape.frames) for turn in turns]
            back_BTHWC = reconstructed(autoencoder, torch.stack(frames))
            small_NHWC = scaled(back_BTHWC.flatten(0, 1), HEIGHT, WIDTH)
            some.append(small_NHWC.reshape(*back_BTHWC.shape[:2], HEIGHT, WIDTH, 3))
            watch(sum(map(len, some)), len(chosen))
    return LabelledClips(
        torch.cat([clips.frames_BTHWC, *some]),
        {field: torch.cat([rows, rows[chosen]]) for field, rows in clips.truth.items()},
    )


def labels_of(facts: SceneFacts) -> dict[Field, Tensor]:
    """Return the labels of a clip, as in `LabelledClips.truth`."""
    coats = [float(name in facts.raincoats) for name in LABELS["raincoats"]]
    if not facts.coats_last:
        coats[LABELS["raincoats"].index(facts.actor)] = -1.0
    return {
        "who": torch.tensor([float(name in facts.characters) for name in LABELS["who"]]),
        "raincoats": torch.tensor(coats),
        "where": torch.tensor(LABELS["where"].index(facts.place)),
        "night": torch.tensor([float(facts.time_of_day == "night")]),
        "flag": torch.tensor([-1.0 if facts.shows_flag is None else float(facts.shows_flag)]),
        "what": torch.tensor(LABELS["what"].index(facts.motion)),
        "actor": torch.tensor(LABELS["actor"].index(facts.actor)),
    }


@torch.no_grad()
def accuracy(recogniser: Recogniser, clips: LabelledClips) -> dict[str, float]:
    """Return by field the share of clips whose labels are correct; unknown labels do not count."""
    recogniser.eval()
    device = next(recogniser.parameters()).device
    right: dict[str, list[Tensor]] = {field: [] for field in LABELS}
    for start in range(0, len(clips), _AT_ONCE):
        part = clips.some(range(start, min(start + _AT_ONCE, len(clips))))
        for field, logits_BK in seen_acting(recogniser(part.frames_BTHWC.to(device))).items():
            truth = part.truth[field].to(device)
            if field in ONE_OF:
                right[field].append(logits_BK.argmax(dim=1) == truth)
            else:
                right[field].append((((logits_BK > 0) == (truth > 0)) | (truth < 0)).all(dim=1))
    return {field: float(torch.cat(rows).float().mean()) for field, rows in right.items()}


def measure_reconstructions(
    out: Path, checkpoint: Checkpoint, recogniser: Recogniser
) -> Mapping[str, Mapping[str, Any]]:
    """Return by dataset the PSNR in dB, and by field the share of clips that get the same labels as the original.

    `named` is the share of clips with the same labels in all fields.
    """
    autoencoder = checkpoint.autoencoder()
    found: dict[str, dict[str, Any]] = {}
    for name, data, split in SETS:
        clips_NTHWC = read_frames(out / data, split, checkpoint.config, most=10_000)
        back_NTHWC = reconstructed(autoencoder, clips_NTHWC)
        pairs = list(zip(recogniser.name(clips_NTHWC), recogniser.name(back_NTHWC), strict=True))
        alike: dict[str, float] = {
            field: sum(getattr(a, field) == getattr(b, field) for a, b in pairs) / len(pairs) for field in LABELS
        }
        found[name] = {
            "clips": len(clips_NTHWC),
            "psnr": float(psnr(clips_NTHWC, back_NTHWC).mean()),
            "named": sum(a == b for a, b in pairs) / len(pairs),
            **alike,
        }
    return found
