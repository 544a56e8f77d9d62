"""Function call in a child process: a crash in native code costs the record being processed, not the run.

The child sends progress and its result through a pipe. It exits when its parent ends, even by SIGKILL.

Children are forked from multiprocessing's server process, which has one thread. It has already imported the package of
the first `work`; a fresh interpreter would spend a second on these imports for every child.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from pipeline.core.errors import UserError, memory_fault
from pipeline.core.progress import Progress
from pipeline.core.records import RecordError

A = TypeVar("A")
R = TypeVar("R")

REPORT_SECONDS = 0.1


def call_in_child(work: Callable[[A, Progress], R], argument: A, record_id: str, progress: Progress) -> R:
    """Run `work(argument, progress)` in a child process and return its result.

    Args:
        work: a module-level function; it, `argument` and the result are pickled.
        argument: passed to `work`.
        record_id: the record that errors name.
        progress: called in this process with the progress of the child.

    Raises:
        RecordError: the work raised one, memory ran out, or a signal killed the child (a crash in a native library).
        RuntimeError: the work raised anything else; the child has printed the traceback.
    """
    context = multiprocessing.get_context("forkserver")
    package = work.__module__.rpartition(".")[0] + "."
    context.set_forkserver_preload([name for name in list(sys.modules) if name.startswith(package)])
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_serve, args=(work, argument, sender), daemon=True)
    try:
        child.start()
        sender.close()  # so that the stream ends when the child does
        result: R = _follow(receiver, record_id, progress)
        return result
    except _DiedError:
        child.join()
        raise _death(record_id, child.exitcode or 0) from None
    finally:
        receiver.close()
        if child.pid is not None:
            child.kill()
            child.join()


class _DiedError(Exception):
    """The child ended without a result."""


def _follow(receiver: Connection, record_id: str, progress: Progress) -> Any:
    while True:
        try:
            kind, content = receiver.recv()
        except (EOFError, OSError) as error:  # between two messages, or in the middle of a long one
            raise _DiedError from error
        if kind == "progress":
            progress(*content)
        elif kind == "error":
            raise RecordError(record_id, content)
        else:
            return content


def _death(record_id: str, exitcode: int) -> Exception:
    if exitcode >= 0:
        return RuntimeError(f"{record_id}: the child process failed (exit code {exitcode}); its traceback is above")
    name = signal.Signals(-exitcode).name
    hint = "; out of memory?" if name == "SIGKILL" else ""
    return RecordError(record_id, f"the decoder died by signal {name}{hint}")


def _serve(work: Callable[[A, Progress], R], argument: A, sender: Connection) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole process group; the parent handles them
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    last = 0.0

    def report(done: float, total: float) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= REPORT_SECONDS:
            last = now
            sender.send(("progress", (done, total)))

    try:
        sender.send(("result", work(argument, report)))
    except RecordError as error:
        sender.send(("error", error.reason))
    except UserError as error:
        sender.send(("error", str(error)))
    except Exception as error:
        if not (fault := memory_fault(error)):
            raise
        sender.send(("error", fault))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()  # returns when the parent has ended, even by SIGKILL
        os._exit(1)
