"""Foundations of the pipeline: records, settings, the data set folder, the stage protocol, safe files."""
