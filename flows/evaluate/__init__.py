"""Playing of a benchmark by every agent of an evaluation, into game folders."""
