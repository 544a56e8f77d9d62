"""Training of the network that finds transitions between scenes."""
