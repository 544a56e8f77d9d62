"""Big Buck Bunny: the film, its cast and its labels."""
