"""The table at the end of a build: what became of each film, what failed and why, and where the results lie."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table

from flows.publish import finished
from flows.stages import Plan
from pipeline.records import Clip, Scene, Verdict
from pipeline.store import FilmFolder


def print_summary(plan: Plan, console: Console, trouble: str | None = None) -> int:
    """Print the summary of a build and return its exit code: 0 all good, 1 nothing built, 2 built with failures."""
    folders = [plan.dataset.folder(film_id) for film_id in plan.films.values()]
    table = Table("film", "length", "scenes", "clips", "kept", "dropped", box=None, pad_edge=False, header_style="bold")
    for folder in folders:
        table.add_row(*_row(folder))
    if folders:
        console.print(table)
    failures = [(refusal.record_id, refusal.reason) for refusal in plan.refused]
    failures += [(folder.film.name, folder.failure.reason) for folder in folders if folder.failure]
    for name, reason in failures:
        console.print(f"failed  {name}: {reason}", style="red", markup=False, highlight=False)
    if trouble and not failures:
        console.print(f"failed  {trouble}", style="red", markup=False, highlight=False)
    if plan.publish and finished(plan.dataset):
        root = plan.dataset.root
        console.print(
            f"shards  {root / 'shards'}\ncard    {root / 'README.md'}\nreport  {root / 'report.html'}", markup=False
        )
    built = sum(folder.failure is None for folder in folders)
    if trouble or failures:
        return 2 if built and not (trouble and not failures) else 1
    return 0 if built else 1


def _row(folder: FilmFolder) -> tuple[str, ...]:
    film = folder.film
    scenes = len(folder.read("scenes", Scene)) if folder.stage_record("cut") else "-"
    clips = len(folder.read("clips", Clip)) if folder.stage_record("cut") else "-"
    kept: int | str = "-"
    dropped = ""
    if folder.table_path("verdicts").exists() and not folder.failure:
        verdicts = folder.read("verdicts", Verdict)
        kept = sum(verdict.keep for verdict in verdicts)
        reasons = Counter(verdict.reasons[0] for verdict in verdicts if verdict.reasons)
        dropped = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    minutes, seconds = divmod(round(film.duration_seconds), 60)
    return film.name, f"{minutes}:{seconds:02d}", str(scenes), str(clips), str(kept), dropped
