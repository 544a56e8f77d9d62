"""Evaluation of agents: benchmark, metrics by turn, judge, study, and figures."""
