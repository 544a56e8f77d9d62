"""Import of the published AnimeGamer weights into a checkpoint.

`import_weights(download, checkpoint)` reads the two published files tensor by tensor, never completely. Every tensor it
needs must be present with its shape, and every other one must be listed as unused. All faults are reported together,
before any data is read. The checkpoint keeps the conventions the weights were trained with: shot tokens read three
positions late, no history, the doubled end tag, adapters scaled by 1 / rank, the last norm's epsilon.

The frozen bases are not copied but referenced by hub id. Only the transformer is written, since the published training
changed its modulations in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from diffusers.models.embeddings import get_3d_sincos_pos_embed
from torch import Tensor

from models.checkpoint import TOKENIZER
from models.checkpoint_writer import save_config, writing
from models.config import PUBLISHED_VALUES, Base, ModelConfig, full_config, tiny_config
from models.released.files import find_files, open_tensors
from models.released.names import (
    DECODER_IGNORED,
    LANGUAGE_IGNORED,
    TRANSFORMER,
    Entry,
    check_tensors,
    decoder_plan,
    language_plan,
)
from models.released.sizes import POSITIONS, DecoderSizes, LanguageSizes, Shapes, has_adapters
from models.released.writer import Writer, save_descriptions, save_fresh_adapters
from models.shot_decoder import SPATIAL_COMPRESSION
from models.tokens import shipped_tokenizer
from pipeline.core.errors import UserError

LevelTable = Literal["decoder script", "app"]
_POSITION_TOLERANCE = 4e-3  # for values up to 1, which may be stored in half precision


@dataclass(frozen=True)
class Imported:
    """Result of an import.

    Attributes:
        config: configuration of the new checkpoint.
        taken: number of published tensors in it.
        ignored: number of the others, by reason.
    """

    config: ModelConfig
    taken: int
    ignored: dict[str, int]

    def __str__(self) -> str:
        lines = [
            f"{self.taken} tensors imported",
            *(f"{count} not needed: {why}" for why, count in self.ignored.items()),
        ]
        return "\n".join(lines)


def import_weights(
    source: Path,
    target: Path,
    levels: LevelTable = "decoder script",
    character: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Imported:
    """Convert the published weights to a checkpoint.

    At the published size the game model's tensors become bfloat16 and the shot networks' float16, the precisions their
    bases were trained in. A smaller file, as in the tests, keeps its precision.

    Args:
        source: a download of the hub repository, or of one of its models.
        target: the checkpoint to write; must not exist, or be empty. It is renamed into place when complete.
        levels: the published table from motion level to motion scope.
        character: the published model; required if the download holds several.
        progress: called with the numbers of written and of all tensors; it may raise to stop.

    Raises:
        UserError: the target is not empty; a published file is missing, damaged, holds code or unexpected tensors;
            a value is not finite.
    """
    files = find_files(source, character)
    language, decoder = (open_tensors(path) for path in files)
    base_config = _base_config(files[1], _shapes(decoder))
    full = base_config.size == "full"
    decoder_sizes = _decoder_sizes(_shapes(decoder), full)
    language_sizes = LanguageSizes() if full else LanguageSizes.of(_shapes(language), decoder_sizes.width)
    plan, ignored = _check_files(files, (_shapes(language), _shapes(decoder)), (language_sizes, decoder_sizes))
    config = _configure(base_config, language_sizes, decoder_sizes, levels)
    _check_positions(files[1], decoder[POSITIONS], config)
    with writing(target) as part:
        Writer(part, config, {**language, **decoder}, progress).write(plan)
        if not decoder_sizes.rank:
            save_fresh_adapters(part, config, decoder_sizes)
        save_descriptions(part, config, decoder_sizes)
        shipped_tokenizer().save_pretrained(str(part / TOKENIZER))
        save_config(part, config)
    return Imported(config, len({entry.source for entry in plan}), dict(ignored))


def _shapes(tensors: Mapping[str, Tensor]) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _base_config(file: Path, shapes: Shapes) -> ModelConfig:
    """Configuration, full or tiny, whose position table has the shape of the file's."""
    configs = {(1, _positions(each), each.shot_encoder.width): each for each in (full_config(), tiny_config())}
    found = shapes.get(POSITIONS)
    if found not in configs:
        raise UserError(
            f"{file} is not the published file: {POSITIONS} is {found and list(found)}, expected "
            f"{' or '.join(str(list(shape)) for shape in configs)}; fetch it again"
        )
    return configs[found]


def _positions(config: ModelConfig) -> int:
    frames, height, width = _grid(config)
    return config.shot_encoder.shot_tokens + frames * height * width


def _grid(config: ModelConfig) -> tuple[int, int, int]:
    """Number of latent frames, rows and columns of patches; a patch is 2 x 2 latent pixels."""
    shot, side = config.shot_decoder, 2 * SPATIAL_COMPRESSION
    return shot.latent_frames, shot.height // side, shot.width // side


def _decoder_sizes(shapes: Shapes, full: bool) -> DecoderSizes:
    if not full:
        return DecoderSizes.of(shapes)
    return DecoderSizes() if has_adapters(shapes) else DecoderSizes(rank=0)


def _check_files(
    files: tuple[Path, Path], shapes: tuple[Shapes, Shapes], sizes: tuple[LanguageSizes, DecoderSizes]
) -> tuple[list[Entry], Counter[str]]:
    """Plan of both files, and the number of ignored tensors by reason; UserError when a file does not fit its plan."""
    plans = language_plan(sizes[0]), decoder_plan(sizes[1])
    ignored: Counter[str] = Counter()
    faults = []
    for file, plan, found, ignorable in zip(files, plans, shapes, (LANGUAGE_IGNORED, DECODER_IGNORED), strict=True):
        file_faults, file_ignored = check_tensors(plan, found, ignorable)
        faults += [f"{file}: {fault}" for fault in file_faults]
        ignored += file_ignored
    if faults:
        lines = "\n  ".join(faults)
        raise UserError(f"these are not the published files, {len(faults)} faults; fetch them again:\n  {lines}")
    return [*plans[0], *plans[1]], ignored


def _configure(base: ModelConfig, language: LanguageSizes, decoder: DecoderSizes, levels: LevelTable) -> ModelConfig:
    """Configuration of the checkpoint. If the file has no adapters, new ones get the scale of our training."""
    adapters = {"lora_rank": decoder.rank, "lora_alpha": 1} if decoder.rank else {}
    widths = {"text_width": decoder.text_width, "image_width": decoder.image_width, "width": decoder.width}
    game_model = {"lora_rank": language.rank, "lora_alpha": language.rank}
    sized = base.replaced(
        shot_encoder={**base.shot_encoder.model_dump(), **widths},
        shot_decoder={**base.shot_decoder.model_dump(), **adapters},
        game_model={**base.game_model.model_dump(), **game_model},
        bases={**base.bases, "transformer": Base(id=TRANSFORMER)},
    )
    return sized.as_released(PUBLISHED_VALUES[levels])


def _check_positions(file: Path, table_1LD: Tensor, config: ModelConfig) -> None:
    """Raise UserError if the position table, computed by diffusers and not imported, differs from the file's."""
    frames, height, width = _grid(config)
    patches_LD = get_3d_sincos_pos_embed(
        config.shot_encoder.width, (width, height), frames, spatial_interpolation_scale=1.875, output_type="pt"
    )
    patches_LD = patches_LD.flatten(0, 1).float()
    expected_LD = torch.cat([patches_LD.new_zeros(config.shot_encoder.shot_tokens, patches_LD.shape[1]), patches_LD])
    if not torch.allclose(table_1LD[0].float(), expected_LD, rtol=0, atol=_POSITION_TOLERANCE):
        raise UserError(f"{file}: {POSITIONS} is not the table of CogVideoX 2B; this is another network")
