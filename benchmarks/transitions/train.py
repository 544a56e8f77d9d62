"""Train the network of transitions on made windows.

python -m benchmarks.transitions.train --folder bench-transitions --minutes 8 --out transitions.safetensors
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.transitions.library import read_library
from benchmarks.transitions.network import TransitionNetwork
from benchmarks.transitions.render import draw
from benchmarks.transitions.schedule import Plans, batch
from benchmarks.transitions.shots import Sources
from benchmarks.transitions.stream import write_onnx
from pipeline.stages.cutting.transition_scores import STEP

EDGE = 16
"""Frames at either end of a window that do not count: too little is seen beside them."""
RATE, WARM, KEPT = 3e-3, 300, 0.999


class Batches(IterableDataset[Plans]):
    """Endless plans of batches from a seed; each worker has its own."""

    def __init__(self, sources: Sources, seed: int, windows: int) -> None:
        self.sources, self.seed, self.windows = sources, seed, windows

    def __iter__(self) -> Iterator[Plans]:
        """Yield plans as `schedule.batch` makes them."""
        torch.set_num_threads(1)
        worker = torch.utils.data.get_worker_info()
        number = 0
        while True:
            yield batch(self.sources, (self.seed, worker.id if worker else 0, number), self.windows)
            number += 1


def loss_of(logits_BTD: Tensor, truth_BTD: Tensor) -> Tensor:
    """Return the loss: a boundary counts ten times, since it is one frame among many."""
    logits_BTD, truth_BTD = logits_BTD[:, EDGE:-EDGE].float(), truth_BTD[:, EDGE:-EDGE].float()
    mixed = cross_entropy(logits_BTD[..., 0], truth_BTD[..., 0])
    return mixed + 0.5 * cross_entropy(logits_BTD[..., 1], truth_BTD[..., 1], weight=1 + 9 * truth_BTD[..., 1])


@torch.no_grad()
def validate(network: nn.Module, kept: list[tuple[Tensor, Tensor]]) -> str:
    """Return the loss on kept windows, and precision and recall of mixed frames and of boundaries."""
    losses, counts = [], torch.zeros(2, 3)
    for pictures, truth in kept:
        logits = network(pictures.float())
        losses.append(float(loss_of(logits, truth)))
        found, is_true = logits[:, EDGE:-EDGE] > 0, truth[:, EDGE:-EDGE] > 0.4
        for head in range(2):
            both = found[..., head] & is_true[..., head]
            counts[head] += torch.tensor([both.sum(), found[..., head].sum(), is_true[..., head].sum()])
    rates = counts[:, :1] / counts[:, 1:].clamp(min=1)
    return (
        f"loss {sum(losses) / len(losses):.4f}  precision, recall: mixed {rates[0].tolist()} begins {rates[1].tolist()}"
    )


def main() -> None:
    """Train for some minutes, and save the weights every minute."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("bench-transitions"), help="pictures to train on")
    parser.add_argument("--films", nargs="+", default=["bunny", "composed-100", "composed-101", "composed-102"])
    parser.add_argument("--kept", nargs="+", default=["composed-103"], help="films for validation alone")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--start", type=Path, help="weights to start from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--out", type=Path, default=Path("transitions.safetensors"))
    given = parser.parse_args()
    begun = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(given.seed)
    pictures, sources = read_library(given.folder, given.films)
    other_pictures, other_sources = read_library(given.folder, given.kept)
    pictures, other_pictures = pictures.on(device), other_pictures.on(device)
    print(
        f"{time.monotonic() - begun:.0f} s: {len(pictures.frames_NCHW)} frames, {len(sources.spans)} scenes",
        flush=True,
    )
    windows = min(given.batch, 32)
    kept = []
    for number in range(8 if device.type == "cuda" else 1):
        shown, truth = draw(other_pictures, batch(other_sources, (99, number), windows), device)
        kept.append((shown.to(torch.uint8), truth))
    network = TransitionNetwork().to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if given.start:
        load_model(network, given.start, device=str(device))
    steady = copy.deepcopy(network).eval()
    optimizer = torch.optim.AdamW(network.parameters(), given.rate, weight_decay=1e-2, fused=device.type == "cuda")
    loader = DataLoader(
        Batches(sources, given.seed, given.batch), batch_size=None, num_workers=given.workers,
        prefetch_factor=4 if given.workers else None,
    )  # fmt: skip
    plans, losses, told, waited = iter(loader), [], time.monotonic(), 0.0
    step = 0
    while (progress := (time.monotonic() - begun) / (60 * given.minutes)) < 1:
        rate = given.rate * min((step + 1) / WARM, 1) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        asked = time.monotonic()
        one = next(plans)
        waited += time.monotonic() - asked
        shown, truth = draw(pictures, one, device)
        with torch.autocast(device.type, torch.bfloat16):
            logits = network(shown)
        loss = loss_of(logits, truth)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            share = min(KEPT, (step + 1) / (step + 20))
            for slow, fast in zip(steady.state_dict().values(), network.state_dict().values(), strict=True):
                slow.lerp_(fast, 1 - share) if slow.is_floating_point() else slow.copy_(fast)
        losses.append(loss.detach())
        step += 1
        if time.monotonic() - told > 30 or step in (20, 200):
            mean = float(torch.stack(losses[-100:]).mean())
            print(f"{time.monotonic() - begun:.0f} s, step {step}, waited {waited:.0f} s: loss {mean:.4f}", flush=True)
            print("  kept:", validate(steady, kept), flush=True)
            save_model(steady, str(given.out))
            told = time.monotonic()
    print(f"step {step}, kept:", validate(steady, kept), flush=True)
    write_onnx(steady.cpu(), given.out.with_suffix(".onnx"), STEP)
    save_model(steady, str(given.out))


if __name__ == "__main__":
    main()
