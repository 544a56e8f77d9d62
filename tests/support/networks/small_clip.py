"""Small CLIPs with random weights, in the files of the real ones."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPTokenizer, CLIPVisionConfig

START, END = "<|startoftext|>", "<|endoftext|>"


def save_small_clip(folder: Path, seed: int = 0) -> Path:
    """Write a CLIP of transformers: its config, its weights as safetensors, and a tokenizer of single bytes."""
    folder.mkdir(parents=True)
    letters = sorted(ByteLevel.alphabet())
    vocabulary = [*letters, *(f"{letter}</w>" for letter in letters), START, END]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(vocabulary)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    CLIPTokenizer.from_pretrained(folder).save_pretrained(folder)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = CLIPTextConfig(
        vocab_size=len(vocabulary), max_position_embeddings=77, bos_token_id=len(vocabulary) - 2,
        eos_token_id=len(vocabulary) - 1, **sizes,
    )  # fmt: skip
    vision = CLIPVisionConfig(image_size=32, patch_size=8, **sizes)
    config = CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=16)
    CLIPModel(config).save_pretrained(folder)
    return folder
