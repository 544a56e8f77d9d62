"""Learning curve of a step: the measures of every validation over the CPU seconds spent, one JSON line each.

CPU seconds, of all threads, do not depend on what else the machine does. A resumed step goes on from the last line: the
seconds from that validation to the end of the killed process are missing, those of lost steps and, where a state was
saved after the validation, also those of the steps before it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from training.trainer import StepReport

_VALIDATION = "val/"


class LearningCurve:
    """Watcher of steps that appends a line for every validation."""

    def __init__(self, path: Path) -> None:
        """Go on from the lines of a file, if it exists."""
        self.path = path
        points = read_curve(path)
        self._earlier = float(points[-1]["cpu_seconds"]) if points else 0.0
        self._begun = time.process_time()

    def __call__(self, report: StepReport) -> None:
        """Append the measures of a step that was followed by a validation."""
        found = {
            name.removeprefix(_VALIDATION): round(value, 4)
            for name, value in report.figures.items()
            if name.startswith(_VALIDATION)
        }
        if found:
            spent = self._earlier + time.process_time() - self._begun
            point = {"phase": report.phase, "step": report.step, "cpu_seconds": round(spent, 1), **found}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(point) + "\n")


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Return the points of a learning curve; none if there is no file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
