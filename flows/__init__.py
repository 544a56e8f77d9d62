"""Entry points: Prefect flows, the `animegamer` command and its pages. Prefect is used only here."""

import os

# Read when numpy is first imported, by whatever comes after: each of OpenBLAS's threads spins for a tenth of a second
# at the start of every process, and our matrices are too small for threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
