"""Local web server of the game page and of the review page."""
