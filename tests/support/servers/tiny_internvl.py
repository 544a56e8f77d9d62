"""Tiny random InternVL behind `transformers serve`: an engine that really generates, on a CPU.

    with TinyInternVL(tmp_path, lmdeploy) as server:         lmdeploy's environment, which has transformers and openai
        server.address, server.model

The repository is made in the format of `transformers` (`InternVLForConditionalGeneration`), by this file run in that
environment; its network has 37,000 random weights, so its replies are noise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

HIDDEN = 16
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<IMG_CONTEXT>\n{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class TinyInternVL:
    """Server process of the tiny model."""

    def __init__(self, root: Path, environment: Path) -> None:
        from tests.support.servers.prefect_server import free_port

        self.root, self.environment, self.port = root, environment, free_port()
        self.model, self.log = str(root / "tiny-internvl"), root / "serve.log"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        from tests.support.servers.prefect_server import until
        from tests.support.servers.stub_lmdeploy import byte_tokenizer

        folder = Path(self.model)
        folder.mkdir(parents=True)
        (folder / "bytes.json").write_text(json.dumps(byte_tokenizer()))
        variables = {**os.environ, "PYTHONPATH": "", "HF_HOME": str(self.root), "HF_HUB_OFFLINE": "1"}
        (self.root / "hub").mkdir()
        binaries = self.environment / "bin"
        subprocess.run([binaries / "python", __file__, folder], env=variables, check=True, timeout=300)
        words = [binaries / "transformers", "serve", folder, "--device", "cpu", "--port", str(self.port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=variables)
        until("transformers serves", self._is_up)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def _is_up(self) -> bool:
        import httpx  # not in the environment that runs this file as a script

        assert self.process.poll() is None, self.log.read_text()
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.address}/models", timeout=10).is_success
        return False


def _write(folder: Path) -> None:
    """Write configuration, weights, tokenizer and processor."""
    import torch
    from transformers import (
        InternVLConfig,
        InternVLForConditionalGeneration,
        InternVLProcessor,
        InternVLVideoProcessor,
        PreTrainedTokenizerFast,
    )
    from transformers.models.got_ocr2 import GotOcr2ImageProcessor

    marks = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "bytes.json"), eos_token="<|im_end|>", pad_token="<|im_end|>",
        extra_special_tokens={**marks, "video_token": "<video>"},
    )  # fmt: skip
    cutter = GotOcr2ImageProcessor(size={"height": 448, "width": 448}, crop_to_patches=True, max_patches=12)
    processor = InternVLProcessor(cutter, tokenizer, InternVLVideoProcessor(), chat_template=_TEMPLATE)
    processor.save_pretrained(folder)
    layer = {"hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 2 * HIDDEN}
    text = {"model_type": "qwen2", "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 32768}
    ends = {"bos_token_id": None, "eos_token_id": 257, "pad_token_id": 257}
    config = InternVLConfig(
        vision_config={**layer, "image_size": [448, 448], "patch_size": [14, 14]},
        text_config={**layer, **text, **ends},
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
    )
    torch.manual_seed(0)
    model = InternVLForConditionalGeneration(config)
    model.generation_config.do_sample = True
    model.save_pretrained(folder)


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
