"""Skipped batches of a run: those whose loss or gradient was not finite. They are part of the saved state.

With a loss scaler (fp16) the gradient of a scaled loss overflows in the first steps, until the scaler has found the
scale; it skips those steps itself. They are no faults of the network and are not counted. At a scale of 1 or less they
are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline.core.errors import UserError

MOST_IN_A_ROW = 10
"""Skipped batches in a row that end a run: one is chance, ten are a network that has overflowed."""


@dataclass
class Skips:
    """Counts of skipped batches. All processes hold the same: they judge the same reduced values."""

    total: int = 0
    in_a_row: int = 0

    def judge(self, phase: str, step: int, loss: float, norm: float, *, scale: float = 1.0) -> bool:
        """Count a batch. Return whether its step is to be skipped.

        Args:
            phase: name of the phase.
            step: number of the step, from 1.
            loss: loss of the global batch.
            norm: norm of its gradient.
            scale: factor of the loss, by a loss scaler.

        Raises:
            UserError: `MOST_IN_A_ROW` batches in a row were not finite.
        """
        if math.isfinite(loss) and (math.isfinite(norm) or scale > 1):
            self.in_a_row = 0
            return False
        self.total += 1
        self.in_a_row += 1
        if self.in_a_row >= MOST_IN_A_ROW:
            raise UserError(
                f"{phase}: {self.in_a_row} batches in a row were not finite, the last at step {step} (loss {loss}, "
                f"gradient norm {norm}). Go on in a new folder from the last state (--fork-from), or anew, with a "
                "smaller learning_rate or another precision: 'no', or on a GPU fp16 in place of bf16 (CogVideoX 2B is "
                "known to overflow in bf16)"
            )
        return True

    def state(self) -> dict[str, int]:
        """Return the counts for a saved state."""
        return {"total": self.total, "in_a_row": self.in_a_row}
