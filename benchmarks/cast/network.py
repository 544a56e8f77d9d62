"""Network of pictures that ships with the package, fitted to drawn figures and to half of Big Buck Bunny.

python -m benchmarks.cast.network --out pipeline/stages/embedding/pictures.onnx

The vector of a picture has two halves. The first is what the trunk of PP-OCRv4's text detector sees (PaddlePaddle,
Apache-2.0, as in the package rapidocr): mean and spread of its channels, whole and by quarter, along the principal
directions of the pictures. The second is a histogram of the colour words of the pictures. No label of a clip is used.
Nothing here is random but by seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.utils import Extractor

from benchmarks.cast.films import drawn_figures, training_half
from examples.world.textures import Picture
from pipeline.core.onnx_network import load_network
from pipeline.stages.overlays import MODEL

WIDTH, HEIGHT = 224, 128
THIRD, FOURTH = "p2o.Add.71", "p2o.Add.147"
"""Last values of the third and fourth stage of the trunk: 96 channels of 16x28, and 192 of 8x14."""
WORDS, KEPT, SHARPNESS = 96, 64, 200.0
_OPPONENT_33 = np.array([[0.35, 0.35, 0.35], [0.8, -0.8, 0.0], [0.5, 0.5, -1.0]]) / 2
"""From red, green and blue, -1..1, to light, red against green, and yellow against blue."""
_FIGURES, _DRAWINGS, _PER_SECOND = 60, 10, 2
BLOCKS = 96, 192, 768, 192
"""Sizes of the statistics: mean of the third stage; mean, means of quarters and spread of the fourth."""
POINTS = 40
"""Points of each picture whose colours are kept."""
FACTS = {
    "licence": "Apache-2.0",
    "trunk": "text detector of PP-OCRv4, mobile, by PaddlePaddle, as in the package rapidocr; Apache-2.0",
    "fitted_to": f"{_FIGURES * _DRAWINGS} drawings of examples/world, and the first 298 s of Big Buck Bunny "
    "(c) 2008 Blender Foundation, CC BY 3.0, peach.blender.org; without labels",
    "made_by": "python -m benchmarks.cast.network",
}
"""Metadata of the file."""


def make(out: Path) -> None:
    """Fit the network and write it with its card."""
    trunk = _trunk()
    fitted_to = training_half(_PER_SECOND), drawn_figures(_FIGURES, _DRAWINGS)
    seen, colours = zip(*(_seen(pictures, trunk) for pictures in fitted_to), strict=True)
    seen_ND = np.concatenate(seen).astype(np.float64)
    mean_D, spread_D = seen_ND.mean(axis=0), seen_ND.std(axis=0) + 1e-3
    scale_D = spread_D * _block_lengths()
    projection_DK = _projection((seen_ND - mean_D) / scale_D)
    colours_N3 = np.concatenate(colours)
    words_W3 = _colour_words(colours_N3)
    usual_W = _usual(colours_N3, words_W3)
    model = _with_vectors(trunk, mean_D, projection_DK / scale_D[:, None], words_W3, usual_W)
    helper.set_model_props(model, FACTS)
    onnx.checker.check_model(model)
    onnx.save(model, str(out))
    write_preparation(out.with_suffix(".json"))
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB")


def _trunk() -> onnx.ModelProto:
    """Return the text detector up to its fourth stage."""
    whole = onnx.shape_inference.infer_shapes(
        onnx.load_from_string((files("rapidocr") / "models" / MODEL).read_bytes())
    )
    trunk: onnx.ModelProto = Extractor(whole).extract_model([whole.graph.input[0].name], [THIRD, FOURTH])
    return trunk


def _seen(pictures: Iterable[Picture], trunk: onnx.ModelProto) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return what the trunk sees on pictures, and colours of some of their points."""
    session = load_network(_with_statistics(trunk).SerializeToString())
    dice = np.random.default_rng(0)
    seen, colours = [], []
    for picture_HWC in pictures:
        small_HWC = cv2.resize(picture_HWC, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)[..., ::-1]
        input_HWC = small_HWC.astype(np.float32) / 127.5 - 1
        seen.append(session.run(None, {"pixel_values": input_HWC.transpose(2, 0, 1)[None]})[0][0])
        colours.append(dice.permutation(input_HWC.reshape(-1, 3))[:POINTS])
    return np.stack(seen), np.concatenate(colours)


def _block_lengths() -> NDArray[np.float64]:
    """Return the root of the length of its block for each value, so that blocks count alike."""
    return np.concatenate([np.full(size, np.sqrt(size)) for size in BLOCKS])


def _projection(values_ND: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the principal directions to keep, shape (values, kept)."""
    _, _, directions_DD = np.linalg.svd(values_ND - values_ND.mean(axis=0), full_matrices=False)
    kept: NDArray[np.float64] = directions_DD[:KEPT].T
    return kept


def _colour_words(colours_N3: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the middles of clusters of colours, opponent, by Lloyd's algorithm."""
    dice = np.random.default_rng(0)
    points_N3 = np.concatenate([colours_N3, dice.uniform(-1, 1, (len(colours_N3) // 4, 3))]) @ _OPPONENT_33.T
    points_N3 = dice.permutation(points_N3)[:20_000]
    words_W3 = points_N3[:WORDS].copy()
    for _ in range(15):
        nearest_N = ((points_N3[:, None] - words_W3) ** 2).sum(axis=2).argmin(axis=1)
        for word in range(WORDS):
            if (nearest_N == word).any():
                words_W3[word] = points_N3[nearest_N == word].mean(axis=0)
    return words_W3


def _usual(colours_N3: NDArray[np.float32], words_W3: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the roots of the histograms of all pictures."""
    logits_NW = -SHARPNESS * (((colours_N3 @ _OPPONENT_33.T)[:, None] - words_W3) ** 2).sum(axis=2)
    share_NW = np.exp(logits_NW - logits_NW.max(axis=1, keepdims=True))
    share_NW /= share_NW.sum(axis=1, keepdims=True)
    usual_W: NDArray[np.float64] = np.sqrt(share_NW.reshape(-1, POINTS, WORDS).mean(axis=1)).mean(axis=0)
    return usual_W


class _Graph:
    """Trunk to which nodes are added; it takes RGB pictures and names values by the operator."""

    def __init__(self, trunk: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(trunk)
        name = self.model.graph.input[0].name
        del self.model.graph.input[:], self.model.graph.output[:], self.model.graph.value_info[:]
        shape: list[str | int | None] = ["batch_size", 3, HEIGHT, WIDTH]
        self.model.graph.input.append(helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, shape))
        turned = helper.make_node("Gather", ["pixel_values", self.constant(np.array([2, 1, 0]))], [name], axis=1)
        self.model.graph.node.insert(0, turned)

    def constant(self, value: NDArray[Any]) -> str:
        """Add a constant and return its name."""
        name = f"constant{len(self.model.graph.initializer)}"
        kept = value if value.dtype.kind == "i" else value.astype(np.float32)
        self.model.graph.initializer.append(numpy_helper.from_array(kept, name))
        return name

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its value."""
        name = output or f"{operator}{len(self.model.graph.node)}"
        self.model.graph.node.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def statistics(self) -> str:
        """Add mean of the third stage; mean, means of quarters and spread of the fourth; return their name."""
        mean4 = self.add("GlobalAveragePool", FOURTH)
        square = self.add("GlobalAveragePool", self.add("Mul", FOURTH, FOURTH))
        variance = self.add("Relu", self.add("Sub", square, self.add("Mul", mean4, mean4)))
        quarter = [HEIGHT // 32, WIDTH // 32]
        quarters = self.add("AveragePool", FOURTH, kernel_shape=quarter, strides=quarter)
        parts = (self.add("GlobalAveragePool", THIRD), mean4, quarters, self.add("Sqrt", variance))
        return self.add("Concat", *(self.add("Flatten", part) for part in parts), output="seen", axis=1)

    def unit(self, value: str) -> str:
        """Add the scaling of vectors to length 1."""
        return self.add("Div", value, self.add("ReduceL2", value, axes=[1], keepdims=1))

    def done(self, output: str, size: int) -> onnx.ModelProto:
        """Return the network with one output."""
        value = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch_size", size])
        self.model.graph.output.append(value)
        return self.model


def _with_statistics(trunk: onnx.ModelProto) -> onnx.ModelProto:
    graph = _Graph(trunk)
    return graph.done(graph.statistics(), sum(BLOCKS))


def _with_vectors(
    trunk: onnx.ModelProto,
    mean_D: NDArray[np.float64],
    projection_DK: NDArray[np.float64],
    words_W3: NDArray[np.float64],
    usual_W: NDArray[np.float64],
) -> onnx.ModelProto:
    graph = _Graph(trunk)
    centred = graph.add("Sub", graph.statistics(), graph.constant(mean_D))
    seen = graph.unit(graph.add("MatMul", centred, graph.constant(projection_DK)))
    weights_W3 = 2 * SHARPNESS * words_W3 @ _OPPONENT_33
    bias_W = -SHARPNESS * (words_W3**2).sum(axis=1)
    small = graph.add("AveragePool", "pixel_values", kernel_shape=[2, 2], strides=[2, 2])
    logits = graph.add("Conv", small, graph.constant(weights_W3[:, :, None, None]), graph.constant(bias_W))
    share = graph.add("Softmax", graph.add("Transpose", logits, perm=[0, 2, 3, 1]), axis=3)
    root = graph.add("Sqrt", graph.add("ReduceMean", share, axes=[1, 2], keepdims=0))
    colours = graph.unit(graph.add("Sub", root, graph.constant(usual_W)))
    both = graph.add("Concat", seen, colours, axis=1)
    graph.add("Mul", both, graph.constant(np.array(0.5**0.5)), output="image_embeds")
    return graph.done("image_embeds", projection_DK.shape[1] + len(words_W3))


def write_preparation(path: Path) -> None:
    """Write how a picture is prepared for the network, as transformers does."""
    said = {
        "size": {"height": HEIGHT, "width": WIDTH},
        "resample": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "rescale_factor": 1 / 255,
    }
    path.write_text(json.dumps(said, indent=2) + "\n")


def main() -> None:
    """Make the network that the options name."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=Path("pictures.onnx"))
    make(options.parse_args().out)


if __name__ == "__main__":
    main()
