"""Choice of a few clips of a split, spread evenly over its films and their time.

The clips of a split are grouped by film and in time order, so equal steps through them reach every long film and all
parts of it.
"""

from __future__ import annotations


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` numbers of `range(count)`: the middles of as many equal parts."""
    chosen = min(count, most)
    return [(2 * place + 1) * count // (2 * chosen) for place in range(chosen)]
