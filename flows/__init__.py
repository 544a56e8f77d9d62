"""Entry points: Prefect flows, the `animegamer` command and its pages. Prefect is used only here."""

import os

# OpenBLAS reads this when numpy is first imported. Each of its threads spins for a tenth of a second at the start of
# every process, and our matrices are too small to need threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
