"""Prefect settings of the commands: environment variables, set before Prefect is first imported, and its log lines."""

from __future__ import annotations

import logging
import os


class _FirstOnly(logging.Filter):
    """Filter of the errors about events that a Prefect server did not take: the first becomes a short line.

    Without a server, Prefect logs every event in full: 1 to 2 kB every few seconds.
    """

    _is_said = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if "failed to process item" not in str(record.msg):
            return True
        is_first, self._is_said = not self._is_said, True
        record.msg, record.args = "the Prefect server took no event: is it still there? This is said once", ()
        return is_first


_FIRST_ONLY = _FirstOnly()


def set_prefect_defaults() -> None:
    """Set the variables that Prefect reads when it is first imported.

    Telemetry is always off, whatever the user's profile says. The rest are defaults that the environment overrides:
    progress bars and summary replace Prefect's log lines, and a build at a terminal must send heartbeats, since the
    automation of `deploy.py` marks runs without them as crashed.
    """
    os.environ.update(PREFECT_SERVER_ANALYTICS_ENABLED="false", DO_NOT_TRACK="1")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    logging.getLogger("prefect._internal.concurrency").addFilter(_FIRST_ONLY)
