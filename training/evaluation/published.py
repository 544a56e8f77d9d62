"""Published figures of the AnimeGamer paper (arXiv 2504.01014), shown beside ours and marked as published.

They were measured by its authors on their own benchmark, films and weights. Keys are names of metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "arXiv 2504.01014"
PAPER_METRICS = ("clip_i", "dreamsim", "clip_t", "clip_t_e", "acc_f", "mae_f", "acc_s", "mae_s", "turn_seconds")
"""Metrics of the comparison with the baselines, in its order."""
ABLATION_METRICS = ("clip_i", "dreamsim", "acc_f", "mae_f")


@dataclass(frozen=True)
class PublishedRow:
    """A model of the paper with its figures by metric."""

    name: str
    values: dict[str, float]


def _row(name: str, metrics: tuple[str, ...], *values: float) -> PublishedRow:
    return PublishedRow(name, dict(zip(metrics, values, strict=True)))


COMPARISON = (
    _row("GSC", PAPER_METRICS, 0.7862, 0.5019, 0.3331, 0.3142, 0.3163, 0.8263, 0.6773, 0.5888, 50),
    _row("GFC", PAPER_METRICS, 0.7662, 0.5797, 0.3325, 0.3123, 0.2923, 1.0212, 0.6771, 0.5888, 63),
    _row("GC", PAPER_METRICS, 0.7960, 0.6416, 0.3339, 0.3158, 0.4249, 0.7223, 0.6779, 0.5888, 25),
    _row("AnimeGamer", PAPER_METRICS, 0.8132, 0.7403, 0.4161, 0.4012, 0.6744, 0.4238, 0.6773, 0.5872, 24),
)
"""Comparison with the baselines."""
ABLATIONS = (
    _row("full tokenizer", ABLATION_METRICS, 0.867, 0.793, 0.729, 0.403),
    _row("random frame", ABLATION_METRICS, 0.845, 0.450, 0.474, 0.562),
    _row("without warm-up", ABLATION_METRICS, 0.831, 0.511, 0.703, 0.458),
    _row("without motion scope", ABLATION_METRICS, 0.853, 0.689, 0.182, 1.219),
    _row("without adaptation", ABLATION_METRICS, 0.683, 0.494, 0.365, 0.847),
)
"""Ablations; the first four are of the tokenizer alone, without the game model."""
