"""Measures of the trained models: games along held-out stories, a judge network that names them, and their figures."""
