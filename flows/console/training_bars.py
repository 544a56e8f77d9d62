"""Progress display of training: a bar per feature or phase, and a line for each validation."""

from __future__ import annotations

from flows.console.display import Display
from training.trainer import StepReport


class TrainBars(Display):
    """Training reports as bars. With several processes, all but the first are silent."""

    def feature(self, name: str, done: float, total: float) -> None:
        """Show the progress of encoding a feature."""
        self.move(f"encoding {name}", done, total, f"{done:g} of {total:g} clips")

    def step(self, report: StepReport) -> None:
        """Show a training step; a validation prints a permanent line."""
        figures = report.figures
        loss = f"loss {figures['loss']:.4f}"
        self.move(report.phase, report.step, report.steps, f"step {report.step} of {report.steps}, {loss}")
        seen = {name: value for name, value in figures.items() if name.startswith("val/")}
        if seen:
            held_out = ", ".join(f"{name.removeprefix('val/')} {value:.4f}" for name, value in seen.items())
            self.say(f"  {report.phase}, step {report.step}: {loss}; held out: {held_out}")
