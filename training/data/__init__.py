"""Training data: turns read from shards, windows, example order, cached features."""
