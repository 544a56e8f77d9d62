"""Web server of the game page and the review page."""
