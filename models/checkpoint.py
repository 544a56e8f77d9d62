"""Checkpoint: the folder layout that training writes and that play and evaluation read.

    CHECKPOINT/
      config.json                              sizes, conventions, level values, locations of the frozen bases
      tokenizer/                               Mistral's, with the game's 284 tokens
      game_model/adapter_model.safetensors     peft, with adapter_config.json: LoRA, norms and both embeddings
      game_model/resamplers.safetensors
      shot_encoder.safetensors
      shot_decoder/pytorch_lora_weights.safetensors    diffusers: LoRA on the attention
      shot_decoder/model.safetensors           adaLN and motion scope, trained in full
      bases/NAME/                              bases that are not on the model hub, in the hub's format

A network without adapters (rank 0) is trained whole. Its only weights are then its base, `bases/language_model` or
`bases/transformer`, without `game_model/adapter_model.safetensors` or `shot_decoder/`.

`checkpoint_writer.py` writes checkpoints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from diffusers import AutoencoderKLCogVideoX
from torch import nn
from transformers import LlamaTokenizer, MistralForCausalLM

from models.config import CONFIG, NOT_PLAYED, Base, Component, ModelConfig, inside_id
from models.game_model import GameModel, wrap_language_model
from models.hub import load_base, quietly, reading, reading_tokenizer
from models.shot_decoder import ShotDecoder, add_lora, load_transformer, own_names
from models.shot_encoder import ImageEncoder, ShotEncoder, TextEncoder
from models.tokens import load_mistral_tokenizer
from models.weights import is_as_created, is_untrained, load_adapter, load_tensors
from pipeline.core.errors import UserError, refuse_special_files

TOKENIZER = "tokenizer"
GAME_MODEL = "game_model"
SHOT_DECODER = "shot_decoder"
ADAPTER = "game_model/adapter_model.safetensors"
RESAMPLERS = "game_model/resamplers.safetensors"
SHOT_ENCODER = "shot_encoder.safetensors"
DECODER_LORA = "shot_decoder/pytorch_lora_weights.safetensors"
DECODER_OWN = "shot_decoder/model.safetensors"
TRANSFORMER_FILE = "diffusion_pytorch_model.safetensors"

_PRECISION: dict[Component, torch.dtype] = {
    "language_model": torch.bfloat16,
    "transformer": torch.float16,
    "autoencoder": torch.float16,
    "text_encoder": torch.bfloat16,
    "image_encoder": torch.float16,
}
_LAST_NORMS: dict[Component, tuple[str, str]] = {
    "language_model": ("model.safetensors", "model.norm.weight"),
    "transformer": (TRANSFORMER_FILE, "norm_final.weight"),
}
PLAYED: tuple[Component, ...] = ("language_model", "transformer", "autoencoder")
"""Bases that a game needs; the others encode the clips for training."""
ENCODERS: tuple[Component, ...] = ("image_encoder", "text_encoder")
Network = TypeVar("Network", bound=nn.Module)
Device = torch.device | str


def precision_of(component: Component, device: Device) -> torch.dtype:
    """Return the precision a network runs in: the precision of its base's training on a GPU, float32 on a CPU.

    CogVideoX 2B was trained in fp16 and can give NaN in bf16; Mistral and T5 1.1 are bf16 models that overflow in fp16.
    """
    return _PRECISION[component] if torch.device(device).type == "cuda" else torch.float32


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with its configuration; each method loads a network, ready for inference.

    Attributes:
        folder: of the checkpoint.
        config: content of its `config.json`.
    """

    folder: Path
    config: ModelConfig

    @classmethod
    def open(cls, folder: Path | str) -> Checkpoint:
        """Read the configuration.

        Raises:
            UserError: the folder is not a checkpoint, has files that are devices or pipes, or the configuration is not
                valid.
        """
        refuse_special_files(Path(folder))
        return cls(Path(folder), ModelConfig.read(Path(folder)))

    def untrained(self) -> list[str]:
        """Return the networks that were never trained: their adapters have no effect, or their last norm is all 1."""
        networks: tuple[tuple[str, Component, str], ...] = (
            ("game model", "language_model", ADAPTER),
            ("shot decoder", "transformer", DECODER_LORA),
        )
        return [name for name, base, adapters in networks if self._is_untrained(base, adapters)]

    def _is_untrained(self, base: Component, adapters: str) -> bool:
        if base not in self.config.whole:
            return is_untrained(self.folder / adapters)
        file, norm = _LAST_NORMS[base]
        return is_as_created(self.folder / inside_id(base) / file, norm)

    def tokenizer(self) -> LlamaTokenizer:
        """Load the game model's tokenizer."""
        folder = self.folder / TOKENIZER
        with reading(Base(id=str(folder.absolute()))), reading_tokenizer():
            return load_mistral_tokenizer(folder)

    def game_model(
        self, device: Device = "cpu", dtype: torch.dtype | None = None, trained: torch.dtype | None = None
    ) -> GameModel:
        """Load the game model: Mistral with its adapters, and the resamplers.

        Args:
            dtype: its precision, by default `precision_of` its base.
            trained: precision of the trainable parameters, by default `dtype`.
        """
        dtype = dtype or precision_of("language_model", device)
        whole = "language_model" in self.config.whole
        stored = (trained or dtype) if whole else dtype
        base = load_base("language_model", MistralForCausalLM, self.base("language_model"), stored)
        model = GameModel(wrap_language_model(base, self.config.game_model), self.config)
        trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        _set_precision(model, dtype, trained, trainable)
        if not whole:
            load_adapter(model.language_model, self.folder / ADAPTER, embeddings=True)
        resamplers = {"input_resampler": model.input_resampler, "output_resampler": model.output_resampler}
        load_tensors(nn.ModuleDict(resamplers), self.folder / RESAMPLERS)
        return _for_inference(model, device)

    def shot_encoder(self, device: Device = "cpu", dtype: torch.dtype | None = None) -> ShotEncoder:
        """Load the shot encoder, which is trained in full."""
        encoder = ShotEncoder(self.config.shot_encoder).to(dtype or precision_of("transformer", device))
        load_tensors(encoder, self.folder / SHOT_ENCODER)
        return _for_inference(encoder, device)

    def shot_decoder(
        self, device: Device = "cpu", dtype: torch.dtype | None = None, trained: torch.dtype | None = None
    ) -> ShotDecoder:
        """Load the shot decoder with unmerged adapters, if it has any; arguments as in `game_model`."""
        dtype = dtype or precision_of("transformer", device)
        base = self.base("transformer")
        if "transformer" in self.config.whole:
            return _for_inference(load_transformer(self.config, base, trained or dtype), device)
        decoder = load_transformer(self.config, base, dtype)
        add_lora(decoder, self.config.shot_decoder)
        own = own_names(decoder)
        trainable = {name for name, _ in decoder.named_parameters() if ".lora_" in name or name in own}
        _set_precision(decoder, dtype, trained, trainable)
        load_adapter(decoder, self.folder / DECODER_LORA)
        load_tensors(decoder, self.folder / DECODER_OWN, own)
        return _for_inference(decoder, device)

    def autoencoder(self, device: Device = "cpu", dtype: torch.dtype | None = None) -> AutoencoderKLCogVideoX:
        """Load the frozen autoencoder between frames and latents."""
        dtype = dtype or precision_of("autoencoder", device)
        autoencoder = load_base("autoencoder", AutoencoderKLCogVideoX, self.base("autoencoder"), dtype)
        return _for_inference(autoencoder, device)

    def image_encoder(self, device: Device = "cpu") -> ImageEncoder:
        """Load the frozen encoder of first frames; play does not need it."""
        base, dtype = self.base("image_encoder"), precision_of("image_encoder", device)
        return ImageEncoder.load(self.config.shot_encoder, base, device, dtype)

    def text_encoder(self, device: Device = "cpu") -> TextEncoder:
        """Load the frozen encoder of motion texts; play does not need it."""
        base, dtype = self.base("text_encoder"), precision_of("text_encoder", device)
        return TextEncoder.load(self.config.shot_encoder, base, device, dtype)

    def base(self, component: Component) -> Base:
        """Location of a frozen base; one inside the checkpoint gets its absolute path."""
        base = self.config.bases[component]
        inside = self.folder.absolute() / base.id
        return base.model_copy(update={"id": str(inside)}) if base.id == inside_id(component) else base

    def identity(self) -> str:
        """Hash of everything a game depends on: configuration, trained weights, and the bases inside the checkpoint.

        Other bases enter the hash by id and revision. The sampling does not, since a game records it, nor what the page
        alone says and understands. Equal checkpoints play the same game from the same seed and sampling.
        """
        has_more = bool(self.config.model_fields_set & NOT_PLAYED)
        config = self.config.played().encode() if has_more else self.folder / CONFIG
        return identity_of([config, *(self.folder / name for name in self._files()), *self._inside(PLAYED)])

    def as_start(self) -> dict[str, str]:
        """Ingredients of training from it: `start`, its identity, and `encoder`, a hash of the encoders inside, if any.

        The identity leaves out the encoders, because a game does not depend on them. Features for training do.
        """
        encoders = self._inside(ENCODERS)
        return {"start": self.identity(), **({"encoder": identity_of(encoders)} if encoders else {})}

    def game_model_files(self) -> list[Path]:
        """Files of the trained weights of the game model."""
        if "language_model" in self.config.whole:
            weights = sorted((self.folder / inside_id("language_model")).glob("*.safetensors"))
        else:
            weights = [self.folder / ADAPTER]
        return [*weights, self.folder / RESAMPLERS]

    def _inside(self, components: Iterable[Component]) -> list[Path]:
        """Files of the weights of those bases that are inside the checkpoint."""
        return sorted(path for name in components for path in (self.folder / inside_id(name)).glob("*.safetensors"))

    def _files(self) -> Iterator[str]:
        """Yield the names of all files but configuration, tokenizer and bases."""
        whole = self.config.whole
        if "language_model" not in whole:
            yield ADAPTER
        yield from (RESAMPLERS, SHOT_ENCODER)
        if "transformer" not in whole:
            yield from (DECODER_LORA, DECODER_OWN)


def identity_of(contents: Iterable[Path | bytes]) -> str:
    """Hash of files, or of their bytes, in the given order. UserError if a file cannot be read."""
    digest = hashlib.sha256()
    for path in contents:
        if isinstance(path, bytes):
            digest.update(hashlib.sha256(path).digest())
            continue
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}): copy the checkpoint again") from error
    return digest.hexdigest()[:16]


def _set_precision(network: nn.Module, dtype: torch.dtype, trained: torch.dtype | None, trainable: set[str]) -> None:
    """Cast parameters but not buffers: in bf16 the rotary frequencies of Mistral would be off by whole turns."""
    for name, parameter in network.named_parameters():
        parameter.data = parameter.data.to((trained or dtype) if name in trainable else dtype)


def _for_inference(network: Network, device: Device) -> Network:
    with quietly():  # diffusers logs a warning for every move
        return network.to(device).eval().requires_grad_(False)
