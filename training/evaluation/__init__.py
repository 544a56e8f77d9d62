"""Evaluation of agents: benchmark, metrics by turn, judge, study, and the figures made of them."""
