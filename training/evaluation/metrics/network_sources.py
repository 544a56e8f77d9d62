"""Checks of the networks that the user names, without torch, so that a typing error shows before games are played."""

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
    """Raise a UserError if a CLIP is named by a path, starting with `/` or `.`, that does not exist."""
    path = source.removeprefix(OPEN_CLIP)
    if path.startswith(("/", ".")) and not Path(path).exists():
        raise UserError(f"{path} does not exist; give the folder or the id of a CLIP as --clip")


def check_dreamsim(folder: Path) -> None:
    """Raise a UserError if a file of DreamSim is missing in its folder."""
    missing = [name for name in _OF_DREAMSIM if not (folder / name).exists()]
    if missing:
        fetch = f"from dreamsim import dreamsim; dreamsim(cache_dir={str(folder)!r}, device='cpu')"
        raise UserError(f'{folder} has no {missing[0]}; fetch the weights once with `python -c "{fetch}"`')
