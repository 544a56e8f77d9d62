"""Small CLIPs with random weights, in the files of the real ones."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
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


def save_small_open_clip(folder: Path) -> Path:
    """Write a CLIP of open_clip, which has to be installed: its config, and its weights as safetensors."""
    import open_clip

    folder.mkdir(parents=True)
    config = open_clip.get_model_config("ViT-B-32")
    config["embed_dim"] = 16
    config["vision_cfg"] |= {"layers": 2, "width": 64, "head_width": 32, "image_size": 64}
    config["text_cfg"] |= {"layers": 2, "width": 64, "heads": 2}
    torch.manual_seed(0)
    network = open_clip.CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"])
    save_file(network.state_dict(), folder / "open_clip_model.safetensors")
    description = {"model_cfg": config, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(description))
    return folder
