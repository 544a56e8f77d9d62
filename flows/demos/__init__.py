"""Demos: the real film by package name, a labelled data set, a tiny model trained and played."""
