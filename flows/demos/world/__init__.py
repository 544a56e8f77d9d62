"""Composer of 2D films with exact truth: characters, places, motions, transitions."""
