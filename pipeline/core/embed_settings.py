"""Settings of embeddings, `[embed]`: networks that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from pipeline.core.settings import Settings


def _absolute_if_there(source: str | None) -> str | None:
    """Resolve the path of a file or folder: workers have other working folders. An id of the hub stays."""
    return str(Path(source).absolute()) if source and Path(source).exists() else source


def _home(source: str) -> str:
    """Folder or repository of a network. Vectors of two networks may have one size, and mean nothing to each other."""
    path = Path(source)
    if not path.is_absolute():
        return "/".join(source.split("/")[:2])
    folder = path.parent if path.suffix == ".onnx" else path
    return str(folder.parent if folder.name == "onnx" else folder)


NetworkRole = Literal["pictures", "figures", "characters", "words"]
Network = Annotated[str | None, Field(min_length=1, max_length=4096), AfterValidator(_absolute_if_there)]


class EmbedSettings(Settings):
    """Embeddings of pictures and figures, by ONNX networks that you name: hub id (with folder), folder or file."""

    pictures: Network = Field(
        None,
        description="encoder of pictures: own (ships with the package), or as Xenova/clip-vit-base-patch16 (345 MB, "
        "licence not stated) or Xenova/siglip-base-patch16-224 [default: none]",
    )
    words: Network = Field(None, description="its text half, for `clips --like-words`: the same id [default: none]")
    figures: Network = Field(
        None,
        description="detector of figures, as deepghs/anime_person_detection/person_detect_v1.1_m (MIT) [default: none]",
    )
    characters: Network = Field(
        None,
        description="encoder of figures, as deepghs/ccip_onnx/ccip-caformer-24-randaug-pruned (150 MB, OpenRAIL) "
        "[default: none]",
    )
    least_score: float = Field(0.3, ge=0, le=1, description="least score of a figure")

    @model_validator(mode="after")
    def _have_what_they_need(self) -> Self:
        for needy, needed in (("words", "pictures"), ("characters", "figures")):
            if getattr(self, needy) and not getattr(self, needed):
                raise ValueError(f"{needy} needs {needed}")
        if self.words and self.pictures and _home(self.words) != _home(self.pictures):
            raise ValueError("words and pictures are halves of one network: name the same id or folder in both")
        return self

    def named(self) -> dict[NetworkRole, str]:
        """Return the networks that the user named, by their keys."""
        return {role: source for role in get_args(NetworkRole) if (source := getattr(self, role))}
