"""Models that `caption-server` serves by lmdeploy, by card; all of them run code of their repository."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServedModel:
    """Model for a kind of GPU, and the engine's options for it."""

    repository: str
    revision: str | None
    """Commit; None: not known, so the user names it, since its code is run."""
    gpus: int = 1
    flags: tuple[str, ...] = ()


_INTERNVL_26B = "OpenGVLab/InternVL2-26B"
_REVISION_26B = "46f37972e05604cc44a59f72334df220fa197a7b"
SERVED = {
    # 52 GB of weights; the cache gets half of the memory that they leave
    "80gb": ServedModel(_INTERNVL_26B, _REVISION_26B),
    "2x48gb": ServedModel(_INTERNVL_26B, _REVISION_26B, gpus=2),
    # 4-bit weights, 16 GB; no published work names a commit of it
    "48gb": ServedModel("OpenGVLab/InternVL2-26B-AWQ", None, flags=("--model-format", "awq")),
    # 16 GB of weights
    "24gb": ServedModel("OpenGVLab/InternVL2-8B", "6fb9ad6924f69424e57fab2ab061d707688f0296"),
}
"""Models by card, the names of `--card`. The revisions are those that published evaluations of the models name."""
