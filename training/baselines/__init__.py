"""Baselines of the paper: GC, GFC and GSC, on stock diffusers pipelines, with the game's `play(instructions)`."""
