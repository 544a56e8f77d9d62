"""Benchmark of scene boundaries on pictures that nobody here composed."""
