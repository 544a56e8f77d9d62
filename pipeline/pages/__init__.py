"""Pages of a published data set: the data card and the report, both made from one `summary`."""
