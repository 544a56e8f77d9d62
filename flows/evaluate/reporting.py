"""Figures and report of an evaluation, written again from all measures after every command that adds some."""

from __future__ import annotations

from pathlib import Path

from flows.console.terminal import say
from flows.game.records import waited
from training.evaluation.figures import AgentNote, make_figures, write_figures
from training.evaluation.folder import EvaluationFolder
from training.evaluation.judge_summary import JUDGE_METRICS, judge_notes
from training.evaluation.measures import Metric, all_measures
from training.evaluation.metrics.catalogue import METRICS
from training.evaluation.report.page import write_report
from training.evaluation.study import STUDY_METRICS, study_notes

CATALOGUE: tuple[Metric, ...] = (*METRICS, *JUDGE_METRICS, *STUDY_METRICS)
"""All metrics that a table of measures may hold, in the order of the report."""


def remake_report(evaluation: EvaluationFolder) -> Path:
    """Write the figures and the report of all measures, and return the report's path.

    Raises:
        UserError: a table of measures, or a summary of them, is damaged.
    """
    request = evaluation.request
    shown = {"name", "kind", "note", "is_untrained"}
    agents = [AgentNote(**each.model_dump(include=shown)) for each in request.agents]
    waits = ((each.name, waited(turn.line for turn in evaluation.played(each.name))) for each in agents)
    first_frames = [f"{name}: {said}" for name, said in waits if said]
    notes = (*request.notes, *first_frames, *judge_notes(evaluation.path), *study_notes(evaluation.path))
    has_random = request.has_random_networks
    measures = all_measures(evaluation.path)
    figures = make_figures(measures, evaluation.benchmark, agents, CATALOGUE, notes, has_random_networks=has_random)
    write_figures(evaluation.path, figures)
    if not figures.figures:
        say("no measures yet; `animegamer evaluate run` makes them", "yellow")
    return write_report(evaluation, figures)
