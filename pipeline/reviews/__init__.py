"""Reviews: people's decisions about clips, matched to the clips of a data set and applied when it is published."""
