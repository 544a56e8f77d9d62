"""The network of transitions over a stream of pictures: each picture passes through every layer once.

In training, a layer sees a whole window. Here it gets the next frames of a film and keeps, as its state, the last
frames of its input that its convolution over time still needs. So a layer's output lags, and what joins it waits.

Tensor names: T frames, C channels, H rows, W columns, P pixels, D features.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv1d, conv2d, normalize, relu

from benchmarks.transitions.network import BESIDE, Block, TransitionNetwork
from pipeline.stages.cutting.transition_scores import HEIGHT, WIDTH

REACH = 8
"""Largest dilation of a block, so its lag."""
_BLOCKS = 4


class Stream(nn.Module):
    """Scores of the next frames of a film, in place of logits; the network lags by `lag` frames.

    Inputs and outputs are the pictures (T, 27, 48, 3) or scores (T, 2), and one state per layer.
    """

    lag = _BLOCKS * REACH + BESIDE + 2 + 1

    def __init__(self, network: TransitionNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pictures_THWC: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """Return the scores of the frames that entered `lag` frames ago, and the new states."""
        net, self._old, self._new = self.network, list(states), list[Tensor]()
        pictures_TCHW = pictures_THWC.permute(0, 3, 1, 2) / 127.5 - 1
        first = relu(self._block(net.first, pictures_TCHW))
        second = avg_pool2d(relu(self._block(net.second, first)), 2)
        third = relu(self._block(net.third, second))
        fourth = self._block(net.fourth, third)
        fourth = relu(self._late(third, REACH) + fourth)
        flat_TD = relu(net.flat(avg_pool2d(fourth, 2).flatten(1)))
        # 1. Likeness to the neighbours, as the network has it, once all parts lag alike.
        tiny_TD = self._late(avg_pool2d(pictures_TCHW, 3).flatten(1), _BLOCKS * REACH)
        means = [self._late(one.mean((2, 3)), late) for one, late in ((first, 3 * REACH), (second, 2 * REACH))]
        seen_TD = torch.cat([*means, fourth.mean((2, 3))], dim=1)
        alike = [
            self._likeness(layer(one))
            for layer, one in zip(net.compared, (tiny_TD - tiny_TD.mean(1, keepdim=True), seen_TD), strict=True)
        ]
        likeness_TD = relu(net.likeness(torch.cat(alike, dim=1)))
        # 2. Both together, over a few frames.
        both_TD = torch.cat([self._late(flat_TD, BESIDE), likeness_TD], dim=1)
        for layer in net.mixing:
            assert isinstance(layer, nn.Conv1d)
            whole_TD = self._with_state(both_TD, layer.kernel_size[0] - 1)
            both_TD = relu(conv1d(whole_TD.T[None], layer.weight, layer.bias)[0].T)
        return (torch.sigmoid(net.head(both_TD)), *self._new)

    def _with_state(self, frames: Tensor, kept: int) -> Tensor:
        """Return the kept frames before these and these; keep the last ones."""
        old = self._old.pop(0) if self._old else torch.zeros(kept, *frames.shape[1:])
        whole = torch.cat([old, frames])
        self._new.append(whole[-kept:])
        return whole

    def _late(self, frames: Tensor, frames_late: int) -> Tensor:
        return self._with_state(frames, frames_late)[: frames.shape[0]]

    def _block(self, block: Block, features_TCHW: Tensor) -> Tensor:
        whole_TCHW = self._with_state(block.spatial(features_TCHW), 2 * REACH)
        frames, (height, width) = features_TCHW.shape[0], whole_TCHW.shape[2:]
        whole_1CTP = whole_TCHW.flatten(2).transpose(0, 1)[None]
        found = []
        for layer in block.temporal:
            assert isinstance(layer, nn.Conv2d)
            rate = layer.dilation[0]
            part_1CTP = whole_1CTP[:, :, REACH - rate : REACH + frames + rate]
            found.append(conv2d(part_1CTP, layer.weight, dilation=(rate, 1)))
        found_1CTP: Tensor = block.norm(torch.cat(found, dim=1))
        return found_1CTP[0].transpose(0, 1).reshape(frames, -1, height, width)

    def _likeness(self, features_TD: Tensor) -> Tensor:
        unit_TD, frames = normalize(features_TD, dim=1), features_TD.shape[0]
        whole_TD = self._with_state(unit_TD, 2 * BESIDE)
        middle_TD = whole_TD[BESIDE : BESIDE + frames]
        return torch.stack([(middle_TD * whole_TD[at : at + frames]).sum(1) for at in range(2 * BESIDE + 1)], dim=1)


def write_onnx(network: TransitionNetwork, path: Path, frames: int) -> None:
    """Write the network as the stage `cut` runs it, some frames at a time; needs the package onnx."""
    stream = Stream(network).eval()
    pictures_THWC = torch.zeros(frames, HEIGHT, WIDTH, 3)
    with torch.no_grad():
        _, *states = stream(pictures_THWC)
    empty = tuple(torch.zeros_like(state) for state in states)
    numbers = range(len(empty))
    names = {
        "input_names": ["pictures", *(f"state{number}" for number in numbers)],
        "output_names": ["scores", *(f"next{number}" for number in numbers)],
    }
    torch.onnx.export(stream, (pictures_THWC, *empty), str(path), dynamo=False, **names)
