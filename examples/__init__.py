"""Examples: the real film by package name, a drawn world with known truth, a model trained and played on two cores."""
