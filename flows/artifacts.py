"""Prefect artifacts of a build: progress while it runs, then a table of its films and a page of its results.

Artifacts are read-only and best effort: a server that does not answer neither fails nor delays a film. Without a
configured server there are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import copy_context
from threading import Event, Thread
from uuid import UUID

import httpx
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.exceptions import PrefectException

from flows.console.summary import COLUMNS, film_row
from flows.engine import has_server
from pipeline.core.plain_text import printable
from pipeline.core.progress import Watch, watched
from pipeline.core.store import StoreError
from pipeline.plan.build_plan import Plan
from pipeline.publish.shards import read_index

SECONDS = 3.0
"""Interval between two progress updates; work that ends sooner leaves no artifact."""
PARTING_SECONDS = 2.0
"""Timeout of the last update, when the work has ended."""
SERVER_ERRORS = (httpx.HTTPError, PrefectException)
"""Errors raised if the server does not answer, or no longer has the artifact."""


@contextmanager
def shown(subject: str, name: str) -> Iterator[Watch]:
    """Watch a piece of work as `watched` does, and show its progress as an artifact if a server is configured."""
    bar = _Bar(subject, name) if has_server() else None
    with watched(subject, name) as watch, bar.over(watch) if bar else nullcontext():
        yield watch


class _Bar:
    """Progress artifact, updated from a separate thread so that the work never waits for the server."""

    def __init__(self, subject: str, name: str) -> None:
        self._key, self._description = _key(subject, name), printable(f"{subject}: {name}")
        self._percent = 0.0
        self._ended = Event()

    @contextmanager
    def over(self, watch: Watch) -> Iterator[None]:
        """Send the progress reported to the watch during the block."""
        report = watch.report

        def follow(done: float, total: float) -> None:
            self._percent = 100 * done / total if total else 0.0
            report(done, total)

        watch.report = follow
        sender = Thread(target=copy_context().run, args=(self._keep_sending,), daemon=True)
        sender.start()
        try:
            yield
            self._percent = 100.0
        finally:
            self._ended.set()
            sender.join(PARTING_SECONDS)

    def _keep_sending(self) -> None:
        artifact: UUID | None = None
        sent = -1.0
        while not (ended := self._ended.wait(SECONDS)) or artifact:
            if (percent := self._percent) != sent:
                with suppress(*SERVER_ERRORS):
                    artifact = self._send(artifact, percent)
                    sent = percent
            if ended:
                return

    def _send(self, artifact: UUID | None, percent: float) -> UUID:
        if artifact:
            update_progress_artifact(artifact, percent)
            return artifact
        made = create_progress_artifact(percent, key=self._key, description=self._description)
        assert isinstance(made, UUID), "a coroutine only inside a running event loop"
        return made


def show_results(plan: Plan, failures: Sequence[str]) -> None:
    """Create the artifacts of a finished build: a table of its films, and a page with the paths of its results."""
    if not has_server():
        return
    name = plan.workspace.name.rstrip("/").rpartition("/")[2]
    with suppress(*SERVER_ERRORS):
        create_table_artifact(film_table(plan), key=_key("films", name), description="Result of each film")
        page = results_page(plan, plan.workspace.name, failures)
        create_markdown_artifact(page, key=_key("results", name), description="Paths of the results, and failures")


def film_table(plan: Plan) -> list[dict[str, str]]:
    """Rows of the table, one per film: the numbers of the summary, and the film's state."""
    rows = []
    for folder in map(plan.dataset.folder, plan.films):
        state = f"failed: {folder.failure.reason}" if folder.failure else "done"
        rows.append((*film_row(folder), state))
    rows += [(refused.record_id, *("-" * (len(COLUMNS) - 1)), f"refused: {refused.reason}") for refused in plan.refused]
    return [dict(zip((*COLUMNS, "state"), map(printable, row), strict=True)) for row in rows]


def results_page(plan: Plan, out: str, failures: Sequence[str]) -> str:
    """Results as Markdown: paths of report, card and shards, their counts, and the failures."""
    lines = [f"# {_code(out)}", ""]
    with suppress(StoreError):  # nothing is published yet
        index = read_index(plan.dataset.root)
        counts = ", ".join(f"{count} {split}" for split, count in sorted(index.counts.split.items()))
        megabytes = sum(shard.bytes for shard in index.shards) / 1e6
        places = {"report": "report.html", "data card": "README.md", "shards": "shards/index.json"}
        lines += [f"* {label}: {_code(f'{out}/{name}')}" for label, name in places.items()]
        lines += [f"* {len(index.shards)} shards, {megabytes:.1f} MB, samples: {counts}", ""]
    if failures:
        lines += ["## Failed", "", *(f"* {_code(line)}" for failure in failures for line in failure.splitlines())]
    return "\n".join(lines)


def _code(text: str) -> str:
    """Quote text as Markdown code: file names are untrusted."""
    return f"`{printable(text).replace('`', chr(39))}`"


def _key(*words: str) -> str:
    """Key of an artifact: lower-case letters, digits and dashes only, as Prefect requires."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")[:100]
