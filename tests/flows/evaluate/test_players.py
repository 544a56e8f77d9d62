"""Scenes kept for all baselines: asked for once, with the time that the language model took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from flows.evaluate.players import KeptScenes
from training.baselines.router import NEUTRAL, SceneDescription, StoryTurn


class Slow:
    """Router that says it took a third of a second, a little more each time."""

    endpoint = SimpleNamespace(model="slow")

    def __init__(self) -> None:
        self.asked = 0

    def route(self, story: Sequence[StoryTurn], instruction: str) -> SceneDescription:  # noqa: ARG002
        self.asked += 1
        return SceneDescription(f"a drawing: {instruction}", NEUTRAL, seconds=0.3 + self.asked / 100)


def test_every_baseline_gets_the_scene_with_its_time_and_one_asks_for_it(tmp_path: Path) -> None:
    router, seconds = Slow(), []
    for _ in range(2):  # baselines
        kept = KeptScenes(router, tmp_path)  # type: ignore[arg-type]
        first = kept.route([], "Qiqi runs")
        second = kept.route([StoryTurn("Qiqi runs", first)], "Qiqi sleeps")
        seconds.append((first.seconds, second.seconds))
    assert seconds == [(0.31, 0.32)] * 2
    assert router.asked == 2
