"""Commands of the model refuse a path that cannot be used before the networks' packages are imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pipeline.core.config import ShardSettings
from pipeline.publish.shards import Counts, Index
from tests.support.datasets.made_evaluation import paint

RUN = """
import json, os, sys
from typer.testing import CliRunner
from flows.cli import app
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, words)
    print(done.exit_code, *done.output.replace(f"{os.getcwd()}/", "").splitlines()[:1])
print(sorted({"accelerate", "diffusers", "peft", "torch", "transformers"} & sys.modules.keys()))
"""
"""Program that runs commands in one process, since its start takes longer than they do; it prints an answer a line."""

NO_CHECKPOINT = "animegamer: nothing is not a checkpoint: config.json cannot be read (No such file or directory)"
OF_MINI = "animegamer: the size mini has only the baseline GC, made from a checkpoint"
SET = ("--data", "set")
GAME = ("--game", "game.txt")
AGENT = ("--benchmark", "games.jsonl", "--agent", "a=clips")
ANSWERS = {
    ("recipe", "full", "--ablation", "linear"): "# fit of a tiny autoencoder",
    ("train", "shot", "--data", "nowhere", "--out", "run"): "animegamer: nowhere/shards/index.json: no such file",
    ("train", "shot", "--data", "set=0", "--out", "run"): "animegamer: --data set=0 has weight 0; use 1 or more",
    ("train", "all", *SET, "--out", "run", "--config", "no.toml"): "animegamer: no.toml cannot be read: [Errno 2]",
    ("train", "game", *SET, "--out", "run", "--config", "bad.toml"): "animegamer: bad.toml is not valid (shot.stepz",
    ("train", "adapt", *SET, "--out", "run", "--from", "nothing"): NO_CHECKPOINT,
    ("train", "gc", *SET, "--out", "run", "--from", "nothing"): "animegamer: nothing is not a baseline: baseline.json",
    ("train", "gc", *SET, "--out", "run", "--from", "nothing", "--recipe", "mini"): NO_CHECKPOINT,
    ("train", "gfc", *SET, "--out", "run", "--from", "nothing", "--recipe", "mini"): OF_MINI,
    ("train", "gc", *SET, "--out", "run", "--recipe", "mini"): OF_MINI,
    ("train", "game", *SET, "--out", "run", "--fork-from", "nowhere"): "animegamer: nowhere has no saved states",
    ("train", "game", *SET, "--out", "run", "--fork-from", "set/states/step-00000003"): "animegamer: no saved state of",
    ("train", "all", *SET, "--out", "run", "--accelerate", "no.yaml"): "animegamer: no.yaml does not exist",
    ("train", "all", *SET, "--out", "run", "--config", "pipe"): "animegamer: pipe is a pipe, which only one process",
    ("train", "features", *SET, "--out", "run", "--features", "file"): "animegamer: file is a file; name a folder as",
    ("train", "shot", *SET, "--out", "file"): "animegamer: file: cannot ",
    ("play", "--checkpoint", "nothing", "--serve"): NO_CHECKPOINT,
    ("play", "--checkpoint", "nothing", *GAME, "--out", "out"): NO_CHECKPOINT,
    ("play", "--checkpoint", "nothing", *GAME, "--out", "out", "--agent", "gc"): "animegamer: nothing is not a",
    ("play", "--game", "no.txt", "--out", "out"): "animegamer: no.txt cannot be read: No such file or directory",
    ("play", *GAME, "--out", "file"): "animegamer: file is a file; name another --out",
    ("play", "--serve", "--rules", "no.toml"): "animegamer: no.toml does not exist; name a table of rules",
    ("play", "--serve", "--rules", "bad.toml"): "animegamer: bad.toml is not valid (shot: Extra inputs",
    ("evaluate", "run", "out", "--benchmark", "no", "--agent", "a=clips"): "animegamer: no cannot be read",
    ("evaluate", "run", "out", *AGENT, "--agent", "b=set"): "animegamer: set holds no checkpoint (config.json),",
    ("evaluate", "run", "out", *AGENT, "--steps", "30"): "animegamer: steps must divide 1000",
    ("evaluate", "run", "out", *AGENT, "--cast", "nobody"): "animegamer: nobody: no such folder; the cast is",
    ("evaluate", "run", "out", *AGENT, "--dreamsim", "nowhere"): "animegamer: nowhere has no ensemble_lora/adapter_con",
    ("evaluate", "run", "out", *AGENT, "--clip", "./nowhere"): "animegamer: ./nowhere does not exist; give the",
    ("evaluate", "run", "out", *AGENT, "--clip", "open-clip:/nowhere"): "animegamer: /nowhere does not exist; give",
    ("evaluate", "run", "out", *AGENT, "--data", "nowhere"): "animegamer: nowhere: no dataset here",
    ("evaluate", "run", "file", *AGENT): "animegamer: file: cannot ",
}


def test_a_path_that_cannot_be_used_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bad.toml").write_text("[shot]\nstepz = 3\n")
    (tmp_path / "game.txt").write_text("she runs\n")
    (tmp_path / "games.jsonl").write_text('{"game": "a", "turn": 1, "words": "She runs"}\n')
    (tmp_path / "set" / "shards").mkdir(parents=True)
    index = Index(
        flow_model="dis",
        edges=(1, 2, 3, 4),
        level_values=None,
        captioner=None,
        settings=ShardSettings(),
        counts=Counts(split={}, film={}, level={}),
        shards=(),
    )
    (tmp_path / "set" / "shards" / "index.json").write_text(index.model_dump_json(by_alias=True))
    paint(tmp_path / "clips" / "a" / "1.mp4", (40, 100, 90))
    command = [sys.executable, "-c", RUN, json.dumps(list(ANSWERS))]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    *answers, imported = done.stdout.splitlines()
    assert imported == "[]"
    for (words, expected), answer in zip(ANSWERS.items(), answers, strict=True):
        code = 0 if words[0] == "recipe" else 1
        assert answer.startswith(f"{code} {expected}"), (words, answer)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "out").exists()
