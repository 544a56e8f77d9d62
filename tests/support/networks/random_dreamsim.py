"""Random DreamSim: a folder as the package `dreamsim` leaves it, with random weights of the real shapes (2 GB)."""

from __future__ import annotations

from pathlib import Path

import torch
from dreamsim.config import dreamsim_args
from dreamsim.feature_extraction.vision_transformer import DINOHead, VisionTransformer, vit_base
from dreamsim.model import PerceptualModel
from peft import LoraConfig, get_peft_model
from torch import nn

HUBCONF = """
import torch
from dreamsim.feature_extraction.vision_transformer import vit_base

dependencies = ["torch"]


def dino_vitb16(pretrained=True):
    model = vit_base()
    address = "https://dl.fbaipublicfiles.com/dino/dino_vitbase16_pretrain/dino_vitbase16_pretrain.pth"
    model.load_state_dict(torch.hub.load_state_dict_from_url(url=address, map_location="cpu"))
    return model
"""
"""The part of DINO's repository that the package calls; it names the file as the real one does."""


def save_random_dreamsim(folder: Path) -> Path:
    """Write the folder of the ensemble."""
    torch.manual_seed(0)
    (folder / "facebookresearch_dino_main").mkdir(parents=True)
    (folder / "facebookresearch_dino_main" / "hubconf.py").write_text(HUBCONF)
    (folder / "checkpoints").mkdir()
    torch.save(vit_base().state_dict(), folder / "checkpoints" / "dino_vitbase16_pretrain.pth")
    torch.save(_dino_head(), folder / "dino_vitb16_pretrain.pth")
    for name in ("clip", "open_clip"):
        torch.save({"state_dict": _clip_tensors()}, folder / f"{name}_vitb16_pretrain.pth.tar")
    (folder / "ensemble_lora").mkdir()
    (folder / "ensemble_lora" / "adapter_config.json").write_text("{}")
    network = PerceptualModel(**dreamsim_args["model_config"]["ensemble"], device="cpu", load_dir=str(folder))
    adapters = LoraConfig(r=16, lora_alpha=0.5, lora_dropout=0.3, bias="none", target_modules=["qkv"])
    get_peft_model(network, adapters).save_pretrained(folder / "ensemble_lora")
    return folder


def _dino_head() -> dict[str, dict[str, torch.Tensor]]:
    head = DINOHead(768, 2048)
    tensors = {f"module.head.mlp.{name}": tensor for name, tensor in head.mlp.state_dict().items()}
    return {"student": {**tensors, "module.head.last_layer.weight": torch.randn(2048, 256)}}


def _clip_tensors() -> dict[str, torch.Tensor]:
    network: VisionTransformer = vit_base()
    network.pos_drop = nn.LayerNorm(network.embed_dim)
    return {**network.state_dict(), "proj": torch.randn(768, 512) / 768**0.5}
