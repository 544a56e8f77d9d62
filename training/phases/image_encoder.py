"""Image encoder fit: the CLIP vision encoder of a small checkpoint, trained on frames against their captions.

The published encoder saw two billion pictures with texts, and a random one does not distinguish a character from a
place. This one is trained by the loss of CLIP on random frames of a dataset's clips and their instruction lines. The
text side is a bag of words, which suffices for the captions of a small world. It is discarded after training:

    v = normalize(W h),    u = normalize(mean of e_w over the words w of the caption)
    L = (H(y, softmax_j(s v_i u_j)) + H(y, softmax_i(s v_i u_j))) / 2

with h the normed class token of the encoder, e the word embeddings and s a learned scale. H is the cross-entropy to y,
which is uniform over the captions of the batch with the same words. Held-out frames are measured by retrieval: the
share whose own caption is the nearest of all different captions of the split, or among the nearest five.

    fitted = fit_image_encoder(Checkpoint.open("start"), "demo/dataset", Path("image_encoder"), loop)

Letters of the shapes: N clips, B batch, T frames, H W pixels, C channels (RGB), V words, D joint width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from transformers import CLIPVisionModel

from models.checkpoint import Checkpoint
from models.checkpoint_writer import copy_rest, save_config, within
from models.config import inside_id
from models.hub import load_base, quietly
from models.prompt_batch import TensorBatch
from models.shot_encoder import clip_pixels
from pipeline.core.errors import UserError
from pipeline.publish.samples import Split
from training.config import LoopSettings
from training.data.mixture import Mixture
from training.data.order import Position, generator
from training.data.turns import fingerprint_of, read_turns
from training.phase import ALONE, Share
from training.phase_folder import check_made_from, note_made_from
from training.processes import new_accelerator
from training.trainer import StepWatcher, Trainer

_WIDTH = 128
_FIRST_SCALE = 10.0
_NEAREST = 5
_BATCH_SIZE = 64


@dataclass(frozen=True, eq=False)
class Captioned(TensorBatch):
    """Collated frames with their captions, or all clips of a split."""

    frames_BHWC: Tensor
    """uint8 RGB."""
    words_BV: Tensor
    """Share of each word in the caption: a row sums to 1, or to 0 without a known word."""


@dataclass(frozen=True, eq=False)
class CaptionedClips:
    """Clips of a split in memory; an example is a random frame of a clip with the words of its caption."""

    frames_NTHWC: Tensor
    words_NV: Tensor
    seed: int = 0

    def __len__(self) -> int:
        return len(self.frames_NTHWC)

    def __getitem__(self, position: Position) -> tuple[Tensor, Tensor]:
        """Return a frame [H, W, C] and its words [V]."""
        frame = int(torch.randint(self.frames_NTHWC.shape[1], (), generator=generator(self.seed, position)))
        return self.frames_NTHWC[position.item, frame], self.words_NV[position.item]


class FramesAgainstCaptions(nn.Module):
    """Image encoder and bag of words with their contrastive loss."""

    def __init__(self, encoder: CLIPVisionModel, words: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.projection = nn.Linear(encoder.config.hidden_size, _WIDTH, bias=False)
        self.words_VD = nn.Parameter(torch.randn(words, _WIDTH))
        self.log_scale = nn.Parameter(torch.tensor(_FIRST_SCALE).log())

    def forward(self, batch: Captioned) -> dict[str, Tensor]:
        """Return the loss of each example [B], the mean of frame to caption and caption to frame."""
        logits_BB = self.log_scale.exp() * self.pictures(batch.frames_BHWC) @ self.captions(batch.words_BV).T
        _, caption_B = torch.unique(batch.words_BV, dim=0, return_inverse=True)
        same_BB = caption_B[:, None] == caption_B
        wanted_BB = same_BB / same_BB.sum(dim=1, keepdim=True)
        losses = [functional.cross_entropy(each, wanted_BB, reduction="none") for each in (logits_BB, logits_BB.T)]
        return {"loss": (losses[0] + losses[1]) / 2}

    def pictures(self, frames_BHWC: Tensor) -> Tensor:
        """Return the normalised embeddings of frames [B, D]."""
        pixels_BCHW = clip_pixels(frames_BHWC, self.encoder.config.image_size)
        return functional.normalize(self.projection(self.encoder(pixel_values=pixels_BCHW).pooler_output), dim=-1)

    def captions(self, words_BV: Tensor) -> Tensor:
        """Return the normalised embeddings of captions [B, D]."""
        return functional.normalize(words_BV @ self.words_VD, dim=-1)


@dataclass(eq=False)
class ImageEncoderPhase:
    """Contrastive training of the image encoder."""

    network: FramesAgainstCaptions
    examples: CaptionedClips
    held_out: Captioned | None
    """First frames of the clips of `val`."""
    checkpoint: Checkpoint
    name: str = "image-encoder"
    units: Sequence[str] = ("CLIPEncoderLayer",)
    varied: bool = False

    def size_of(self, _example: tuple[Tensor, Tensor]) -> int:
        """Return 1: all examples are of one size."""
        return 1

    def collate(self, examples: Sequence[tuple[Tensor, Tensor]]) -> Captioned:
        """Collate examples."""
        frames, words = zip(*examples, strict=True)
        return Captioned(torch.stack(frames), torch.stack(words))

    def validate(
        self,
        network: nn.Module,
        device: torch.device,
        pictures: Path | None,  # noqa: ARG002
        share: Share = ALONE,  # noqa: ARG002  # a few hundred frames
    ) -> dict[str, float]:
        """Return the shares of held-out frames whose caption is retrieved. No pictures."""
        inner = network.module if isinstance(network, DistributedDataParallel) else network
        assert isinstance(inner, FramesAgainstCaptions)
        return retrieval(inner, self.held_out.to(device)) if self.held_out else {}

    def export(self, folder: Path, state: Mapping[str, Tensor]) -> None:
        """Write a complete checkpoint: the image encoder in the hub's format, and all other parts."""
        base = inside_id("image_encoder")
        with quietly():
            self.network.encoder.save_pretrained(str(folder / base), state_dict=within(state, "encoder."))
        save_config(folder, self.checkpoint.config)
        copy_rest(self.checkpoint, folder, {base})


@torch.no_grad()
def retrieval(network: FramesAgainstCaptions, held_out: Captioned) -> dict[str, float]:
    """Return the shares of frames whose caption is the nearest and among the nearest five; by chance 1 / captions."""
    captions_MV, own_B = torch.unique(held_out.words_BV, dim=0, return_inverse=True)
    pictures_BD = torch.cat(
        [network.pictures(part_BHWC) for part_BHWC in torch.split(held_out.frames_BHWC, _BATCH_SIZE)]
    )
    order_BM = (pictures_BD @ network.captions(captions_MV).T).argsort(dim=1, descending=True)
    ranks_B = (order_BM == own_B[:, None]).int().argmax(dim=1)
    return {
        "retrieved": float((ranks_B == 0).float().mean()),
        f"retrieved_in_{_NEAREST}": float((ranks_B < _NEAREST).float().mean()),
        "captions": float(len(captions_MV)),
    }


def fit_image_encoder(
    checkpoint: Checkpoint,
    source: str | Path | Mixture,
    folder: Path,
    loop: LoopSettings,
    watch: StepWatcher | None = None,
    *,
    frozen: bool = False,
) -> Checkpoint:
    """Fit the image encoder of a small checkpoint; a repeated call with the same arguments resumes it.

    Args:
        checkpoint: starting checkpoint; it is not changed.
        source: folder or address of a dataset, or several as a mixture.
        folder: folder of the run; the new checkpoint is `folder/result`.
        frozen: train only the two projections, to measure the retrieval by an unchanged encoder.

    Raises:
        UserError: the checkpoint's image encoder is a published one, the folder belongs to another run, or the dataset
            cannot be read.
    """
    data = source if isinstance(source, Mixture) else Mixture.of(source)
    base = checkpoint.base("image_encoder")
    if checkpoint.config.bases["image_encoder"].id != inside_id("image_encoder"):
        raise UserError(f"the image encoder of {checkpoint.folder} is {base.id}, a published one: it needs no fitting")
    _claim(folder, checkpoint, data, loop, frozen=frozen)
    result = folder / "result"
    if not result.exists():
        splits = {split: _read(data, split, checkpoint) for split in data.splits}
        vocabulary = sorted({word for text in splits["train"][1] for word in _words(text)})
        train, *others = (
            CaptionedClips(frames_NTHWC, _bags(captions, vocabulary), loop.seed)
            for frames_NTHWC, captions in splits.values()
        )
        encoder = load_base("image_encoder", CLIPVisionModel, base, torch.float32).requires_grad_(not frozen)
        held_out = Captioned(others[0].frames_NTHWC[:, 0], others[0].words_NV) if others else None
        torch.manual_seed(loop.seed)
        network = FramesAgainstCaptions(encoder, len(vocabulary))
        Trainer(ImageEncoderPhase(network, train, held_out, checkpoint), loop, folder, new_accelerator()).run(watch)
    return Checkpoint.open(result)


def _read(data: Mixture, split: Split, checkpoint: Checkpoint) -> tuple[Tensor, list[str]]:
    """Return all clips of a split that have a caption, and their captions."""
    shot = checkpoint.config.shot_decoder
    turns = [turn for turn in read_turns(data.shards(split)) if turn.turn.instruction]
    frames_NTHWC = torch.stack([turn.frames(shot.height, shot.width, shot.frames) for turn in turns])
    return frames_NTHWC, [turn.turn.instruction for turn in turns]


def _bags(captions: Sequence[str], vocabulary: Sequence[str]) -> Tensor:
    """Return the share of each word of the vocabulary in each caption, [N, V]; other words do not count."""
    column_of = {word: column for column, word in enumerate(vocabulary)}
    counts_NV = torch.zeros(len(captions), len(vocabulary))
    for row, text in enumerate(captions):
        for word in column_of.keys() & set(_words(text)):
            counts_NV[row, column_of[word]] = 1
    return functional.normalize(counts_NV, p=1, dim=1)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _claim(folder: Path, checkpoint: Checkpoint, mixture: Mixture, loop: LoopSettings, *, frozen: bool) -> None:
    """Write the ingredients of the run, or compare them with the noted ones."""
    made_from = {
        **checkpoint.as_start(),
        "data": {split: fingerprint_of(mixture.shards(split)) for split in mixture.splits},
        "settings": loop.ingredients(),
        "frozen": frozen,
    }
    check_made_from(folder, made_from)
    note_made_from(folder, made_from)
