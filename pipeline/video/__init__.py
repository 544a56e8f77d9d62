"""Video files: the film reader, clip files, containers, scaling."""
