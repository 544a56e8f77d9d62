"""HTML report, `report.html`: one file with tables, curves by turn, strips of games and each agent's worst turns.

Figures come from `figures.json`, pictures from the games, and the worst turns from the tables of measures. The page
makes no request and runs no script. The same evaluation gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.core.atomic import replacing
from pipeline.pages import charts
from training.evaluation.figures import Figure, Figures
from training.evaluation.folder import EvaluationFolder
from training.evaluation.judge_summary import read_summary
from training.evaluation.measures import Metric
from training.evaluation.ratings import CriterionScores
from training.evaluation.report.strips import strips, worst_turns
from training.evaluation.report.tables import (
    ABLATION_METRICS,
    ABLATIONS,
    COMPARISON,
    PAPER_METRICS,
    SOURCE,
    Table,
    by_character,
    by_metric,
    comparison,
    head_of,
    in_print,
)
from training.evaluation.study import StudyResults, read_results

WORST_BY = ("clip_t", "clip_t_e", "clip_i", "dreamsim")
"""Metrics of the worst turns: the first that was measured turn by turn."""


@dataclass(frozen=True)
class Group:
    """Metrics that one command measures, with a table."""

    title: str
    text: str
    command: str
    table: Table


@dataclass(frozen=True)
class Curves:
    """A chart of one metric over the turns, a line per agent."""

    title: str
    chart: charts.TurnChart
    slopes: tuple[str, ...]
    """The change per turn of each agent, in words."""


def write_report(evaluation: EvaluationFolder, figures: Figures) -> Path:
    """Write `report.html` of an evaluation, and return its path. UserError if a table of measures is damaged."""
    path = evaluation.path / "report.html"
    with replacing(path) as temporary:
        temporary.write_text(_page(evaluation, figures), encoding="utf-8", newline="\n")
    return path


def _page(evaluation: EvaluationFolder, figures: Figures) -> str:
    environment = Environment(
        loader=PackageLoader("training.evaluation.report", "."), undefined=StrictUndefined, autoescape=True
    )
    style = (files("training.evaluation.report") / "page.css").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(
        css=Markup(style),  # noqa: S704 - our own file
        css_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        **_values(evaluation, figures),
    )


def _values(evaluation: EvaluationFolder, figures: Figures) -> dict[str, Any]:
    worst_by = _worst_by(figures)
    paper = [metric for metric in figures.metrics if metric.name in PAPER_METRICS]
    commands = _commands(evaluation)
    return {
        "title": evaluation.path.absolute().name,
        "facts": _facts(evaluation),
        "agents": figures.agents,
        "notes": list(figures.notes),
        "missing": _missing(evaluation),
        "comparison": comparison(figures, PAPER_METRICS, COMPARISON),
        "ablations": comparison(figures, ABLATION_METRICS, ABLATIONS),
        "source": SOURCE,
        "characters": [(metric, table) for metric in paper if (table := by_character(figures, metric))],
        "groups": _groups(figures, commands, _agreement(read_results(evaluation.path))),
        "curves": _curves(figures),
        "chart": charts,
        "strips": strips(evaluation, [agent.name for agent in evaluation.request.agents]),
        "worst_by": worst_by,
        "worst": worst_turns(evaluation, worst_by) if worst_by else [],
        "metrics": figures.metrics,
        "commands": commands,
        "benchmark_sha256": figures.benchmark_sha256,
    }


def _facts(evaluation: EvaluationFolder) -> list[tuple[str, str, str]]:
    games, request = evaluation.benchmark.games, evaluation.request
    turns = [len(game.panels) for game in games]
    longest = f"{max(turns)} turns the longest" if len(set(turns)) > 1 else f"{max(turns)} turns each"
    characters = {game.character for game in games if game.character}
    return [
        ("Games", f"{len(games):,}", longest),
        ("Turns", f"{sum(turns):,}", "by every agent"),
        ("Protagonists", f"{len(characters):,}", f"of {len(evaluation.benchmark.characters):,} characters"),
        ("Agents", f"{len(request.agents):,}", "on the same games"),
    ]


def _missing(evaluation: EvaluationFolder) -> list[str]:
    said = []
    for agent in evaluation.request.agents:
        left = evaluation.missing(agent.name)
        if left and agent.kind != "folder":  # a folder's note lists its missing turns
            games = ", ".join(f"{name} ({count})" for name, count in list(left.items())[:5])
            more = f" and {len(left) - 5} more games" if len(left) > 5 else ""
            said.append(f"{agent.name} lacks turns in {games}{more}; its means are over the turns that are there.")
    return said


def _groups(figures: Figures, commands: dict[str, str], agreement: str) -> list[Group]:
    """Return the metrics beyond the paper's table, by the command that measures them."""
    kinds = {
        "run": ("Beyond the paper", "Metrics that the paper's table leaves out."),
        "judge": ("Multimodal judge", "Scores from 1 to 10 by a multimodal model that sees all agents side by side."),
        "study": ("Human study", f"Ranks by people as scores from 10 to 1, averaged. {agreement}"),
    }
    found = []
    for kind, (title, text) in kinds.items():
        own = [each for each in figures.metrics if _source_of(each) == kind and each.name not in PAPER_METRICS]
        if own:
            found.append(Group(title, text, commands[kind], by_metric(figures, own)))
    return found


def _agreement(results: StudyResults | None) -> str:
    """Describe by criterion how far people agree with each other and with the judge; empty without a study."""
    if results is None:
        return ""
    alphas = [f"{_name(each)} {each.alpha:.2f}" for each in results.criteria if each.alpha is not None]
    judged = [f"{_name(each)} {each.judge:.2f}" for each in results.criteria if each.judge is not None]
    said = [f"Agreement of participants, Krippendorff's alpha: {', '.join(alphas)}."] if alphas else []
    said += [f"Rank correlation of the judge with people: {', '.join(judged)}."] if judged else []
    return " ".join(said)


def _name(criterion: CriterionScores) -> str:
    return criterion.metric.removeprefix("study_")


def _source_of(metric: Metric) -> str:
    return next((kind for kind in ("judge", "study") if metric.name.startswith(f"{kind}_")), "run")


def _commands(evaluation: EvaluationFolder) -> dict[str, str]:
    """Return the commands that make the figures, by what they measure."""
    out, request = str(evaluation.path), evaluation.request
    run = ["animegamer", "evaluate", "run", out, "--benchmark", str(evaluation.path / "benchmark.jsonl")]
    for agent in request.agents:
        holds = "tokens:" if agent.kind == "tokens" else ""
        run += ["--agent", f"{agent.name}={holds}{agent.folder}"]
    run += ["--seed", str(request.seed)]
    asked = {name: getattr(request, name) for name in ("steps", "guidance", "sampler")}
    run += [word for name, value in asked.items() if value is not None for word in (f"--{name}", str(value))]
    routers = [agent.router for agent in request.agents if agent.router]
    routed = ["--server", "URL", "--model", routers[0]] if routers else []
    return {
        "run": shlex.join([*run, *routed, *request.options]),
        "judge": _judge_command(evaluation),
        "study": f"animegamer evaluate study {shlex.quote(out)} --out STUDY --results FILES",
        "report": f"animegamer evaluate report {shlex.quote(out)}",
    }


def _judge_command(evaluation: EvaluationFolder) -> str:
    summary = read_summary(evaluation.path)
    command = ["animegamer", "evaluate", "judge", str(evaluation.path), "--server", "URL"]
    if summary is None:
        return shlex.join([*command, "--model", "MODEL"])
    cast = ["--cast", "CAST"] if summary.cast_sha256 else []
    sampled = ["--temperature", str(summary.temperature)] if summary.temperature else []
    return shlex.join([*command, "--model", summary.model, "--repeats", str(summary.repeats), *cast, *sampled])


def _worst_by(figures: Figures) -> Metric | None:
    by_turn = {each.metric for each in figures.figures if each.turn is not None}
    known = {metric.name: metric for metric in figures.metrics if metric.name in by_turn}
    return next((known[name] for name in WORST_BY if name in known), next(iter(known.values()), None))


def _curves(figures: Figures) -> list[Curves]:
    """Return a chart for every metric that is known at two or more turns, in the order of the metrics."""
    by_metric: dict[str, list[Figure]] = {}
    for figure in figures.figures:
        if figure.turn is not None:
            by_metric.setdefault(figure.metric, []).append(figure)
    found = []
    for metric in figures.metrics:
        own = sorted(by_metric.get(metric.name, ()), key=lambda each: each.turn or 0)
        if len({each.turn for each in own}) > 1:
            lines = [[_turn_value(each) for each in own if each.agent == agent.name] for agent in figures.agents]
            found.append(Curves(head_of(metric), charts.turn_chart(lines), tuple(_slopes(figures, metric.name))))
    return found


def _turn_value(figure: Figure) -> charts.TurnValue:
    said = f"{figure.agent}, turn {figure.turn}: {in_print(figure.value)}"
    if figure.low is not None:
        said += f" ({in_print(figure.low)} to {in_print(figure.high)})"
    return charts.TurnValue(figure.turn or 0, figure.value, figure.low, figure.high, said)


def _slopes(figures: Figures, metric: str) -> Iterator[str]:
    for slope in figures.slopes:
        if slope.metric == metric:
            is_bounded = slope.low is not None and slope.high is not None
            bounds = f" ({_signed(slope.low)} to {_signed(slope.high)})" if is_bounded else ""
            yield f"{slope.agent} {_signed(slope.value)}{bounds}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{round(value, 9):+.2g}".replace("-", "−")
