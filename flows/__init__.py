"""Entry points: Prefect flows, the `animegamer` command, its pages, demos and benchmarks. Prefect is used only here."""
