"""Reviews: people's decisions about clips, matched to the clips of a dataset and applied when it is published."""
