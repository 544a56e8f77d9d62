"""Small random networks in ONNX files with the inputs and outputs of published ones: encoders, detectors, words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

SIDE, SIZE = 32, 16
WORDS = ("[UNK]", "red", "green", "blue", "field")


def save(path: Path, nodes: Sequence[Any], inputs: Any, outputs: Any, weights: dict[str, NDArray[Any]]) -> Path:
    """Write a network; inputs and outputs are (name, element type, shape)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [[helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(list(nodes), "network", *values, initializer=constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


def picture_encoder(
    path: Path,
    *,
    side: int | str = SIDE,
    batch: int | str = "batch_size",
    names: tuple[str, str] = ("pixel_values", "image_embeds"),
    seed: int = 0,
) -> Path:
    """Encoder of a picture scaled to 2x2 pixels; a free side takes pictures of any size."""
    random = np.random.default_rng(seed)
    weights = {"w": random.normal(size=(12, SIZE)).astype(np.float32), "s": np.array([2, 2], np.int64)}
    nodes = [
        helper.make_node("Shape", [names[0]], ["all"]),
        helper.make_node("Slice", ["all", "zero", "two"], ["front"]),
        helper.make_node("Concat", ["front", "s"], ["wanted"], axis=0),
        helper.make_node("Resize", [names[0], "", "", "wanted"], ["small"], mode="linear"),
        helper.make_node("Flatten", ["small"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], [names[1]]),
    ]
    weights |= {"zero": np.array([0], np.int64), "two": np.array([2], np.int64)}
    shapes = [batch, 3, side, side], [batch, SIZE]
    return save(
        path, nodes, [(names[0], TensorProto.FLOAT, shapes[0])], [(names[1], TensorProto.FLOAT, shapes[1])], weights
    )


def detector(
    path: Path, boxes: Sequence[Sequence[float]], *, side: int = 64, end_to_end: bool = False, names: str = "person"
) -> Path:
    """Detector that finds the same boxes in every picture, each as (middle x, middle y, width, height, score)."""
    rows = np.array(boxes, np.float32).reshape(-1, 5)
    if end_to_end:
        corners = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], axis=1)
        found = np.concatenate([corners, rows[:, 4:], np.zeros((len(rows), 1))], axis=1).astype(np.float32)[None]
    else:
        found = rows.T[None].copy()
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "nothing"], ["none"]),
        helper.make_node("Add", ["found", "none"], ["output0"]),
    ]
    weights = {"found": found, "nothing": np.array(0, np.float32)}
    values = [("images", TensorProto.FLOAT, [1, 3, side, side])], [("output0", TensorProto.FLOAT, list(found.shape))]
    save(path, nodes, *values, weights)
    model = onnx.load(str(path))
    helper.set_model_props(model, {"names": str({0: names}), "imgsz": f"[{side}, {side}]"})
    onnx.save(model, str(path))
    return path


def word_encoder(folder: Path, vectors: NDArray[np.float32], kind: str = "clip") -> Path:
    """Text network of a folder: the mean of the vectors of its words, one for each of `WORDS`."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["each"]),
        helper.make_node("ReduceMean", ["each"], ["text_embeds"], axes=[1], keepdims=0),
    ]
    values = (
        [("input_ids", TensorProto.INT64, ["batch", "length"])],
        [("text_embeds", TensorProto.FLOAT, ["batch", SIZE])],
    )
    save(folder / "onnx" / "text_model.onnx", nodes, *values, {"table": vectors})
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    return folder


def processor(folder: Path, **changes: Any) -> Path:
    """`preprocessor_config.json` as CLIP has it, for pictures of `SIDE`."""
    said = {
        "size": {"shortest_edge": SIDE},
        "crop_size": {"height": SIDE, "width": SIDE},
        "resample": 3,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "rescale_factor": 1 / 255,
    }
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(said | changes))
    return path


def cached(hub: Path, folder: str) -> Path:
    """Path of a network in the cache of the hub, whose repository has no file beside it."""
    repository, commit = hub / "models--owner--name", "a" * 40
    for name in ("preprocessor_config.json", "config.json", "tokenizer.json"):
        missing = repository / ".no_exist" / commit / folder / name
        missing.parent.mkdir(parents=True, exist_ok=True)
        missing.touch()
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    return repository / "snapshots" / commit / folder / "model.onnx"
