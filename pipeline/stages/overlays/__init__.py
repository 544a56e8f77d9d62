"""Overlays of a film's pictures: black borders, text, logos."""
