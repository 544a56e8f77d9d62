"""Yardsticks of an evaluation: the metrics that they leave out are named, with what would bring them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.evaluate.inputs import Yardsticks
from flows.evaluate.run import _levels_of
from models.config import LevelScale
from models.shipped import shipped
from tests.support.media.painted_clips import make_cast
from tests.support.networks.tiny_models import tiny_checkpoint
from training.evaluation.benchmark import Panel, read_benchmark, write_benchmark
from training.evaluation.folder import AgentEntry


@pytest.mark.parametrize(
    ("cast", "characters", "said"),
    [
        ((), ("Ponyo",), ["CLIP-I, DreamSim, identity, cast shown and copies are not measured: --cast names"]),
        (("Ponyo", "Lisa"), (), ["CLIP-I, DreamSim, identity and cast shown are not measured: the benchmark names no"]),
        (("Lisa", "Mei"), ("ponyo",), ["Characters without pictures in --cast are not measured: ponyo; it has Lisa,"]),
        (("Ponyo",), ("Ponyo",), ["Identity and cast shown are not measured: turns name all of --cast; pictures of"]),
        (("Ponyo", "Lisa"), ("Ponyo", "Mei"), ["Characters without pictures in --cast are not measured: Mei; it has"]),
        (("Ponyo", "Lisa"), ("Ponyo",), []),
    ],
)
def test_characters_that_are_not_measured_are_named_with_what_would_bring_them(
    tmp_path: Path, cast: tuple[str, ...], characters: tuple[str, ...], said: list[str]
) -> None:
    write_benchmark(tmp_path / "games.jsonl", [Panel(game="a", turn=1, characters=characters, MD="run", S="fish")])
    if cast:
        make_cast(tmp_path / "cast", *cast)
    yardsticks = Yardsticks(tmp_path / "cast" if cast else None, "clip", tmp_path / "dreamsim")
    found = list(yardsticks.left_out(read_benchmark(tmp_path / "games.jsonl")))
    assert len(found) == len(said)
    assert all(sentence.startswith(start) for sentence, start in zip(found, said, strict=True)), found


def test_metrics_of_networks_that_are_not_named_are_listed_with_their_options(tmp_path: Path) -> None:
    write_benchmark(tmp_path / "games.jsonl", [Panel(game="a", turn=1, words="They fall asleep")])
    clip, dreamsim, _ = Yardsticks().left_out(read_benchmark(tmp_path / "games.jsonl"))
    assert clip == "CLIP-I, CLIP-T, CLIP-T^E and CLIP-T action are not measured: --clip names a CLIP."
    assert dreamsim == "DreamSim is not measured: --dreamsim names the folder of its weights."


def test_levels_are_measured_as_the_data_of_the_checkpoint_where_no_dataset_is_named() -> None:
    levels = LevelScale(edges=(1.0, 1.9, 3.1, 5.0), dis_scale=1.0, width=192, height=128)
    assert (Yardsticks().motion.edges, Yardsticks().clip_size) == (None, (720, 480))
    ours = Yardsticks(levels=levels)
    assert (ours.motion.edges, ours.motion.scale, ours.clip_size) == ((1.0, 1.9, 3.1, 5.0), 1.0, (192, 128))
    tiny, packed = (_agent(name, folder) for name, folder in (("tiny", tiny_checkpoint()), ("ours", shipped().folder)))
    assert _levels_of([tiny]) == ("", None)
    assert _levels_of([tiny, packed]) == ("ours", levels)


def _agent(name: str, folder: Path) -> AgentEntry:
    return AgentEntry(name=name, kind="checkpoint", folder=str(folder), identity="any")
