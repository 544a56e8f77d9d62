"""Networks behind two protocols: encoders of pictures, and detectors of figures; each an ONNX file on one CPU thread.

A picture is prepared as `preprocessor_config.json` says (transformers' processors of CLIP, SigLIP, DINO). Without that
file it is prepared as for CCIP (dghs-imgutils, `metrics/ccip.py`): squeezed bilinearly to the input, 384x384 if this is
free, with CLIP's mean and deviation. Detectors are YOLO exports by Ultralytics, run as dghs-imgutils does
(`generic/yolo.py`): the picture is squeezed to the size in the metadata, values are 0..1, and boxes are in its pixels.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.core.errors import UserError
from pipeline.core.onnx_network import load_network
from pipeline.stages.embedding.network_files import PREPARATION, NetworkFiles
from pipeline.video.containers import Picture

if TYPE_CHECKING:
    import onnxruntime

_MEAN, _DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Of CLIP."""
_FREE_SIDE = 384
_VECTORS = ("image_embeds", "text_embeds", "embeddings", "pooler_output", "output")
"""Outputs with the vector of a whole picture or text, the best first."""
_YOLO_SIDE, _OVERLAP, _MOST_FIGURES = 640, 0.5, 32
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}


@dataclass(frozen=True)
class Figure:
    """A figure on a picture: left, top, right and bottom in pixels, the detector's word for it, and score, 0..1."""

    box: tuple[int, int, int, int]
    label: str
    score: float


class PictureEncoder(Protocol):
    """Network that turns pictures into vectors."""

    def vectors(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        """Return a vector of length 1 for each picture, BGR uint8 of any size: shape (pictures, size)."""
        ...


class FigureDetector(Protocol):
    """Network that finds figures, such as persons or heads."""

    def figures(self, picture_HWC: Picture) -> list[Figure]:
        """Return the figures on a picture, BGR uint8, the best first; at most 32."""
        ...


@dataclass(frozen=True)
class Preparation:
    """Way from a picture to the input of an encoder."""

    shortest: int | None
    """Length to which the shorter side is scaled; None: the picture is squeezed to `size`."""
    size: tuple[int, int]
    """Width and height of the input, cut from the middle of the scaled picture."""
    resampling: int
    """Filter, by its number in Pillow."""
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    factor: float = 1 / 255

    @classmethod
    def of(cls, files: NetworkFiles, size: tuple[int, int]) -> Preparation:
        """Read the file beside a network whose input has this size. Raises UserError if it asks for another one."""
        path = files.beside.get(PREPARATION)
        if path is None:
            return cls(None, size, Image.Resampling.BILINEAR, _MEAN, _DEVIATION)
        try:
            said = json.loads(path.read_bytes())
            scaled, cut = _side(said["size"]), _side(said.get("crop_size") or said["size"])
            return cls(
                shortest=scaled if isinstance(scaled, int) else None,
                size=(cut, cut) if isinstance(cut, int) else cut,
                resampling=Image.Resampling(said.get("resample", Image.Resampling.BICUBIC)),
                mean=tuple(said.get("image_mean", _MEAN)),
                deviation=tuple(said.get("image_std", _DEVIATION)),
                factor=said.get("rescale_factor", 1 / 255),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not the settings of a transformers picture processor ({error!r})") from error

    def of_picture(self, picture_HWC: Picture) -> NDArray[np.float32]:
        """Return the input for a picture, BGR: shape (3, height, width), RGB."""
        picture = Image.fromarray(np.ascontiguousarray(picture_HWC[..., ::-1]))
        width, height = self.size
        if self.shortest is not None:
            scale = self.shortest / min(picture.size)
            whole = (max(width, int(picture.width * scale)), max(height, int(picture.height * scale)))
            left, top = (whole[0] - width) // 2, (whole[1] - height) // 2
            scaled = picture.resize(whole, self.resampling).crop((left, top, left + width, top + height))
        else:
            scaled = picture.resize(self.size, self.resampling)
        values_HWC = np.asarray(scaled, np.float32) * np.float32(self.factor)
        normal_HWC = (values_HWC - np.array(self.mean, np.float32)) / np.array(self.deviation, np.float32)
        return np.ascontiguousarray(normal_HWC.transpose(2, 0, 1), np.float32)


class OnnxPictureEncoder:
    """Encoder in an ONNX file. Raises UserError if the file is no such network."""

    def __init__(self, files: NetworkFiles) -> None:
        self._session = open_network(files)
        self._input, size = picture_input(files, self._session, _FREE_SIDE)
        self._is_free = not all(isinstance(side, int) for side in self._input.shape[2:])
        self.preparation = Preparation.of(files, size)
        if not self._is_free and self.preparation.size != size:
            raise UserError(
                f"{files.network}: takes pictures of {size[0]}x{size[1]}, but its preprocessor_config.json makes "
                f"{self.preparation.size[0]}x{self.preparation.size[1]}; take both files from one repository"
            )
        self._output = vector_output(files, self._session)

    def vectors(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        """Return a vector of length 1 for each picture."""
        inputs_NCHW = np.stack([self.preparation.of_picture(picture) for picture in pictures])
        batches = [inputs_NCHW] if not isinstance(self._input.shape[0], int) else inputs_NCHW[:, None]
        kind = _TYPES[self._input.type]
        found = [
            self._session.run([self._output], {self._input.name: batch_NCHW.astype(kind)})[0] for batch_NCHW in batches
        ]
        return unit(np.concatenate(found))


class YoloDetector:
    """Detector in an ONNX file by Ultralytics (YOLO 8 to 12). Raises UserError if the file is no such network."""

    def __init__(self, files: NetworkFiles, least_score: float) -> None:
        self._files, self._least = files, least_score
        self._session = open_network(files)
        said = self._session.get_modelmeta().custom_metadata_map
        try:
            names = dict(ast.literal_eval(said["names"]))
            self._labels = [str(names[number]) for number in range(len(names))]
            side = json.loads(said["imgsz"])[0] if "imgsz" in said else _YOLO_SIDE
        except (KeyError, ValueError, SyntaxError, TypeError) as error:
            raise UserError(f"{files.network}: no YOLO detector, its metadata name no classes ({error!r})") from error
        self._input, self._size = picture_input(files, self._session, side)

    def figures(self, picture_HWC: Picture) -> list[Figure]:
        """Return the figures on a picture, the best first; of those that overlap by half, the best."""
        height, width = picture_HWC.shape[:2]
        picture = Image.fromarray(np.ascontiguousarray(picture_HWC[..., ::-1])).resize(self._size)
        input_1CHW = (np.asarray(picture, np.float32) / 255).transpose(2, 0, 1)[None].astype(_TYPES[self._input.type])
        output = self._session.run(None, {self._input.name: input_1CHW})[0][0].astype(np.float32)
        corners_N4, score_N, label_N = self._read(output)
        chosen = np.flatnonzero(score_N > self._least)
        corners_N4, score_N, label_N = corners_N4[chosen], score_N[chosen], label_N[chosen]
        corners_N4 *= np.array([width / self._size[0], height / self._size[1]] * 2, np.float32)
        corners_N4 = np.clip(corners_N4, 0, np.array([width, height] * 2, np.float32)).round()
        sides_N4 = np.concatenate([corners_N4[:, :2], corners_N4[:, 2:] - corners_N4[:, :2]], axis=1)
        best = cv2.dnn.NMSBoxes(sides_N4.tolist(), score_N.tolist(), self._least, _OVERLAP)
        found = [index for index in best if sides_N4[index, 2:].min() >= 1]
        return [
            Figure(
                (int(left), int(top), int(right), int(bottom)), self._labels[int(label_N[index])], float(score_N[index])
            )
            for index in found[:_MOST_FIGURES]
            for left, top, right, bottom in [corners_N4[index].tolist()]
        ]

    def _read(self, output: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
        """Corners in pixels of the input, scores and classes, of an output with or without its own choice of boxes."""
        classes = len(self._labels)
        if output.ndim == 2 and output.shape[0] == 4 + classes:
            middle_N2, sides_N2 = output[:2].T, output[2:4].T
            corners_N4 = np.concatenate([middle_N2 - sides_N2 / 2, middle_N2 + sides_N2 / 2], axis=1)
            return corners_N4, output[4:].max(axis=0), output[4:].argmax(axis=0)
        if output.ndim == 2 and output.shape[1] == 6:
            return output[:, :4].copy(), output[:, 4], output[:, 5].astype(np.int64).clip(0, classes - 1)
        raise UserError(
            f"{self._files.network}: its output is {output.shape}, not (4 + {classes}, boxes) or (boxes, 6) as of a "
            "YOLO detector; name another `[embed] figures`"
        )


def open_network(files: NetworkFiles) -> onnxruntime.InferenceSession:
    """Open a session. Raises UserError if the file cannot be read as ONNX."""
    try:
        return load_network(files.network.read_bytes())
    except Exception as error:  # onnxruntime has a class for each fault, without a common base
        reason = str(error).strip().partition("\n")[0][:200]
        raise UserError(f"{files.network}: cannot be read as an ONNX network ({reason})") from error


def picture_input(files: NetworkFiles, session: onnxruntime.InferenceSession, free: int) -> tuple[Any, tuple[int, int]]:
    """Return the input of a network of pictures, and its width and height; free sides have `free` pixels.

    Raises:
        UserError: it takes something else than RGB pictures, one or any number at a time.
    """
    inputs = session.get_inputs()
    shape = inputs[0].shape
    takes_pictures = len(inputs) == 1 and len(shape) == 4 and inputs[0].type in _TYPES
    if not takes_pictures or shape[1] not in (3, "channels", "num_channels") or shape[0] not in (1, *_symbols(shape)):
        raise UserError(
            f"{files.network}: takes {_shapes(inputs)}, not pictures of shape (batch, 3, height, width); "
            "name another network in [embed]"
        )
    height, width = (side if isinstance(side, int) else free for side in shape[2:])
    return inputs[0], (width, height)


def vector_output(files: NetworkFiles, session: onnxruntime.InferenceSession) -> str:
    """Return the name of the output with one vector each. Raises UserError if there is none."""
    outputs = {output.name: output for output in session.get_outputs() if len(output.shape) == 2}
    if outputs:
        return str(next(name for name in (*_VECTORS, *outputs) if name in outputs))
    raise UserError(
        f"{files.network}: gives {_shapes(session.get_outputs())}, and no vectors of shape (batch, size); "
        "name an export with projection, such as vision_model.onnx of transformers.js"
    )


def unit(vectors_ND: NDArray[Any]) -> NDArray[np.float32]:
    """Return vectors scaled to length 1; zeros stay."""
    wide_ND = vectors_ND.astype(np.float32)
    scaled: NDArray[np.float32] = wide_ND / np.maximum(np.linalg.norm(wide_ND, axis=1, keepdims=True), 1e-12)
    return scaled


def _symbols(shape: Sequence[Any]) -> list[Any]:
    return [side for side in shape if not isinstance(side, int)]


def _shapes(values: Sequence[Any]) -> str:
    return ", ".join(f"{value.name} {tuple(value.shape)}" for value in values)


def _side(size: Any) -> int | tuple[int, int]:
    """Length of the shorter side, or width and height, of a size in a processor's settings."""
    if isinstance(size, int):
        return size
    return int(size["shortest_edge"]) if "shortest_edge" in size else (int(size["width"]), int(size["height"]))
