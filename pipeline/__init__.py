"""The data half: films in, WebDataset shards out. Each module is one stage, or one thing the stages share."""
