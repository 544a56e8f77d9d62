"""Casting: figures of a dataset in clusters, their names, and what follows from the names for clips and cast folder."""
