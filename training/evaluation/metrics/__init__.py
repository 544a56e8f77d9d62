"""Metrics of played turns: networks, cached features, and values."""
