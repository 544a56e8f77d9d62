"""Games played without trained weights, to show and test the evaluation."""
