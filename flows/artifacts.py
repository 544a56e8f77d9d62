"""What a person sees of a build on the pages of a Prefect server: how far it is, and at the end what has come of it.

Artifacts are for reading only and best effort: a server that is gone never fails a film, nor holds one up. Without a
server of one's own (PREFECT_API_URL) there are none: the temporary one ends with the build, and nobody sees its pages.
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
from prefect.settings import PREFECT_API_URL

from flows.console.summary import COLUMNS, film_row
from pipeline.core.plain_text import printable
from pipeline.core.progress import Watch, watched
from pipeline.core.store import StoreError
from pipeline.plan.build_plan import Plan
from pipeline.plan.workspace import absolute
from pipeline.publish.shards import read_index

SECONDS = 3.0
"""Between two reports of progress; work that is done sooner leaves no artifact."""
PARTING_SECONDS = 2.0
"""How long the last report may take."""
LOST = (httpx.HTTPError, PrefectException)
"""What is raised where the server is gone, or does not know the artifact any more."""


@contextmanager
def shown(subject: str, name: str) -> Iterator[Watch]:
    """As `watched`, and on the pages of the server too."""
    bar = _Bar(subject, name) if PREFECT_API_URL.value() else None
    with watched(subject, name) as watch, bar.over(watch) if bar else nullcontext():
        yield watch


class _Bar:
    """A progress artifact, kept up to date by a thread of its own, so that no work waits for the server."""

    def __init__(self, subject: str, name: str) -> None:
        self._key, self._description = _key(subject, name), printable(f"{subject}: {name}")
        self._percent = 0.0
        self._ended = Event()

    @contextmanager
    def over(self, watch: Watch) -> Iterator[None]:
        """Follow the progress that is reported to the watch while the block lasts."""
        report = watch.report

        def follow(done: float, total: float) -> None:
            self._percent = 100 * done / total if total else 0.0
            report(done, total)

        watch.report = follow
        teller = Thread(target=copy_context().run, args=(self._tell,), daemon=True)
        teller.start()
        try:
            yield
            self._percent = 100.0
        finally:
            self._ended.set()
            teller.join(PARTING_SECONDS)

    def _tell(self) -> None:
        artifact: UUID | None = None
        told = -1.0
        while not (ended := self._ended.wait(SECONDS)) or artifact:
            if (percent := self._percent) != told:
                with suppress(*LOST):
                    artifact = self._send(artifact, percent)
                    told = percent
            if ended:
                return

    def _send(self, artifact: UUID | None, percent: float) -> UUID:
        if artifact:
            update_progress_artifact(artifact, percent)
            return artifact
        made = create_progress_artifact(percent, key=self._key, description=self._description)
        assert isinstance(made, UUID), "it is a coroutine only where an event loop is running"
        return made


def show_results(plan: Plan, failures: Sequence[str]) -> None:
    """At the end of a build: a table of its films, and a page that says where everything lies."""
    if not PREFECT_API_URL.value():
        return
    name = plan.workspace.name.rstrip("/").rpartition("/")[2]
    with suppress(*LOST):
        create_table_artifact(film_table(plan), key=_key("films", name), description="What became of each film")
        page = results_page(plan, absolute(plan.workspace.name), failures)
        create_markdown_artifact(page, key=_key("results", name), description="Where everything lies")


def film_table(plan: Plan) -> list[dict[str, str]]:
    """A row per film: the numbers of the summary, and its state."""
    rows = []
    for folder in map(plan.dataset.folder, plan.films):
        state = f"failed: {folder.failure.reason}" if folder.failure else "done"
        rows.append((*film_row(folder), state))
    rows += [(refused.record_id, *("-" * (len(COLUMNS) - 1)), f"refused: {refused.reason}") for refused in plan.refused]
    return [dict(zip((*COLUMNS, "state"), map(printable, row), strict=True)) for row in rows]


def results_page(plan: Plan, out: str, failures: Sequence[str]) -> str:
    """Where report, card and shards lie, what is in them, and what failed, as Markdown."""
    lines = [f"# {_code(out)}", ""]
    with suppress(StoreError):  # nothing is published yet
        index = read_index(plan.dataset.root)
        counts = ", ".join(f"{count} {split}" for split, count in sorted(index.counts.split.items()))
        held = (
            f"{len(index.shards)} shards, {sum(shard.bytes for shard in index.shards) / 1e6:.1f} MB, samples: {counts}"
        )
        places = {"report": "report.html", "data card": "README.md", "shards": "shards/index.json"}
        lines += [f"* {what}: {_code(f'{out}/{name}')}" for what, name in places.items()]
        lines += [f"* {held}", ""]
    if failures:
        lines += ["## Failed", "", *(f"* {_code(line)}" for failure in failures for line in failure.splitlines())]
    return "\n".join(lines)


def _code(text: str) -> str:
    """Text that Markdown leaves as it is: names of files are not ours."""
    return f"`{printable(text).replace('`', chr(39))}`"


def _key(*words: str) -> str:
    """An artifact's key may hold lower-case letters, digits and dashes only."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")[:100]
