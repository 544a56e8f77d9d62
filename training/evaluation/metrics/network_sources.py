"""Sources of the networks as the user names them; a mistyped one is refused without torch, before games are played."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.errors import UserError

OPEN_CLIP = "open-clip:"
"""Prefix of a source that open_clip loads."""
_OF_DREAMSIM = (
    "ensemble_lora/adapter_config.json",
    "dino_vitb16_pretrain.pth",
    "clip_vitb16_pretrain.pth.tar",
    "open_clip_vitb16_pretrain.pth.tar",
    "facebookresearch_dino_main/hubconf.py",
    "checkpoints/dino_vitbase16_pretrain.pth",
)
"""Files of the folder without which the package would fetch them."""


def check_clip(source: str) -> None:
    """Raise a UserError if a CLIP is named by a path, which starts with `/` or `.`, and nothing is there."""
    path = source.removeprefix(OPEN_CLIP)
    if path.startswith(("/", ".")) and not Path(path).exists():
        raise UserError(f"{path}: no such folder; --clip is the folder of a CLIP, or its id")


def check_dreamsim(folder: Path) -> None:
    """Raise a UserError if a file of DreamSim is missing in its folder."""
    missing = [name for name in _OF_DREAMSIM if not (folder / name).exists()]
    if missing:
        fetch = f"from dreamsim import dreamsim; dreamsim(cache_dir={str(folder)!r}, device='cpu')"
        raise UserError(f'{folder}: has no {missing[0]}; fetch the weights once with `python -c "{fetch}"`')
