"""The network of transitions in training and in the stage `cut`: both give one film the same scores."""

from __future__ import annotations

import torch

from benchmarks.transitions.network import TransitionNetwork
from benchmarks.transitions.stream import Stream
from pipeline.stages.cutting.transition_scores import HEIGHT, LAG, WIDTH


def test_a_stream_has_the_scores_of_a_window() -> None:
    assert Stream.lag == LAG
    torch.manual_seed(0)
    network = TransitionNetwork().eval()
    beside = 2 * Stream.lag
    pictures_THWC = torch.randint(0, 256, (2 * beside + 32, HEIGHT, WIDTH, 3)).float()
    stream, states, scores = Stream(network), list[torch.Tensor](), []
    with torch.no_grad():
        window_TD = torch.sigmoid(network(pictures_THWC[None]))[0]
        for pictures in pictures_THWC.split(4):
            found, *states = stream(pictures, *states)
            scores.append(found)
    inside = slice(beside, beside + 32)
    late = slice(inside.start + Stream.lag, inside.stop + Stream.lag)
    torch.testing.assert_close(torch.cat(scores)[late], window_TD[inside], atol=1e-5, rtol=0)
