"""Encoder of words into the vectors of a picture encoder: the text half of CLIP or SigLIP."""

from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import UserError
from pipeline.stages.embedding.network_files import NetworkFiles
from pipeline.stages.embedding.networks import open_network, unit, vector_output

_LENGTHS = {"clip": 77, "siglip": 64, "siglip2": 64}
"""Longest texts of the networks by `model_type`, in tokens."""


class WordEncoder:
    """Text network in an ONNX file with its `tokenizer.json` beside it.

    CLIP takes a text as long as it is. SigLIP was trained on texts filled up to 64 tokens.
    """

    def __init__(self, files: NetworkFiles) -> None:
        """Open network and tokenizer. Raises UserError if one of them is missing or of another kind."""
        from tokenizers import Tokenizer

        for name in ("tokenizer.json", "config.json"):
            if name not in files.beside:
                raise UserError(f"{files.source} has no {name} beside the text network; take them from one repository")
        try:
            kind = json.loads(files.beside["config.json"].read_bytes())["model_type"].removesuffix("_text_model")
            length = _LENGTHS[kind]
            self._tokenizer = Tokenizer.from_file(str(files.beside["tokenizer.json"]))
        except Exception as error:  # tokenizers raises plain Exceptions
            raise UserError(
                f"{files.source}: its config.json and tokenizer.json are not those of {', '.join(_LENGTHS)} ({error!r})"
            ) from error
        self._tokenizer.enable_truncation(length)
        if kind != "clip":
            self._tokenizer.enable_padding(length=length, **self._filling())
        self._session = open_network(files)
        self._inputs = {value.name for value in self._session.get_inputs()}
        if "input_ids" not in self._inputs or not self._inputs <= {"input_ids", "attention_mask"}:
            raise UserError(f"{files.network}: takes {', '.join(sorted(self._inputs))}, not the tokens of a text alone")
        self._output = vector_output(files, self._session)

    def vector(self, words: str) -> NDArray[np.float32]:
        """Return the vector of a text, of length 1."""
        encoding = self._tokenizer.encode(words)
        rows = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask}
        inputs = {name: np.array([row], np.int64) for name, row in rows.items() if name in self._inputs}
        found: NDArray[np.float32] = unit(self._session.run([self._output], inputs)[0])[0]
        return found

    def _filling(self) -> dict[str, str | int]:
        """Return the tokenizer's own token of padding, else its first one."""
        own = self._tokenizer.padding
        return {key: own[key] for key in ("pad_id", "pad_token")} if own else {"pad_id": 1, "pad_token": "</s>"}
