"""Training on the shards: data loading, phases, training loop, recipes and baselines."""
