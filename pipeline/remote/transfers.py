"""Transfers of files in parallel threads, with the progress of all bytes together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

from pipeline.core.progress import Progress

_SMALL_TRANSFERS_AT_ONCE = 16
_LARGE_BYTES = 32 << 20
"""Size from which files are transferred one at a time: s3fs splits a large one and holds its parts in memory."""


class Transfers:
    """Transfers of files, small ones several at once, with the progress of all bytes together."""

    def __init__(self, total_bytes: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total_bytes, progress

    def run(self, work: Callable[[str, Any], None], sizes: Mapping[str, int]) -> None:
        """Call `work` with the name of each file and a meter for its bytes; return when all are done.

        The first error cancels the transfers not yet started, and so does a `progress` that raises.
        """
        small = {name: size for name, size in sizes.items() if size < _LARGE_BYTES}
        for batch in (small, *({name: sizes[name]} for name in sizes if name not in small)):
            self._run_batch(work, batch)
            self._done += sum(batch.values())

    def _run_batch(self, work: Callable[[str, Any], None], sizes: Mapping[str, int]) -> None:
        from fsspec.callbacks import Callback  # type: ignore[import-untyped]

        meters = {name: Callback() for name in sizes}

        def transfer(name: str) -> None:
            work(name, meters[name])
            meters[name].absolute_update(sizes[name])  # not every store's package counts bytes

        pool = ThreadPoolExecutor(_SMALL_TRANSFERS_AT_ONCE)
        try:
            running: set[Future[None]] = {pool.submit(transfer, name) for name in sizes}
            while running:
                done, running = wait(running, timeout=0.2, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                self._progress(self._done + sum(meter.value for meter in meters.values()), self._total)
        finally:
            pool.shutdown(cancel_futures=True)
