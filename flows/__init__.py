"""Entry points: Prefect flows, the `animegamer` command and its pages. Prefect is used only here."""

import os

# OpenBLAS reads this when numpy is first imported. Each of its threads spins for a tenth of a second at the start of
# every process, and our matrices are too small to need threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# libgomp reads this when torch is first imported. A thread that waits for another one spins 300,000 times by default,
# also when it takes the core away from the other: beside a busy process, a turn took 32 s instead of 1 s
# (docs/results/game-speed.md).
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
