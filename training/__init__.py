"""Training and evaluation on the shards (not built yet: see the README's status table)."""
