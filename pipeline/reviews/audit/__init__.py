"""Audits: accuracy of a data set's labels by a random sample of its clips, and against any file of labels."""
