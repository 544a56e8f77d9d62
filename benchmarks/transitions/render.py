"""Drawing of planned windows in batches, on a GPU if there is one.

Tensor names: N rows, F fields, C colours, H rows of pixels, W columns; T frames, B windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample, pad

from benchmarks.transitions.schedule import Plans
from benchmarks.transitions.shots import FRAMES
from pipeline.stages.cutting.transition_scores import HEIGHT, WIDTH

TWICE = (2 * HEIGHT, 2 * WIDTH)


@dataclass(frozen=True)
class Pictures:
    """Pictures of the library: (N, 3, H, W) uint8, and the masks of its last ones, (sprites, 1, H, W) uint8."""

    frames_NCHW: Tensor
    masks_NCHW: Tensor

    def on(self, device: torch.device) -> Pictures:
        """Return the pictures in the memory of a device."""
        return Pictures(self.frames_NCHW.to(device), self.masks_NCHW.to(device))


def draw(pictures: Pictures, plans: Plans, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return pictures (B, T, 27, 48, 3), 0 to 255, and the truth (B, T, 2)."""
    base, over, mix, figures = (
        {key: torch.as_tensor(value).to(device, non_blocking=True) for key, value in plans.tables[name].items()}
        for name in ("base", "over", "mix", "figures")
    )
    held = {key: torch.as_tensor(value).to(device, non_blocking=True) for key, value in plans.frames.items()}
    windows = len(held["truth"])
    places = base["window"] * FRAMES + base["times"]
    frames_NCHW = _layer(pictures, base)
    if len(figures["window"]):
        at_base = figures["layer"] == 0
        row_of = torch.empty_like(places)
        row_of[places] = torch.arange(len(places), device=device)
        _add_figures(pictures, frames_NCHW, figures, at_base, row_of[figures["window"] * FRAMES + figures["time"]])
    frames_NCHW = frames_NCHW[torch.argsort(places)]
    if len(over["window"]):
        others = over["window"] * FRAMES + over["times"]
        other_NCHW = _layer(pictures, over)
        if len(figures["window"]):
            row_of = torch.zeros(windows * FRAMES, dtype=torch.long, device=device)
            row_of[others] = torch.arange(len(others), device=device)
            _add_figures(pictures, other_NCHW, figures, ~at_base, row_of[figures["window"] * FRAMES + figures["time"]])
        share_NHW, edge_NHW = _shares(mix, device)
        old_NCHW = frames_NCHW[others]
        mixed_NCHW = old_NCHW + (other_NCHW - old_NCHW) * share_NHW[:, None]
        tone_N = torch.rand(len(others), 3, 1, 1, device=device).round()[mix["field"] * 0]
        frames_NCHW[others] = mixed_NCHW + (tone_N - mixed_NCHW) * edge_NHW[:, None]
    veil_N4 = held["veil"].flatten(0, 1).float()
    veil_NC11, weight_N111 = veil_N4[:, :3, None, None], veil_N4[:, 3:, None, None]
    gain_N4 = held["gain"].flatten(0, 1)
    down_HW, across_HW = _coordinates(HEIGHT, WIDTH, device)
    side_NHW = torch.sigmoid(
        4 * (across_HW * gain_N4[:, 1, None, None] + down_HW * gain_N4[:, 2, None, None] + gain_N4[:, 3, None, None])
    )
    frames_NCHW = frames_NCHW * torch.exp(gain_N4[:, 0, None, None] * 2 * side_NHW)[:, None]
    blur_N = held["blur"].flatten()
    frames_NCHW = _blurred(frames_NCHW, blur_N, (1, 9))
    frames_NCHW = _in_cells(frames_NCHW, held["cells"].flatten())
    frames_NCHW = frames_NCHW + (veil_NC11 - frames_NCHW) * weight_N111
    frames_BTCHW = frames_NCHW.clamp(0, 1).reshape(windows, FRAMES, *frames_NCHW.shape[1:])
    shown_BT = held["shown"]
    frames_BTCHW = torch.gather(frames_BTCHW, 1, shown_BT[:, :, None, None, None].expand_as(frames_BTCHW))
    frames_BTCHW = _whole(frames_BTCHW, held["whole"])
    return (frames_BTCHW.clamp(0, 1) * 255).permute(0, 1, 3, 4, 2), held["truth"]


def _coordinates(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    down, across = ((torch.arange(size, device=device) * 2 + 1) / size - 1 for size in (height, width))
    return down[:, None].expand(height, width), across[None].expand(height, width)


def _layer(pictures: Pictures, rows: dict[str, Tensor]) -> Tensor:
    """Return one layer of rows as (N, 3, 27, 48), 0 to 1."""
    parts = []
    for start in range(0, len(rows["picture"]), 2048):
        part = slice(start, start + 2048)
        stored_NCHW = pictures.frames_NCHW[rows["picture"][part]].float() / 255
        grid_NHW2 = affine_grid(rows["theta"][part].float(), [len(stored_NCHW), 3, *TWICE], align_corners=False)
        found_NCHW = grid_sample(stored_NCHW, grid_NHW2, padding_mode="reflection", align_corners=False)
        matrix_NC4 = rows["colour"][part].float()
        found_NCHW = torch.einsum("ncd,ndhw->nchw", matrix_NC4[:, :, :3], found_NCHW) + matrix_NC4[:, :, 3, None, None]
        found_NCHW = found_NCHW.clamp(0, 1)
        levels_N = rows["levels"][part].float()[:, None, None, None]
        flat_NCHW = (found_NCHW * levels_N).round() / levels_N.clamp(min=1)
        found_NCHW = torch.where(levels_N > 0, flat_NCHW, found_NCHW)
        sketch_N = rows["sketch"][part].float()[:, None, None, None]
        gray_NCHW = found_NCHW.mean(1, keepdim=True)
        lines_NCHW = (1 - 6 * (gray_NCHW - avg_pool2d(gray_NCHW, 5, 1, 2, count_include_pad=False)).abs()).clamp(0, 1)
        found_NCHW = found_NCHW + (lines_NCHW - found_NCHW) * sketch_N
        parts.append(avg_pool2d(found_NCHW, 2))
    return torch.cat(parts)


def _add_figures(
    pictures: Pictures, layer_NCHW: Tensor, figures: dict[str, Tensor], chosen: Tensor, row_of: Tensor
) -> None:
    """Paste pieces of pictures, letters and cut-out figures onto the rows of a layer, in place, one at a time a row."""
    numbers = torch.nonzero(chosen).flatten()
    if not len(numbers):
        return
    rows = row_of[numbers]
    kind_N111 = figures["kind"][numbers][:, None, None, None]
    grid_NHW2 = affine_grid(figures["theta"][numbers].float(), [len(numbers), 1, *TWICE], align_corners=False)
    power_N11 = figures["power"][numbers].float()[:, None, None]
    distance_NHW = grid_NHW2[..., 0].abs() ** power_N11 + grid_NHW2[..., 1].abs() ** power_N11
    round_N1HW = torch.sigmoid(20 * (1 - distance_NHW))[:, None]
    seeds = torch.Generator(device=layer_NCHW.device).manual_seed(1)
    noise = torch.rand(256, 1, 7, 40, generator=seeds, device=layer_NCHW.device)
    letters_N1HW = grid_sample(noise[figures["seed"][numbers]], grid_NHW2, mode="nearest", align_corners=False)
    letters_N1HW = (letters_N1HW > 0.45).float() * (distance_NHW[:, None] < 2)
    first_sprite = len(pictures.frames_NCHW) - len(pictures.masks_NCHW)
    sprites = (figures["picture"][numbers] - first_sprite).clamp(min=0)
    cut_N1HW = grid_sample(pictures.masks_NCHW[sprites].float() / 255, grid_NHW2, align_corners=False)
    mask_N1HW = torch.where(kind_N111 == 0, round_N1HW, torch.where(kind_N111 == 1, letters_N1HW, cut_N1HW))
    colour_NCHW = grid_sample(
        pictures.frames_NCHW[figures["picture"][numbers]].float() / 255,
        torch.where(kind_N111 == 2, grid_NHW2, grid_NHW2 * 0.5), padding_mode="border", align_corners=False,
    )  # fmt: skip
    tone_NC11 = figures["tone"][numbers].float()[:, :, None, None]
    colour_NCHW = colour_NCHW + (tone_NC11 - colour_NCHW) * figures["solid"][numbers].float()[:, None, None, None]
    mask_N1HW = avg_pool2d(mask_N1HW * figures["alpha"][numbers].float()[:, None, None, None], 2)
    colour_NCHW = avg_pool2d(colour_NCHW, 2)
    # several figures may share a row: paste the first of each row, then the second, and so on
    order = torch.argsort(rows, stable=True)
    ranked = rows[order]
    starts = torch.searchsorted(ranked, ranked)
    ranks = torch.arange(len(ranked), device=rows.device) - starts
    for rank in range(int(ranks.max()) + 1):
        one = order[ranks == rank]
        row = rows[one]
        layer_NCHW[row] = layer_NCHW[row] + (colour_NCHW[one] - layer_NCHW[row]) * mask_N1HW[one]


def _shares(mix: dict[str, Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the share of the new scene and the cover of the front, (N, 27, 48) each."""
    keys = mix["window"] * 1000 + mix["field"]
    kept, inverse = torch.unique(keys, return_inverse=True)
    first = torch.full((len(kept),), len(keys), device=device).scatter_reduce(
        0, inverse, torch.arange(len(keys), device=device), "amin"
    )
    field_NHW = fields(mix["shape"][first], mix["numbers"][first].float())[inverse]
    front_N11, soft_N11 = (mix[name].float()[:, None, None] for name in ("front", "soft"))
    share_NHW = ((front_N11 - field_NHW) / soft_N11).clamp(0, 1)
    is_plain_N11 = (mix["shape"] == 0)[:, None, None]
    share_NHW = torch.where(is_plain_N11, front_N11.expand_as(share_NHW), share_NHW)
    edge_NHW = (share_NHW > 0.02) & (share_NHW < 0.98) & ~is_plain_N11 & (mix["edge"][:, None, None] > 0)
    return share_NHW, edge_NHW.float()


def fields(shape_F: Tensor, numbers_F4: Tensor) -> Tensor:
    """Return when each wipe reaches each pixel, (F, 27, 48): even times from 0 to 1."""
    device, count = shape_F.device, len(shape_F)
    down_HW, across_HW = _coordinates(HEIGHT, WIDTH, device)
    x_FHW, y_FHW = across_HW - numbers_F4[:, 0, None, None], down_HW - numbers_F4[:, 1, None, None]
    angle_F11, parts_F11 = numbers_F4[:, 2, None, None], numbers_F4[:, 3, None, None]
    along_FHW = torch.cos(angle_F11) * x_FHW + torch.sin(angle_F11) * y_FHW
    beside_FHW = torch.sin(angle_F11) * x_FHW - torch.cos(angle_F11) * y_FHW
    far_FHW = torch.hypot(x_FHW * 16 / 9, y_FHW)
    noise_FHW = torch.rand(count, HEIGHT, WIDTH, device=device)
    smooth_FHW = avg_pool2d(pad(noise_FHW[:, None], (4, 4, 4, 4), mode="reflect"), 9, 1)[:, 0]
    rows_FHW = (torch.rand(count, 64, 1, device=device)[:, :HEIGHT]).expand(-1, -1, WIDTH)
    columns_FHW = (torch.rand(count, 1, 64, device=device)[:, :, :WIDTH]).expand(-1, HEIGHT, -1)
    is_across_F11 = torch.cos(angle_F11).abs() > 0.7
    wind_FHW = along_FHW + 0.6 * torch.where(is_across_F11, rows_FHW, columns_FHW)
    turn_FHW = torch.remainder(torch.atan2(along_FHW, beside_FHW) + math.pi, 2 * math.pi)
    found = (
        along_FHW, along_FHW, far_FHW, -far_FHW, torch.maximum(x_FHW.abs(), y_FHW.abs()), along_FHW.abs(),
        -along_FHW.abs(), turn_FHW, torch.remainder(turn_FHW * 2 / math.pi, 1.0),
        torch.remainder(along_FHW * parts_F11 / 2, 1.0) + 0.5 * along_FHW, noise_FHW, smooth_FHW, wind_FHW,
        x_FHW.abs() + y_FHW.abs(),
    )  # fmt: skip
    chosen_FHW = torch.stack([one.expand(count, HEIGHT, WIDTH) for one in found])[
        shape_F, torch.arange(count, device=device)
    ]
    flat = chosen_FHW.flatten(1) + 1e-4 * noise_FHW.flatten(1)
    order = torch.argsort(torch.argsort(flat, dim=1), dim=1)
    times_FHW: Tensor = (order.float() / (order.shape[1] - 1)).reshape(count, HEIGHT, WIDTH)
    return times_FHW


def _blurred(frames_NCHW: Tensor, weight_N: Tensor, size: tuple[int, int]) -> Tensor:
    rows = torch.nonzero(weight_N > 0).flatten()
    if len(rows):
        beside = (size[0] // 2, size[1] // 2)
        soft_NCHW = avg_pool2d(frames_NCHW[rows], size, 1, beside, count_include_pad=False)
        frames_NCHW[rows] += (soft_NCHW - frames_NCHW[rows]) * weight_N[rows].float()[:, None, None, None]
    return frames_NCHW


def _in_cells(frames_NCHW: Tensor, weight_N: Tensor) -> Tensor:
    """Show frames in coarse cells: larger the larger the weight."""
    rows = torch.nonzero(weight_N > 0.02).flatten()
    if len(rows):
        cells_N11 = (48 * (1 - weight_N[rows].float()).clamp(min=0.05))[:, None, None]
        down_HW, across_HW = _coordinates(HEIGHT, WIDTH, frames_NCHW.device)
        grid = [(((one + 1) / 2 * cells_N11).floor() + 0.5) / cells_N11 * 2 - 1 for one in (across_HW, down_HW)]
        frames_NCHW[rows] = grid_sample(
            frames_NCHW[rows], torch.stack(grid, dim=3), padding_mode="border", align_corners=False
        )
    return frames_NCHW


def _whole(frames_BTCHW: Tensor, whole_BD: Tensor) -> Tensor:
    """Change whole windows: gamma, light, gray, blur, noise, smear, bars."""
    tall, wide, gamma, gain, offset, saturation, noise, smear, soft, static = (
        value[:, None, None, None, None] for value in whole_BD.float().T
    )
    frames_BTCHW = (frames_BTCHW**gamma * gain + offset).clamp(0, 1)
    weights = torch.tensor((0.114, 0.587, 0.299), device=frames_BTCHW.device)[:, None, None]
    gray_BT1HW = (frames_BTCHW * weights).sum(2, keepdim=True)
    frames_BTCHW = gray_BT1HW + (frames_BTCHW - gray_BT1HW) * saturation
    smooth = avg_pool2d(frames_BTCHW.flatten(0, 1), 3, 1, 1, count_include_pad=False).view_as(frames_BTCHW)
    frames_BTCHW = torch.where(soft > 0, smooth, frames_BTCHW)
    before_BTCHW = torch.cat([frames_BTCHW[:, :1], frames_BTCHW[:, :-1]], dim=1)
    frames_BTCHW = frames_BTCHW + (before_BTCHW - frames_BTCHW) * smear
    grain = torch.randn_like(frames_BTCHW)
    grain = torch.where(static > 0, grain[:, :1], grain)
    frames_BTCHW = frames_BTCHW + grain * noise
    down_HW, across_HW = _coordinates(HEIGHT, WIDTH, frames_BTCHW.device)
    inside = (down_HW.abs() <= 1 - tall) & (across_HW.abs() <= 1 - wide)
    barred_BTCHW: Tensor = frames_BTCHW * inside
    return barred_BTCHW
