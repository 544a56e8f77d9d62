"""A game on disk: its folder, its records, and playing a file of instructions."""
