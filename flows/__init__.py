"""Where the stages run: Prefect flows and the `animegamer` command. The only package that knows Prefect."""

import os

# Read by Prefect when it is first imported. Telemetry is off whatever the user's profile says; the rest are defaults
# that a user's own environment overrules: a loaded machine needs longer than 20 s to start the temporary server, and
# our progress bars and summary replace Prefect's log lines. A build at a terminal, too, must show signs of life often
# enough for the automation of `deploy.py`, which calls silent runs dead.
os.environ.update(PREFECT_SERVER_ANALYTICS_ENABLED="false", DO_NOT_TRACK="1")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "90")
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
