"""Benchmark of characters carried from reviewed clips, and the training of the network of pictures that ships."""
