"""Settings of Prefect for our commands: environment variables, set before Prefect is first imported."""

from __future__ import annotations

import os


def set_prefect_defaults() -> None:
    """Set the variables that Prefect reads when it is first imported.

    Telemetry is off whatever the user's profile says; the rest are defaults that the user's own environment overrules:
    a loaded machine needs longer than 20 s to start the temporary server, and our progress bars and summary replace
    Prefect's log lines. A build at a terminal, too, must send heartbeats often enough for the automation of
    `deploy.py`, which marks silent runs as crashed.
    """
    os.environ.update(PREFECT_SERVER_ANALYTICS_ENABLED="false", DO_NOT_TRACK="1")
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "90")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
