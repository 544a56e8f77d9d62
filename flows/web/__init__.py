"""The local web server of the game page."""
