"""Cutting of a film: boundaries between scenes, the grid of clips in a scene, and their files."""
