"""Training on the shards: so far how they are read, ordered and encoded (see the README's status table)."""
