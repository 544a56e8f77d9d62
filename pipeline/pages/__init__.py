"""The pages of a published data set, for people: the data card and the report, both told from one `summary`."""
