"""Depth of the call stack: frames of ours between the command and the work."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from pipeline.core.progress import Progress
from pipeline.core.stage import Outcome
from pipeline.core.store import FilmFolder
from pipeline.plan.build_plan import make_plan
from pipeline.plan.request import BuildRequest
from pipeline.plan.workspace import Workspace
from pipeline.stages.cut import Cut
from tests.support.builds.real_builds import numbered_film
from tests.support.datasets.built_dataset import small_film
from tests.support.media.painted_clips import make_cast
from tests.support.servers.caption_server import CaptionServer, good_answer

ROOT = Path(__file__).parents[1]
MOST_AT_POST = 11
MOST_IN_CUT = 9
PACKAGES = ("pipeline", "flows", "prompts", "models", "training")
RUN = """
import sys, openai
from flows.cli import main

root = sys.argv.pop(1)

def post(self, *args, real=openai.AsyncOpenAI.post, **options):
    frame, names = sys._getframe(1), []
    while frame:
        path = frame.f_code.co_filename
        if path.startswith(root) and "/.venv/" not in path:
            names.append(f"{path.removeprefix(root)}:{frame.f_code.co_name}")
        frame = frame.f_back
    print("stack", *names, flush=True)
    return real(self, *args, **options)

openai.AsyncOpenAI.post = post
main()
"""


@pytest.mark.slow
def test_few_frames_stand_between_a_build_and_the_post_of_a_caption(tmp_path: Path) -> None:
    make_cast(tmp_path / "cast", "Ponyo", "Sosuke")
    film, config = numbered_film(tmp_path / "film.mp4", 0), tmp_path / "config.toml"
    with CaptionServer(good_answer) as server:
        config.write_text(f'[captions]\ncaptioner = "server"\nendpoint = "{server.address}"\nmodel = "test-model"\n')
        build = ["build", film, "--out", tmp_path / "data", "--cast", tmp_path / "cast", "--config", config]
        command = [sys.executable, "-c", RUN, f"{ROOT}/", *build]
        output = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    stacks = [line.split()[1:] for line in output.stdout.splitlines() if line.startswith("stack ")]
    assert stacks, output.stderr
    print(*stacks[0], sep="\n")
    assert len(stacks[0]) <= MOST_AT_POST
    assert len([frame for frame in stacks[0] if frame.startswith("pipeline/captions/")]) == 4


def our_frames() -> list[str]:
    """Functions of ours on the stack of the caller, from the outermost to the caller."""
    stack = traceback.extract_stack()[:-1]
    return [
        f"{Path(frame.filename).relative_to(ROOT)}:{frame.name}"
        for frame in stack
        if any(Path(frame.filename).is_relative_to(ROOT / package) for package in PACKAGES)
    ]


@pytest.mark.slow
def test_few_frames_lead_from_a_build_to_the_cut_of_a_film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.dataset import run_plan

    found: list[list[str]] = []
    run = Cut.run

    def traced(stage: Cut, folder: FilmFolder, progress: Progress) -> Outcome:
        found.append([*our_frames(), "pipeline/stages/cut.py:run"])
        return run(stage, folder, progress)

    monkeypatch.setattr(Cut, "run", traced)
    request = BuildRequest(films=(str(small_film(tmp_path / "film.mp4")),), out=str(tmp_path / "data"))
    assert run_plan(make_plan(request, Workspace(request.out))).is_completed()
    print("frames of ours in Cut.run:", *found[0], sep="\n  ")
    assert len(found[0]) <= MOST_IN_CUT
