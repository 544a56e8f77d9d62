"""Depth of the call stack: frames of ours between the command and the work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.builds.real_builds import numbered_film
from tests.support.media.painted_clips import make_cast
from tests.support.servers.caption_server import CaptionServer, good_answer

ROOT = Path(__file__).parents[1]
MOST_AT_POST = 15
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
