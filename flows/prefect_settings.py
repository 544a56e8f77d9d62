"""Prefect settings of the commands: environment variables, set before Prefect is first imported."""

from __future__ import annotations

import os


def set_prefect_defaults() -> None:
    """Set the variables that Prefect reads when it is first imported.

    Telemetry is always off, whatever the user's profile says. The rest are defaults that the environment overrides:
    progress bars and summary replace Prefect's log lines, and a build at a terminal must send heartbeats, since the
    automation of `deploy.py` marks runs without them as crashed.
    """
    os.environ.update(PREFECT_SERVER_ANALYTICS_ENABLED="false", DO_NOT_TRACK="1")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
