"""Optical flow by ptlflow networks from checkpoint files of their own format, with random weights.

Random weights give meaningless vectors, but the same ones for the same pictures. This is enough to check inputs of a
network, their order and its memory. Runs on a GPU where there is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.config import MotionSettings
from pipeline.core.errors import UserError
from pipeline.core.measurements import Motion
from pipeline.core.stage import perform
from pipeline.stages.motion import MeasureMotion, open_optical_flow
from pipeline.stages.optical_flow import Frames
from pipeline.stages.optical_flow_network import OpticalFlowNetwork
from tests.support.media.moving_pictures import make_clips, pan, shaded, textured

pytestmark = pytest.mark.slow  # ptlflow takes ten seconds to import, MemFlow one second per pair

TOLERANCE = 1e-3
"""Tolerance in pixels: batches of another size are summed in another order."""

Save = Callable[..., Path]


@pytest.fixture(scope="module")
def save(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """Save random weights of a model as ptlflow's trainer does; for MemFlow the gate of its memory can be set."""
    import ptlflow
    import torch

    def saved(name: str, gate: float | None = None) -> Path:
        torch.manual_seed(0)
        network = ptlflow.get_model(name)
        if gate is not None:
            torch.nn.init.constant_(network.network.update_block.aggregator.gamma, gate)
        path = tmp_path_factory.mktemp("weights") / f"{name}.ckpt"
        torch.save({"state_dict": network.state_dict(), "hyper_parameters": {"train_avg_length": 6750}}, path)
        return path

    return saved


@pytest.fixture(scope="module")
def memflow(save: Save) -> OpticalFlowNetwork:
    """MemFlow whose memory affects the result."""
    return OpticalFlowNetwork("memflow", str(save("memflow", gate=5.0)), 1.0, batch=2)


def small(frames_THWC: Frames) -> Frames:
    return np.ascontiguousarray(frames_THWC[:, 100:228, 200:328])


@pytest.fixture(scope="module")
def clips() -> tuple[Frames, Frames]:
    """Two clips of three frames, 128x128: the minimum for MemFlow's pyramid."""
    return small(pan(textured(), 4, 0, frames=3)), small(pan(shaded(), -2, 6, frames=3))


def vectors_of(network: OpticalFlowNetwork, *clips: Frames) -> np.ndarray:
    """`vectors_BSHW2`."""
    return np.stack(list(network.steps(clips)), axis=1)


@pytest.mark.nightly
def test_memflow_remembers_earlier_steps(memflow: OpticalFlowNetwork, clips: tuple[Frames, Frames], save: Save) -> None:
    second_step, forgetful = vectors_of(memflow, clips[0])[0, 1], vectors_of(memflow, clips[0][1:])[0, 0]
    assert np.abs(second_step - forgetful).max() > 20 * TOLERANCE
    shut = OpticalFlowNetwork("memflow", str(save("memflow", gate=0.0)), 1.0, batch=2)
    second_step, forgetful = vectors_of(shut, clips[0])[0, 1], vectors_of(shut, clips[0][1:])[0, 0]
    assert second_step == pytest.approx(forgetful, abs=TOLERANCE)


@pytest.mark.nightly
def test_memflow_forgets_between_clips_and_a_batch_equals_one_by_one(
    memflow: OpticalFlowNetwork, clips: tuple[Frames, Frames]
) -> None:
    together = vectors_of(memflow, *clips)
    after_each_other = [vectors_of(memflow, clip)[0] for clip in clips]
    first_again = vectors_of(memflow, clips[0])[0]
    assert together.shape == (2, 2, 128, 128, 2)
    assert first_again == pytest.approx(after_each_other[0], abs=1e-6)
    assert together == pytest.approx(np.stack(after_each_other), abs=TOLERANCE)


def test_the_stage_runs_with_memflow_from_a_file_in_batches(
    save: Save, clips: tuple[Frames, Frames], tmp_path: Path
) -> None:
    checkpoint = save("memflow", gate=5.0)
    folder = make_clips(tmp_path, {"a": clips[0][:2], "b": clips[1][:2], "c": clips[0][1:]})
    folder.clip_path("b").write_bytes(b"no video")
    settings = MotionSettings(model="memflow", checkpoint=str(checkpoint), batch=2)
    perform(MeasureMotion(settings, threads=2, failed_limit=0.5), folder)
    rows = folder.read("motion", Motion)
    digest = hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    assert [(row.clip_id, row.flow_model) for row in rows] == [(name, f"memflow:{digest[:8]}@1") for name in "ac"]
    assert all(row.scope_px > 0 for row in rows)
    record = folder.stage_record("motion")
    assert record is not None
    assert record.ingredients["motion"]["weights"] == digest
    assert [failure.record_id for failure in record.failures] == ["b"]


def test_another_network_takes_scaled_pictures_and_answers_in_clip_pixels(
    save: Save, clips: tuple[Frames, Frames], capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = save("raft_small")
    capfd.readouterr()
    settings = MotionSettings(model="raft_small", checkpoint=str(checkpoint), batch=2)
    whole, half = (open_optical_flow(settings.model_copy(update={"scale": scale})) for scale in (1.0, 0.5))
    assert capfd.readouterr() == ("", "")
    large = [np.repeat(np.repeat(clip, 2, axis=1), 2, axis=2) for clip in clips]  # halved, it is the clip again
    for of_clips, of_large in zip(whole.steps(clips), half.steps(large), strict=True):
        assert of_clips.shape == of_large.shape == (2, 128, 128, 2)
        assert of_large == pytest.approx(2 * of_clips, abs=TOLERANCE)


def test_a_network_runs_without_tf32_and_leaves_the_setting_as_it_was(save: Save, clips: tuple[Frames, Frames]) -> None:
    import torch

    network = OpticalFlowNetwork("raft_small", str(save("raft_small")), 1.0, batch=2)
    seen: list[tuple[bool, bool]] = []
    cudnn = torch.backends.cudnn
    network.network.register_forward_hook(lambda *_: seen.append((cudnn.enabled, cudnn.allow_tf32)))
    before = cudnn.enabled, cudnn.allow_tf32
    vectors_of(network, *clips)
    assert set(seen) == {(before[0], False)}
    assert (cudnn.enabled, cudnn.allow_tf32) == before


def test_unusable_checkpoints_are_refused_with_the_reason(save: Save, tmp_path: Path) -> None:
    junk = tmp_path / "junk.ckpt"
    junk.write_bytes(b"this is no checkpoint")
    foreign = save("raft_small")
    for name, checkpoint, reason in [
        ("memflow", junk, "not a torch checkpoint"),
        ("memflow", foreign, "does not hold ptlflow weights of 'memflow'"),
        ("memflow", "nowhere", "'memflow' has no published weights 'nowhere'; it has things, sintel"),
        ("memflew", foreign, "no two-frame optical-flow model 'memflew'"),
        ("memfof", foreign, "no two-frame optical-flow model 'memfof'"),
    ]:
        with pytest.raises(UserError, match=reason):
            OpticalFlowNetwork(name, str(checkpoint), 1.0, batch=1)
