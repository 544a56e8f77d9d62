"""Evaluation of agents: playing of a benchmark, measurement and report."""
