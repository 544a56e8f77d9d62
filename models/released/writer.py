"""Writer of a checkpoint from the published tensors, one file at a time.

The files have the formats that peft, diffusers and our training write, so an imported checkpoint has the same layout as
a trained one. The transformer is split as diffusers splits it; no file assembled in memory exceeds 1 GB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import CogVideoXTransformer3DModel
from diffusers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFETENSORS_WEIGHTS_NAME
from huggingface_hub import split_torch_state_dict_into_shards
from peft import LoraConfig
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM

from models.checkpoint import ADAPTER, DECODER_LORA, RESAMPLERS
from models.config import ModelConfig, ShotDecoderConfig
from models.game_model import wrap_language_model
from models.released.names import TRANSFORMER, DecoderSizes, Entry
from models.shot_decoder import ATTENTION, ShotDecoder, add_lora, decoder_options
from models.tokens import MISTRAL_VOCABULARY
from models.weights import adapter_metadata, write_tensors
from pipeline.core.errors import UserError


@dataclass
class Writer:
    """Writer of planned tensors into a checkpoint.

    Attributes:
        folder: of the checkpoint.
        config: its configuration.
        tensors: the published tensors by name, mapped from disk.
        progress: called with the numbers of written and of all tensors.
        shard: maximal size of one file of the transformer, in the hub's notation.
        done: number of tensors written.
    """

    folder: Path
    config: ModelConfig
    tensors: Mapping[str, Tensor]
    progress: Callable[[int, int], None] | None = None
    shard: str = "1GB"
    done: int = 0

    def write(self, plan: Sequence[Entry]) -> None:
        """Write every tensor of the plan.

        Raises:
            UserError: a value is not finite, in the file or in the precision of the checkpoint.
        """
        for file in dict.fromkeys(entry.file for entry in plan):
            entries = [entry for entry in plan if entry.file == file]
            if file == TRANSFORMER:
                self._write_shards(entries, len(plan))
            else:
                self._write_file(file, entries, len(plan))

    def _write_shards(self, entries: Iterable[Entry], total: int) -> None:
        """Write the transformer in shards, planned from shapes before any data is read."""
        by_name = {entry.name: entry for entry in entries}
        like = {
            name: torch.empty(entry.target_shape, dtype=self._dtype(entry), device="meta")
            for name, entry in by_name.items()
        }
        pattern = SAFETENSORS_WEIGHTS_NAME.replace(".safetensors", "{suffix}.safetensors")
        split = split_torch_state_dict_into_shards(like, filename_pattern=pattern, max_shard_size=self.shard)
        for file, names in split.filename_to_tensors.items():
            self._write_file(f"{TRANSFORMER}/{file}", [by_name[name] for name in names], total)
        if split.is_sharded:
            index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
            text = json.dumps(index, indent=2, sort_keys=True) + "\n"
            (self.folder / TRANSFORMER / SAFE_WEIGHTS_INDEX_NAME).write_text(text, encoding="utf-8")

    def _write_file(self, file: str, entries: Iterable[Entry], total: int) -> None:
        tensors = {}
        for entry in entries:
            tensors[entry.name] = self._value(entry)
            self.done += 1
            if self.progress is not None:
                self.progress(self.done, total)
        if file == DECODER_LORA:
            write_tensors(tensors, self.folder / file, adapter_metadata(_shot_adapters(self.config.shot_decoder)))
        else:
            write_tensors(tensors, self.folder / file)

    def _value(self, entry: Entry) -> Tensor:
        """Rows of an entry, copied to memory in the precision of the checkpoint."""
        rows = self.tensors[entry.source].chunk(entry.parts)
        value = torch.cat([rows[index].to(self._dtype(entry)) for index in entry.chunks])
        if not all(extreme.isfinite() for extreme in value.aminmax()):
            raise UserError(f"{entry.source} has values that are not finite in {value.dtype}; fetch the file again")
        return value

    def _dtype(self, entry: Entry) -> torch.dtype:
        if self.config.size != "full":
            return self.tensors[entry.source].dtype
        return torch.bfloat16 if entry.file in (ADAPTER, RESAMPLERS) else torch.float16


def save_descriptions(folder: Path, config: ModelConfig, sizes: DecoderSizes) -> None:
    """Write the configurations for peft and diffusers: `adapter_config.json` and the transformer's `config.json`.

    Both come from networks on the `meta` device.
    """
    options = {name: value for name, value in decoder_options(config).items() if name != "norm_out_eps"}
    with torch.device("meta"):
        one_layer = MistralForCausalLM(MistralConfig(vocab_size=MISTRAL_VOCABULARY, num_hidden_layers=1))
        adapters = wrap_language_model(one_layer, config.game_model).peft_config["default"]
        transformer = CogVideoXTransformer3DModel(
            num_attention_heads=sizes.width // sizes.head_width,
            attention_head_dim=sizes.head_width,
            num_layers=sizes.layers,
            in_channels=sizes.channels,
            out_channels=sizes.channels,
            patch_size=sizes.patch,
            time_embed_dim=sizes.time_width,
            text_embed_dim=sizes.text_width,
            **options,
        )
    adapters.base_model_name_or_path = config.bases["language_model"].id
    adapters.save_pretrained(str((folder / ADAPTER).parent))
    transformer.save_config(folder / TRANSFORMER)


def _shot_adapters(config: ShotDecoderConfig) -> LoraConfig:
    """Configuration of the adapters, from a network on the `meta` device."""
    with torch.device("meta"):
        decoder = ShotDecoder(num_layers=1)
        add_lora(decoder, config)
    return decoder.peft_config["default"]


def save_fresh_adapters(folder: Path, config: ModelConfig, sizes: DecoderSizes) -> None:
    """Write new adapters without effect: A random, as peft initialises it, B zero."""
    generator = torch.Generator().manual_seed(0)
    rank, width = config.shot_decoder.lora_rank, sizes.width
    tensors = {}
    for name in (f"transformer_blocks.{layer}.attn1.{name}" for layer in range(sizes.layers) for name in ATTENTION):
        first = torch.empty(rank, width).uniform_(-(width**-0.5), width**-0.5, generator=generator)
        tensors[f"{name}.lora_A.weight"] = first
        tensors[f"{name}.lora_B.weight"] = torch.zeros(width, rank)
    write_tensors(tensors, folder / DECODER_LORA, adapter_metadata(_shot_adapters(config.shot_decoder)))
