"""CLIP step: the trained image encoder with a text encoder, as a CLIP in the format of transformers.

The image encoder stays as it is. A small text encoder and both projections learn from frames against their instruction
line, its motion or its background, by the loss of CLIP. Pictures of one text are all right for it.

OUT/clip          network and tokenizer, for `evaluate run --clip`
OUT/clip.json     share of the held-out frames that retrieve their own instruction line

Letters of the shapes: N frames, B batch, D joint width.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.trainers import BpeTrainer
from torch import Tensor
from torch.nn import functional
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPTokenizer, CLIPVisionModel

from examples.miniature.encoders import SEEN
from examples.miniature.recogniser_network import HEIGHT, WIDTH
from flows.console.terminal import say
from models.checkpoint import Checkpoint
from models.checkpoint_writer import writing
from models.hub import load_base, quietly
from models.shot_encoder import clip_pixels
from pipeline.core.atomic import write_json
from pipeline.publish.samples import Split
from training.data.shards import open_shards
from training.data.turns import read_turns

PACKED = Path(__file__).parent / "packed" / "clip"
"""The CLIP of the repository, which the step `pack` writes."""
STEPS, _BATCH, _RATE = 400, 128, 2e-3
_WIDTH, _TOKENS = 64, 32
_END = "</w>"
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:;'-"
_FRAMES = (0, 5, 10, 16)
"""Frames of a clip."""
_PARTS = (re.compile(r"(.*)"), re.compile(r"Motion: ([^;]*?)[;.]"), re.compile(r"Background: ([^;]*?)\."))
"""Parts of an instruction line that a text may be; the whole line first."""


def train_clip(out: Path, steps: int = STEPS) -> Path:
    """Train the text encoder and the projections unless that is done. Return the folder of the CLIP."""
    folder = out / "clip"
    if not folder.exists():
        torch.manual_seed(0)
        checkpoint = Checkpoint.open(out / SEEN)
        encoder = load_base("image_encoder", CLIPVisionModel, checkpoint.base("image_encoder"), torch.float32)
        states_ND, lines = _embedded(encoder, out / "dataset", "train", _FRAMES)
        tokenizer = _tokenizer(lines)
        network = _network(encoder, tokenizer)
        _train(network, tokenizer, states_ND, lines, steps)
        found = retrieval(network, tokenizer, *_embedded(encoder, out / "dataset", "val", _FRAMES[:1]))
        say(f"CLIP: {found:.0%} of held-out frames retrieve their own instruction line")
        with writing(folder) as part, quietly():
            network.half().save_pretrained(part)
            tokenizer.save_pretrained(part)
        write_json(out / "clip.json", {"retrieved": found})
    return folder


@torch.no_grad()
def retrieval(network: CLIPModel, tokenizer: CLIPTokenizer, states_ND: Tensor, lines: Sequence[str]) -> float:
    """Return the share of frames whose own instruction line is the nearest of all."""
    known = sorted(set(lines))
    nearest_N = (_pictures(network, states_ND) @ _texts(network, tokenizer, known).T).argmax(dim=1)
    return sum(known[int(at)] == line for at, line in zip(nearest_N, lines, strict=True)) / len(lines)


@torch.no_grad()
def _embedded(encoder: CLIPVisionModel, data: Path, split: Split, frames: Sequence[int]) -> tuple[Tensor, list[str]]:
    """Return the image encoder's states of some frames of every clip [N, D], and the instruction line of each."""
    states, lines = [], []
    side = encoder.config.image_size
    for turn in read_turns(open_shards(data, split)):
        pictures_BHWC = turn.frames(HEIGHT, WIDTH, turn.turn.sample.frames)[list(frames)]
        states.append(encoder(pixel_values=clip_pixels(pictures_BHWC, side)).pooler_output)
        lines += [turn.turn.instruction] * len(frames)
    return torch.cat(states), lines


def _tokenizer(lines: Sequence[str]) -> CLIPTokenizer:
    """Return a tokenizer of CLIP that keeps the words of the lines whole; other words are spelt."""
    words = Tokenizer(BPE(end_of_word_suffix=_END))
    words.pre_tokenizer = Whitespace()
    trainer = BpeTrainer(initial_alphabet=list(_LETTERS), end_of_word_suffix=_END, show_progress=False)
    words.train_from_iterator([*(line.lower() for line in lines), " ".join(_LETTERS)], trainer)
    vocabulary = words.get_vocab()
    for name in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[name] = len(vocabulary)
    merges = [tuple(pair) for pair in json.loads(words.to_str())["model"]["merges"]]
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=_TOKENS)


def _network(encoder: CLIPVisionModel, tokenizer: CLIPTokenizer) -> CLIPModel:
    """Return an untrained CLIP with this image encoder."""
    text = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=_WIDTH,
        intermediate_size=2 * _WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    vision = encoder.config.to_dict() | {"_name_or_path": ""}  # no path of this machine: the CLIP is given away
    network = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision, projection_dim=_WIDTH))
    own = {name.removeprefix("vision_model."): value for name, value in encoder.state_dict().items()}
    network.vision_model.load_state_dict(own)
    return network


def _train(network: CLIPModel, tokenizer: CLIPTokenizer, states_ND: Tensor, lines: Sequence[str], steps: int) -> None:
    network.vision_model.requires_grad_(False)
    optimizer = torch.optim.AdamW([each for each in network.parameters() if each.requires_grad], lr=_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, max(steps, 1))
    for step in range(steps):
        numbers_B = torch.randint(len(lines), (_BATCH,))
        found = [_PARTS[step % len(_PARTS)].search(lines[number]) for number in numbers_B.tolist()]
        texts = [part[1] if part else "" for part in found]
        pictures_BD, texts_BD = _pictures(network, states_ND[numbers_B]), _texts(network, tokenizer, texts)
        logits_BB = network.logit_scale.exp() * pictures_BD @ texts_BD.T
        same_BB = torch.tensor([[float(one == other) for other in texts] for one in texts])
        wanted_BB = same_BB / same_BB.sum(dim=1, keepdim=True)
        of_pictures, of_texts = (functional.cross_entropy(each_BB, wanted_BB) for each_BB in (logits_BB, logits_BB.T))
        optimizer.zero_grad()
        (of_pictures + of_texts).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()


def _pictures(network: CLIPModel, states_ND: Tensor) -> Tensor:
    return functional.normalize(network.visual_projection(states_ND), dim=-1)


def _texts(network: CLIPModel, tokenizer: CLIPTokenizer, texts: Sequence[str]) -> Tensor:
    tokens = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
    return functional.normalize(network.text_projection(network.text_model(**tokens).pooler_output), dim=-1)
