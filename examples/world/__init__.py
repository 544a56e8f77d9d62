"""Composer of 2D films with exact truth: scenes, transitions, characters, places, motions, and film files."""
