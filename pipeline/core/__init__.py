"""Foundations of the pipeline: records, settings, the dataset folder, the stage protocol, safe files."""
