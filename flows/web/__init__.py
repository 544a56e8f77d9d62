"""Web server of the game page, the review page and the study page."""
