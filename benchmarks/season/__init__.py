"""Benchmark of repeats: composed seasons with truth."""
