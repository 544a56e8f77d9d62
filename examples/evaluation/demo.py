"""Demo of the evaluation, `make demo-eval`: three agents on four games, from nothing to a report, on two cores.

    1. the cast of the package's model                                     OUT/cast
    2. `animegamer benchmark write`: a game about each                     OUT/games.jsonl
    3. agents: the model of the package; the same untrained;               OUT/untrained OUT/gc
       the baseline GC, untrained
    4. `animegamer evaluate run`: games, measures, figures                 OUT/evaluation
    5. `animegamer evaluate judge`: scores, and the report with them

Writer, router and judge are stand-ins without a model (`stand_in_models.py`), asked over the protocol of real ones.
After a kill, the same command resumes: nothing is played or asked twice. Untrained networks draw noise. The CLIP that
measures them was trained on the world in miniature (`examples/miniature/clip.py`), and so was the recogniser that says
what a turn shows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from examples.commands import run_command
from examples.evaluation.recognised import write_recognised
from examples.evaluation.stand_in_models import MODEL, serving
from examples.miniature.clip import PACKED as CLIP
from examples.miniature.dataset import write_cast
from flows.commands.evaluate import figures_table
from flows.console.terminal import console, say
from models.config import mini_config
from models.shipped import shipped
from models.untrained import new_checkpoint
from training.baselines.config import tiny
from training.baselines.folder import new_baseline
from training.evaluation.figures import Figures
from training.evaluation.folder import EvaluationFolder

TURNS = 5
"""Turns of a game: one window of the judge."""
NOTE = (
    "`ours` is the model of the package, the other agents have random weights. CLIP, and the recogniser that says what "
    "turns show, know nothing but the world in miniature. A program of rules stands in for the models that write the "
    "games, route the baseline and judge."
)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo-eval"), help="folder for everything")
    out: Path = parser.parse_args().out
    started = time.monotonic()
    with serving() as address:
        report = run_demo(out, ("--server", address, "--model", MODEL))
    say(f"{time.monotonic() - started:.0f} s in all; open {report} in a browser")


def run_demo(out: Path, server: Sequence[str]) -> str:
    """Run what is missing of the demo with a server of models, and return the path of the report."""
    say("1 of 5: the cast")
    cast = write_cast(out / "cast", shipped().config.characters)
    say("2 of 5: the games, written by a stand-in for a language model")
    stories = ("--cast", cast, "--games", "1", "--panels", str(TURNS))
    benchmark = run_command("benchmark", "write", *stories, *server, "--out", out / "games.jsonl")
    say("3 of 5: the agents")
    agents = write_agents(out)
    say("4 of 5: games and measures")
    named = [word for name, folder in agents.items() for word in ("--agent", f"{name}={folder}")]
    yardsticks = ("--cast", cast, "--clip", CLIP, "--note", NOTE)
    run_command("evaluate", "run", out / "evaluation", "--benchmark", benchmark, *named, *server, *yardsticks)
    write_recognised(out / "evaluation")
    say("5 of 5: the judge, a stand-in for a multimodal model, and the report")
    report = run_command("evaluate", "judge", out / "evaluation", *server, "--cast", cast)
    console.print(
        figures_table(Figures.model_validate_json(EvaluationFolder.open(out / "evaluation").figures.read_bytes()))
    )
    return report


def write_agents(out: Path) -> dict[str, Path]:
    """Write the untrained agents that are not there yet, and return the folders of all by name."""
    agents = {"ours": shipped().folder, "untrained": out / "untrained", "gc": out / "gc"}
    if not agents["untrained"].exists():
        new_checkpoint(agents["untrained"], mini_config())
    if not agents["gc"].exists():
        new_baseline(agents["gc"], tiny("gc"))
    return agents


if __name__ == "__main__":
    main()
