"""Benchmarks: build, game turn, learning and training step."""
