"""Learner: sharding, and skipped batches."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from accelerate import FullyShardedDataParallelPlugin
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from training.learner import Skips, _shard_by_units


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_fsdp_shards_by_units_and_reduces_in_float32(precision: str) -> None:
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)  # as `--use_fsdp --fsdp_version 2` leaves it
    if precision == "bf16":
        plugin.set_mixed_precision(precision)
    assert plugin.auto_wrap_policy is None
    _shard_by_units(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)), ["Line"])  # type: ignore[arg-type]
    assert plugin.auto_wrap_policy is transformer_auto_wrap_policy
    assert plugin.transformer_cls_names_to_wrap == ["Line"]
    if precision == "bf16":
        policy = plugin.mixed_precision_policy
        assert (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) == (
            torch.bfloat16,
            torch.float32,
            None,  # not float32 either: a unit would give it to a norm that has its weights in bf16
        )


def test_a_gradient_that_is_not_finite_at_a_scale_of_1_is_counted() -> None:
    skips = Skips()
    assert not skips.count("sum", 1, 1.0, math.inf, scale=2.0)
    assert skips.count("sum", 2, 1.0, math.inf, scale=1.0)
    assert skips.count("sum", 3, math.nan, 1.0, scale=2.0)
    assert skips.state() == {"total": 2, "in_a_row": 2}
