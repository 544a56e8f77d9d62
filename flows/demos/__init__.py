"""Demos: the real film by package name, drawn worlds with known truth, a model trained and played on two cores."""
