"""lmdeploy's own API server without a GPU: routes, chat template, tokenizer, picture cutter, grammar compiler are real.

The engine is a stub. It answers correctly, or, where the request has a grammar, with random tokens that it allows.

    environment = stub_environment(tmp_path, lmdeploy)       `bin/python` of it runs this file
    write_repository(tmp_path / "OpenGVLab" / "InternVL2-8B")

The program takes lmdeploy's command line. Started in the folder above the repository, it finds the model there instead
of at the hub. The stub sees what the engine would see: it writes the prompt and the tokens of each picture to
`requests` in the environment, and answers by the text of the prompt.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

IMAGE = "<IMG_CONTEXT>"
SPECIAL = ("<|im_start|>", "<|im_end|>", "<img>", "</img>", IMAGE)
WHO, WHAT = "[Number]0[Index]0", "<S>girl</S><MD>run</MD><EV>forest</EV><MA>slowly</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CONFIG_CODE = """
from transformers import PretrainedConfig

class InternVLChatConfig(PretrainedConfig):
    model_type = "internvl_chat"

    def __init__(self, vision_config=None, llm_config=None, **rest):
        self.vision_config = PretrainedConfig(**(vision_config or {}))
        self.llm_config = PretrainedConfig(**(llm_config or {}))
        super().__init__(**rest)
"""
_CONFIG = {
    "architectures": ["InternVLChatModel"],
    "auto_map": {"AutoConfig": "configuration_internvl_chat.InternVLChatConfig"},
    "model_type": "internvl_chat",
    "dtype": "float16",
    "dynamic_image_size": True,
    "force_image_size": 448,
    "downsample_ratio": 0.5,
    "min_dynamic_patch": 1,
    "max_dynamic_patch": 12,
    "use_thumbnail": True,
    "vision_config": {"image_size": 448, "patch_size": 14},
    "llm_config": {"architectures": ["InternLM2ForCausalLM"], "max_position_embeddings": 32768},
}


def stub_environment(root: Path, lmdeploy: Path) -> Path:
    """Make an environment whose Python runs lmdeploy of another one with the stub engine."""
    environment = root / "stub-env"
    (environment / "bin").mkdir(parents=True)
    program = environment / "bin" / "python"
    program.write_text(f"#!{lmdeploy / 'bin' / 'python'}\n{Path(__file__).read_text()}")
    program.chmod(0o755)
    return environment


def requests_to(environment: Path) -> list[dict[str, Any]]:
    """Requests as the engine saw them: `prompt`, a mark for each picture, and `pictures`, the tokens of each."""
    return [json.loads(line) for line in (environment / "requests").read_text().splitlines()]


def write_repository(folder: Path) -> None:
    """Write a repository in the format of InternVL2: configuration with its code, and a tokenizer of single bytes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    (folder / "configuration_internvl_chat.py").write_text(_CONFIG_CODE)
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "model_max_length": 32768}))


def byte_tokenizer() -> dict[str, Any]:
    """Return byte-level BPE without merges, in the form of the library `tokenizers`."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + n) for n, byte in enumerate(byte for byte in range(256) if byte not in letters)}
    vocabulary = {letters[byte]: byte for byte in range(256)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [{"id": 256 + n, "content": name, **flags} for n, name in enumerate(SPECIAL)],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


class _Instance:
    """Stub of an engine's instance: answers the question at once."""

    def __init__(self, engine: _Engine) -> None:
        self.engine = engine

    async def async_stream_infer(
        self, _: int, input_ids: list[int], gen_config: Any, **__: object
    ) -> AsyncIterator[Any]:
        from lmdeploy.messages import EngineOutput, ResponseType

        tokenizer, image = self.engine.tokenizer, 256 + SPECIAL.index(IMAGE)
        kept = [token for place, token in enumerate(input_ids) if token != image or input_ids[place - 1] != image]
        prompt = tokenizer.decode(kept, skip_special_tokens=False)
        runs = "".join("i" if token == image else " " for token in input_ids).split()
        with (Path(__file__).parents[1] / "requests").open("a") as file:
            file.write(json.dumps({"prompt": prompt, "pictures": list(map(len, runs))}) + "\n")
        if gen_config.response_format is None:
            reply = WHO if "[Number]" in prompt.rpartition("<|im_start|>user")[2] else WHAT
            tokens = [*tokenizer.encode(reply, add_special_tokens=False), 256 + SPECIAL.index("<|im_end|>")]
        else:
            tokens = self.engine.random_tokens(gen_config.response_format)
        yield EngineOutput(ResponseType.FINISH, tokens)

    async def async_cancel(self, session_id: int) -> None:
        pass


class _Engine:
    """Stub of TurboMind."""

    def __init__(self, tokenizer: Any, engine_config: Any) -> None:
        self.tokenizer, self.engine_config = tokenizer, engine_config
        self.random = random.Random(0)

    def create_instance(self) -> _Instance:
        return _Instance(self)

    def start_loop(self) -> bool:
        return True

    def random_tokens(self, response_format: dict[str, Any]) -> list[int]:
        """Draw tokens as a random network would under the grammar."""
        import xgrammar
        from lmdeploy._guided_decoding import compile_response_format

        vocabulary = xgrammar.TokenizerInfo.from_huggingface(self.tokenizer)
        matcher = xgrammar.GrammarMatcher(
            compile_response_format(xgrammar.GrammarCompiler(vocabulary), response_format)
        )
        mask, tokens = xgrammar.allocate_token_bitmask(1, vocabulary.vocab_size), []
        while not matcher.is_terminated():
            matcher.fill_next_token_bitmask(mask)
            allowed = [token for token in range(vocabulary.vocab_size) if mask[0, token // 32] >> (token % 32) & 1]
            tokens.append(self.random.choice(allowed))
            assert matcher.accept_token(tokens[-1])
        return tokens

    async def get_health_status(self) -> dict[str, Any]:
        return {"alive": True, "message": "", "schedule_metrics": None}

    def get_schedule_metrics(self) -> Any:
        from lmdeploy.messages import ScheduleMetrics

        return ScheduleMetrics()

    def close(self) -> None:
        pass


def _run() -> None:
    """Run lmdeploy's command line with the stub in place of the GPU."""
    import lmdeploy.archs
    import lmdeploy.cli.serve
    import torch
    from lmdeploy.serve.core.async_engine import AsyncEngine

    def build(self: Any, model_path: str, backend_config: Any = None, **_: object) -> _Engine:
        return _Engine(self.tokenizer.model.model, backend_config)

    lmdeploy.archs.autoget_backend = lambda *_, **__: "turbomind"
    lmdeploy.cli.serve.get_max_batch_size = lambda _: 16
    torch.cuda.mem_get_info = lambda _=0: (0, 0)
    AsyncEngine._build_turbomind = build
    del sys.argv[1:3]  # -m lmdeploy
    lmdeploy.cli.run()


if __name__ == "__main__":
    _run()
