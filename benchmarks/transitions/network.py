"""Network of transitions: stacked spatial and dilated temporal convolutions on tiny pictures, after TransNet V2.

Souček and Lokoč, "TransNet V2", arXiv 2008.04838. It is thirty times smaller, and tells mixed frames from boundaries.

Tensor names: B windows, T frames, C channels, H rows, W columns, P pixels, D features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, normalize, pad, relu

BESIDE = 24
"""Neighbours on each side with which a frame is compared."""


class Block(nn.Module):
    """Spatial convolution, then temporal ones of dilation 1, 2, 4 and 8 side by side; returns 4 `filters` channels."""

    def __init__(self, channels: int, filters: int, stride: int = 1) -> None:
        super().__init__()
        self.spatial = nn.Conv2d(channels, 2 * filters, 3, stride, padding=1, bias=False)
        self.temporal = nn.ModuleList(
            nn.Conv2d(2 * filters, filters, (3, 1), padding=(rate, 0), dilation=(rate, 1), bias=False)
            for rate in (1, 2, 4, 8)
        )
        self.norm = nn.BatchNorm2d(4 * filters)

    def forward(self, features_FCHW: Tensor, windows: int) -> Tensor:
        """Return features of all frames of all windows, F = B T."""
        spatial_FCHW = self.spatial(features_FCHW)
        height, width = spatial_FCHW.shape[2:]
        spatial_BCTP = (
            spatial_FCHW.flatten(2).reshape(windows, -1, spatial_FCHW.shape[1], height * width).transpose(1, 2)
        )
        found_BCTP: Tensor = self.norm(torch.cat([one(spatial_BCTP) for one in self.temporal], dim=1))
        found_BTCP = found_BCTP.transpose(1, 2)
        return found_BTCP.reshape(-1, found_BCTP.shape[1], height, width)


class TransitionNetwork(nn.Module):
    """Logits of two things for each frame: it is mixed of two scenes; a new scene begins with it."""

    def __init__(self, filters: int = 8, width: int = 96) -> None:
        super().__init__()
        self.first = Block(3, filters, stride=2)
        self.second = Block(4 * filters, 2 * filters)
        self.third, self.fourth = Block(8 * filters, 3 * filters), Block(12 * filters, 3 * filters)
        self.flat = nn.Linear(12 * filters * 3 * 6, width)
        self.compared = nn.ModuleList(nn.Linear(size, 32) for size in (3 * 9 * 16, 24 * filters))
        self.likeness = nn.Linear(2 * (2 * BESIDE + 1), 64)
        self.mixing = nn.ModuleList((nn.Conv1d(width + 64, width, 5, padding=2), nn.Conv1d(width, width, 3, padding=1)))
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 2)

    def forward(self, pictures_BTHWC: Tensor) -> Tensor:
        """Return logits (B, T, 2) for pictures of 27x48, BGR, 0 to 255."""
        windows = pictures_BTHWC.shape[0]
        pictures_FCHW = pictures_BTHWC.flatten(0, 1).permute(0, 3, 1, 2) / 127.5 - 1
        first = relu(self.first(pictures_FCHW, windows))
        second = avg_pool2d(relu(self.second(first, windows)), 2)
        third = relu(self.third(second, windows))
        fourth_FCHW = relu(third + self.fourth(third, windows))
        flat_FD = relu(self.flat(avg_pool2d(fourth_FCHW, 2).flatten(1)))
        # likeness to the neighbours: of the small picture itself, and of what the blocks see in it
        tiny_FD = avg_pool2d(pictures_FCHW, 3).flatten(1)
        seen_FD = torch.cat([one.mean((2, 3)) for one in (first, second, fourth_FCHW)], dim=1)
        pairs = zip(self.compared, (tiny_FD - tiny_FD.mean(1, keepdim=True), seen_FD), strict=True)
        alike = [_likeness(layer(one).reshape(windows, -1, 32)) for layer, one in pairs]
        likeness_BTD = relu(self.likeness(torch.cat(alike, dim=2)))
        both_BDT = torch.cat([flat_FD.reshape(windows, -1, flat_FD.shape[1]), likeness_BTD], dim=2).transpose(1, 2)
        for layer in self.mixing:
            both_BDT = relu(layer(both_BDT))
        logits_BT2: Tensor = self.head(self.drop(both_BDT.transpose(1, 2)))
        return logits_BT2


def _likeness(features_BTD: Tensor) -> Tensor:
    """Return the cosine of each frame with its neighbours, (B, T, 2 BESIDE + 1); 0 beyond the ends."""
    unit_BTD = normalize(features_BTD, dim=2)
    padded_BTD = pad(unit_BTD, (0, 0, BESIDE, BESIDE))
    frames = features_BTD.shape[1]
    return torch.stack([(unit_BTD * padded_BTD[:, at : at + frames]).sum(2) for at in range(2 * BESIDE + 1)], dim=2)
