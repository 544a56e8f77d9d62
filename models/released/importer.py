"""The published AnimeGamer weights, made into a checkpoint of ours.

`import_weights(download, checkpoint)` reads the two published files tensor by tensor, never whole. It takes nothing on
trust: every tensor it needs must be there with its shape, every other one must be known as needless, and all faults are
told together before any data is read. The checkpoint keeps what the weights were trained with: shot tokens read three
places late, no history, the doubled end tag, adapters times 1 / rank, the last norm's epsilon.

The frozen bases are not copied but named by their hub id; only the transformer is written, since the published file
has trained its modulations in place.
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

from models.checkpoint import TOKENIZER, save_config, writing
from models.config import PUBLISHED_VALUES, Base, ModelConfig, full_config, tiny_config
from models.released.files import find_files, open_tensors
from models.released.names import (
    DECODER_IGNORED,
    LANGUAGE_IGNORED,
    TRANSFORMER,
    Entry,
    account,
    decoder_plan,
    language_plan,
)
from models.released.sizes import POSITIONS, DecoderSizes, LanguageSizes, Shapes, has_adapters
from models.released.writer import Writer, save_descriptions, save_fresh_adapters
from models.shot_decoder import SPATIAL_COMPRESSION
from models.tokens import shipped_tokenizer
from pipeline.core.errors import UserError

LevelTable = Literal["decoder script", "app"]
_POSITION_TOLERANCE = 4e-3  # of values up to 1, which the file may hold in half precision


@dataclass(frozen=True)
class Imported:
    """What an import did.

    Attributes:
        config: configuration of the new checkpoint.
        taken: published tensors that are in it.
        ignored: published tensors that are not, by reason.
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
    """Make a checkpoint of the published weights.

    At the published size the game model's tensors become bfloat16 and the shot networks' float16, which is what their
    bases were trained in. A smaller file, such as the tests make, keeps its precision.

    Args:
        source: a download of the hub repository, or of one model in it.
        target: the checkpoint to write; must not exist, or be empty. It appears when it is whole, or not at all.
        levels: which of the two published tables turns a motion level into a motion scope.
        character: which of the published models, where the download holds several.
        progress: told how many of the tensors are written; it may raise to stop.

    Raises:
        UserError: the target is taken; a published file is missing, damaged, holds code, or other tensors than
            it should; a value is not finite.
    """
    files = find_files(source, character)
    language, decoder = (open_tensors(path) for path in files)
    frame = _frame_of(files[1], _shapes(decoder))
    full = frame.size == "full"
    decoder_sizes = _decoder_sizes(_shapes(decoder), full)
    language_sizes = LanguageSizes() if full else LanguageSizes.of(_shapes(language), decoder_sizes.width)
    plan, ignored = _account(files, (_shapes(language), _shapes(decoder)), (language_sizes, decoder_sizes))
    config = _configure(frame, language_sizes, decoder_sizes, levels)
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


def _frame_of(file: Path, shapes: Shapes) -> ModelConfig:
    """The configuration whose picture, shot length and shot tokens the file's table of positions has."""
    frames = {(1, _positions(frame), frame.shot_encoder.width): frame for frame in (full_config(), tiny_config())}
    found = shapes.get(POSITIONS)
    if found not in frames:
        raise UserError(
            f"{file} is not the published file: {POSITIONS} is {found and list(found)}, expected "
            f"{' or '.join(str(list(shape)) for shape in frames)}; fetch it again"
        )
    return frames[found]


def _positions(config: ModelConfig) -> int:
    frames, height, width = _grid(config)
    return config.shot_encoder.shot_tokens + frames * height * width


def _grid(config: ModelConfig) -> tuple[int, int, int]:
    """Latent frames and patches, down and across; a patch is two latent pixels a side."""
    shot, side = config.shot_decoder, 2 * SPATIAL_COMPRESSION
    return shot.latent_frames, shot.height // side, shot.width // side


def _decoder_sizes(shapes: Shapes, full: bool) -> DecoderSizes:
    if not full:
        return DecoderSizes.of(shapes)
    return DecoderSizes() if has_adapters(shapes) else DecoderSizes(rank=0)


def _account(
    files: tuple[Path, Path], shapes: tuple[Shapes, Shapes], sizes: tuple[LanguageSizes, DecoderSizes]
) -> tuple[list[Entry], Counter[str]]:
    """The whole plan, once both files have been found to fit it; and what is left aside."""
    plans = language_plan(sizes[0]), decoder_plan(sizes[1])
    ignored: Counter[str] = Counter()
    faults = []
    for file, plan, found, ignorable in zip(files, plans, shapes, (LANGUAGE_IGNORED, DECODER_IGNORED), strict=True):
        wrong, aside = account(plan, found, ignorable)
        faults += [f"{file}: {fault}" for fault in wrong]
        ignored += aside
    if faults:
        lines = "\n  ".join(faults)
        raise UserError(f"these are not the published files, {len(faults)} faults; fetch them again:\n  {lines}")
    return [*plans[0], *plans[1]], ignored


def _configure(frame: ModelConfig, language: LanguageSizes, decoder: DecoderSizes, levels: LevelTable) -> ModelConfig:
    """Without adapters in the file fresh ones are added, at the scale our own training uses."""
    adapters = {"lora_rank": decoder.rank, "lora_alpha": 1} if decoder.rank else {}
    widths = {"text_width": decoder.text_width, "image_width": decoder.image_width, "width": decoder.width}
    game_model = {"lora_rank": language.rank, "lora_alpha": language.rank}
    sized = frame.replaced(
        shot_encoder={**frame.shot_encoder.model_dump(), **widths},
        shot_decoder={**frame.shot_decoder.model_dump(), **adapters},
        game_model={**frame.game_model.model_dump(), **game_model},
        bases={**frame.bases, "transformer": Base(id=TRANSFORMER)},
    )
    return sized.as_released(PUBLISHED_VALUES[levels])


def _check_positions(file: Path, table_1LD: Tensor, config: ModelConfig) -> None:
    """The table is not imported, since diffusers computes it; so it must be that table and no other."""
    frames, height, width = _grid(config)
    patches_LD = get_3d_sincos_pos_embed(
        config.shot_encoder.width, (width, height), frames, spatial_interpolation_scale=1.875, output_type="pt"
    )
    patches_LD = patches_LD.flatten(0, 1).float()
    expected_LD = torch.cat([patches_LD.new_zeros(config.shot_encoder.shot_tokens, patches_LD.shape[1]), patches_LD])
    if not torch.allclose(table_1LD[0].float(), expected_LD, rtol=0, atol=_POSITION_TOLERANCE):
        raise UserError(f"{file}: {POSITIONS} is not the table of CogVideoX 2B; this is another network")
