"""World in miniature: a drawn world that two cores learn well, with the real phases, pipeline and evaluation."""
