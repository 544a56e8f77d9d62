"""Repeats among the episodes of a series."""
