"""The AnimeGamer networks and the game loop (not built yet: see the README's status table)."""
