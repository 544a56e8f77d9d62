"""Tree of the states that may follow a level, so that the game model reads all of them in one pass.

Shape: S positions of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self

import torch
from torch import Tensor

from models.tokens import LEGAL_IDS, STATE_TAGS


@dataclass(frozen=True, eq=False)
class StateTree:
    """All that may follow the level of a state, up to the last slot.

    It has three positions for each legal path of values: its last value, that slot's closing tag, and the next opening
    tag. The first path is empty and stands for the level.
    """

    paths: Sequence[tuple[int, ...]]
    ids_S: Tensor
    """Without the first, the level's."""
    depths_S: Tensor
    """Distances from the level, in a state with that path."""
    seen_SS: Tensor
    """True for the position itself and its ancestors."""

    @classmethod
    def of_legal_values(cls) -> Self:
        """Return the tree of the legal values."""
        paths = [path for length in range(len(LEGAL_IDS) - 1) for path in product(*LEGAL_IDS[1 : 1 + length])]
        places = [(path, 3 * len(path) + nth) for path in paths for nth in range(3)]
        seen = [[path[: len(other)] == other and near <= far for other, near in places] for path, far in places]
        ids = [(*path[-1:], STATE_TAGS[len(path)][1], STATE_TAGS[len(path) + 1][0]) for path in paths]
        return cls(
            paths,
            ids_S=torch.tensor([each for node in ids for each in node]),
            depths_S=torch.tensor([depth for _, depth in places]),
            seen_SS=torch.tensor(seen),
        )


STATE_TREE = StateTree.of_legal_values()
