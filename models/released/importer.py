"""Import of the published AnimeGamer weights into a checkpoint.

`import_weights(download, checkpoint)` reads the two published files tensor by tensor, never completely. Every tensor it
needs must be present with its shape, and every other tensor must be listed as unused. All faults are reported together,
before any data is read. The checkpoint keeps the conventions of the weights' training: shot tokens read three positions
late, no history, the doubled end tag, adapters scaled by 1 / rank, the last norm's epsilon.

The frozen bases are not copied but referenced by hub id. Only the transformer is written, since the published training
changed its modulations in place.

A download of the hub repository has two folders for each of the two characters: the language half (29 GB) and the
decoder half (27 GB). Both are pickled PyTorch files. They are mapped from disk, and a tensor is read when it is used.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from diffusers.models.embeddings import get_3d_sincos_pos_embed
from torch import Tensor

from models.checkpoint import TOKENIZER
from models.checkpoint_writer import save_config, writing
from models.config import PUBLISHED_VALUES, Base, ModelConfig, full_config, tiny_config
from models.released.names import (
    DECODER_IGNORED,
    LANGUAGE_IGNORED,
    POSITIONS,
    TRANSFORMER,
    DecoderSizes,
    Entry,
    LanguageSizes,
    Shapes,
    check_tensors,
    decoder_plan,
    has_adapters,
    language_plan,
)
from models.released.writer import Writer, save_descriptions, save_fresh_adapters
from models.shot_decoder import SPATIAL_COMPRESSION
from models.tokens import shipped_tokenizer
from pipeline.core.errors import UserError

LevelTable = Literal["decoder script", "app"]
_POSITION_TOLERANCE = 4e-3  # for values up to 1, which may be stored in half precision
LANGUAGE_FOLDER, LANGUAGE_FILE = "MLLM-", "pytorch_model.bin"
DECODER_FOLDER, DECODER_FILE = "VDM_Decoder-", "mp_rank_00_model_states.pt"
_LATEST, _STEP, _LONGEST_STEP = "latest", "10000", 100
_UNNAMED = ""

# The decoder half also holds numpy's random state: an array that needs only these globals.
_ARRAYS: list[Any] = [
    (np._core.multiarray._reconstruct, f"numpy.{core}.multiarray._reconstruct")  # type: ignore[attr-defined]
    for core in ("core", "_core")
] + [np.ndarray, np.dtype, np.dtypes.UInt32DType]


@dataclass(frozen=True)
class Imported:
    """Result of an import.

    Attributes:
        config: configuration of the new checkpoint.
        taken: number of published tensors in it.
        ignored: number of other tensors, by reason.
    """

    config: ModelConfig
    taken: int
    ignored: dict[str, int]

    def __str__(self) -> str:
        unused = (f"{count} not needed: {why}" for why, count in self.ignored.items())
        return "\n".join([f"{self.taken} tensors imported", *unused])


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
        character: the published model; required if the download holds several.
        progress: called with the numbers of written and of all tensors; it may raise to stop.

    Raises:
        UserError: the target is not empty, a published file is missing or damaged or holds code or unexpected tensors,
            or a value is not finite.
    """
    files = find_files(source, character)
    language, decoder = (open_tensors(path) for path in files)
    base_config = _base_config(files[1], _shapes(decoder))
    full = base_config.size == "full"
    published = DecoderSizes() if has_adapters(_shapes(decoder)) else DecoderSizes(rank=0)
    decoder_sizes = published if full else DecoderSizes.of(_shapes(decoder))
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
            f"{file} is not the published file, since {POSITIONS} is {found and list(found)} instead of "
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
        raise UserError(f"{file} is another network: {POSITIONS} is not the table of CogVideoX 2B")


def find_files(source: Path, character: str | None = None) -> tuple[Path, Path]:
    """Find the two files of one published model.

    Args:
        source: a download of the hub repository, complete or partial; or a folder with the two files.
        character: the published model, named by the suffix of its folders; required if there are several.

    Returns:
        The file of the language half and the file of the decoder half.

    Raises:
        UserError: no published weights, several models and no `character`, or only one half.
    """
    languages = _language_files(source)
    decoders = _decoder_files(source)
    if not languages and not decoders:
        raise UserError(
            f"{source} holds no published weights: expected {LANGUAGE_FOLDER}NAME/{LANGUAGE_FILE} and "
            f"{DECODER_FOLDER}NAME/{_STEP}/{DECODER_FILE}, as in the hub repository TencentARC/AnimeGamer"
        )
    name = _choose(source, sorted({*languages, *decoders} - {_UNNAMED}), character)
    language = languages.get(name, languages.get(_UNNAMED))
    decoder = decoders.get(name, decoders.get(_UNNAMED))
    if language is None:
        raise UserError(f"{source / (LANGUAGE_FOLDER + name) / LANGUAGE_FILE} is missing: fetch it too")
    if decoder is None:
        missing = source / (DECODER_FOLDER + name) / _STEP / DECODER_FILE
        raise UserError(f"{missing} is missing: fetch it too")
    return language, decoder


def open_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a pickled PyTorch file, mapped from disk; no code in the file is run.

    Raises:
        UserError: the file is incomplete, cannot be read without running its code, or holds no state dict.
    """
    try:
        with torch.serialization.safe_globals(_ARRAYS):
            # the published files exist only in this format; weights_only runs none of their code
            content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)  # noqa: TID251
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} holds Python objects besides tensors, and reading them would run its code: refused. "
            "Fetch the published file again"
        ) from error
    except (RuntimeError, OSError, EOFError) as error:
        raise UserError(
            f"{path} is not a complete PyTorch file ({_size(path)} bytes, {_first_line(error)}): fetch it again. A "
            "file of a few hundred bytes is a Git LFS pointer, fetched without Git LFS"
        ) from error
    state = content.get("module", content) if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"{path} holds no state dict of tensors: it is not the published file")
    return dict(state)


def _language_files(source: Path) -> dict[str, Path]:
    folders = {_UNNAMED: source, **_folders(source, LANGUAGE_FOLDER)}
    return {name: folder / LANGUAGE_FILE for name, folder in folders.items() if (folder / LANGUAGE_FILE).is_file()}


def _decoder_files(source: Path) -> dict[str, Path]:
    """Find the decoder files. The step's number is in a separate file, which a partial download may lack."""
    found = {}
    for name, folder in {_UNNAMED: source, **_folders(source, DECODER_FOLDER)}.items():
        for path in (folder / _step(folder / _LATEST) / DECODER_FILE, folder / DECODER_FILE):
            if path.is_file():
                found[name] = path
                break
    return found


def _step(latest: Path) -> str:
    """Return the name of the folder of the published step, from the file that holds it."""
    if not latest.is_file():
        return _STEP
    with latest.open("rb") as file:
        name = file.read(_LONGEST_STEP + 1).decode(errors="replace").strip()
    if len(name) > _LONGEST_STEP or not name.isascii() or not name.isprintable():
        raise UserError(f"{latest} does not hold the name of a folder, such as {_STEP}; fetch the file again")
    return name


def _folders(source: Path, prefix: str) -> dict[str, Path]:
    return {path.name.removeprefix(prefix): path for path in sorted(source.glob(f"{prefix}*")) if path.is_dir()}


def _choose(source: Path, names: list[str], character: str | None) -> str:
    if character is not None:
        if character not in names:
            raise UserError(f"{source} has no weights of {character!r}, only of: {', '.join(names) or 'one model'}")
        return character
    if len(names) > 1:
        raise UserError(f"{source} holds several models: say which character, one of {', '.join(names)}")
    return names[0] if names else _UNNAMED


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
