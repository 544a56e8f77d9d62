"""Import of the weights that the authors released: their files, names and sizes, made into a checkpoint of ours."""
