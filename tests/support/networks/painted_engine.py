"""Engine without networks, for tests of the code around it: quick, and a pure function of its inputs."""

from __future__ import annotations

import numpy as np
import torch

from models.engine_options import PartProgress, unwatched
from models.tokens import PastTurn, State
from models.turns import GameState, Show, Turn, unseen
from pipeline.core.errors import UserError

PARTS = ("game model", "denoising", "frames")


class PaintedEngine:
    """Engine whose pictures, tokens and states follow from the seed, the instruction and the whole window.

    `seen` records the requests.
    """

    def __init__(self, window_turns: int = 4, size: tuple[int, int] = (32, 48)) -> None:
        self.window_turns = window_turns
        self.size = size
        self.seen: list[tuple[GameState, str, int]] = []

    def next_turn(
        self,
        state: GameState,
        instruction: str,
        seed: int,
        progress: PartProgress = unwatched,
        show: Show = unseen,  # noqa: ARG002
    ) -> tuple[Turn, GameState]:
        """Make the turn after `state`."""
        if not instruction.strip():
            raise UserError("the instruction is empty")
        self.seen.append((state, instruction, seed))
        for part in PARTS:
            for done in range(3):
                progress(part, done, 2)
        remembered = sum(float(past.shot_tokens_LD.sum()) for past in state.window)
        random = np.random.default_rng([seed, len(instruction), int(1000 * abs(remembered))])
        level, social, entertainment = random.integers(1, 6), random.integers(0, 2), random.integers(0, 2)
        answer = State(int(level), int(social), int(entertainment), stamina=int(random.choice([-1, 1])))
        shot_tokens_LD = torch.from_numpy(random.normal(size=(6, 8)).astype(np.float32)).bfloat16()
        after = state.after(PastTurn(instruction, shot_tokens_LD, answer), self.window_turns)
        corners_TC = random.integers(0, 256, (17, 1, 1, 3), dtype=np.uint8)
        turn = Turn(
            number=after.turns,
            instruction=instruction,
            state=answer,
            scope_px=2.0 * answer.level,
            values=after.values,
            frames_THWC=np.broadcast_to(corners_TC, (17, *self.size, 3)).copy(),
            shot_tokens_LD=shot_tokens_LD,
            seconds=dict.fromkeys(PARTS, 0.1),
        )
        return turn, after
