"""The AnimeGamer networks, their checkpoints, and the game they play."""
