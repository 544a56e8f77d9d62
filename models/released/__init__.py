"""Import of the released AnimeGamer weights: files, tensor names, sizes, conversion to a checkpoint."""
