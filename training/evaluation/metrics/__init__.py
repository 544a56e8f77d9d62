"""Metrics of played turns: networks, cached features, and the values made of them."""
