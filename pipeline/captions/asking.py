"""Asking loop: many subjects, each with its questions, over one client, and the rules by which it ends early.

A subject is a clip, or a story or a window of games in an evaluation.

The loop works on a few more subjects than it may send requests, so that their pictures are ready when a slot becomes
free, and memory does not grow with the number of subjects. If a subject fails, the loop reports it by name and
continues. It ends early in three cases: the service as a whole cannot be used, the budget is used up, or the server
rejects several subjects in a row. Rejections count across loops, and end the questions of the whole build. The loop
then waits for the requests in flight and keeps their replies: an aborted request is billed too, and many of them stall
lmdeploy's engine (InternLM/lmdeploy issue 1788). Only an exception of `progress`, such as Ctrl-C, aborts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from pipeline.captions.endpoint import Endpoint, RequestError
from pipeline.core.errors import UserError
from pipeline.core.records import RecordError

if TYPE_CHECKING:
    from pipeline.captions.chat_client import ChatClient

REPORT_SECONDS = 0.5
"""Interval of progress reports. Cancellation is checked in them, so they continue while the server is silent."""
REJECTED_IN_A_ROW = 5
"""Number of subjects in a row that the server fails on before the loop gives up on the rest."""

T = TypeVar("T")


class AskingLoop(Generic[T]):
    """Questions about clips or other subjects, asked side by side."""

    def __init__(
        self,
        endpoint: Endpoint,
        subjects: Mapping[str, T],
        ask: Callable[[ChatClient, T], Awaitable[None]],
        kind: str = "clips",
        failed_before: Collection[str] = (),
    ) -> None:
        """Prepare the loop; nothing is sent.

        Args:
            endpoint: address of the service, and the bound of requests in flight.
            subjects: clips by id, or other subjects by name, in the order in which they are begun.
            ask: asks everything about a subject and stores the replies.
            kind: plural noun for the subjects in errors.
            failed_before: subjects that failed last time. If they fail again, they do not count as rejected in a row,
                because this says nothing about the others.
        """
        self.failures: dict[str, str] = {}
        """Reason that a clip file or the server failed, by id or name."""
        self.left = len(subjects)
        """Number of subjects that are not done."""
        self._endpoint = endpoint
        self._queue = iter(subjects.items())
        self._kind = kind
        self._ask = ask
        self._failed_before = failed_before
        self._stopped_by: UserError | None = None

    async def run(self, report: Callable[[], None]) -> None:
        """Ask about all subjects. `report` is called every half second; its exceptions abort the requests in flight.

        Raises:
            UserError: the loop ended early; replies received are stored.
        """
        from pipeline.captions.chat_client import ChatClient  # takes a second, and only a model server needs it

        most = self._endpoint.concurrency + max(4, self._endpoint.concurrency // 2)
        running: dict[asyncio.Task[None], str] = {}
        async with ChatClient(self._endpoint) as client:
            try:
                while True:
                    # 1. Begin more subjects than there are slots: their pictures are ready when a slot becomes free.
                    while not self._stopped_by and len(running) < most and (following := next(self._queue, None)):
                        name, subject = following
                        running[asyncio.ensure_future(self._ask(client, subject))] = name
                    # 2. End when nothing is in flight. After a stop, this waits for replies that are billed anyway.
                    if not running:
                        break
                    # 3. Wait for the next subject that is done, but not so long that a Ctrl-C goes unnoticed.
                    done, _ = await asyncio.wait(running, timeout=REPORT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    # 4. Note what failed, and begin nothing more if the failure concerns the rest.
                    for task in done:
                        self._note(client, running.pop(task), task.exception())
                    # 5. Report here rather than in a task, so that an exception of `report` ends the loop directly.
                    report()
            finally:
                # 6. Abort the requests in flight. There are some only after an exception.
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
        if self._stopped_by:
            raise self._stopped_by

    def _note(self, client: ChatClient, name: str, error: BaseException | None) -> None:
        """Note how a subject ended; raise the error if neither the subject, the server nor the disk is to blame."""
        match error:
            case None:
                client.budget.answered()
            case RecordError():
                self.failures[name] = error.reason
            case RequestError():
                self.failures[name] = str(error)
                if name not in self._failed_before and client.budget.rejected() == REJECTED_IN_A_ROW:
                    reason = f"{REJECTED_IN_A_ROW} {self._kind} in a row failed; the last: {error}"
                    self._stop(client.stop_all, UserError(reason))
            case UserError():
                self._stop(client.stop, error)
                return
            case OSError():  # a disk that fails: the replies in flight are still worth storing
                self._stop(client.stop, UserError(f"{name}: cannot read or store its replies: {error}"))
                return
            case _:
                raise error
        self.left -= 1

    def _stop(self, stop: Callable[[UserError], None], error: UserError) -> None:
        if self._stopped_by is None:
            self._stopped_by = error
            stop(error)
