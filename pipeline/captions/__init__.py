"""Captions: the stage, its two captioners, the questions, the reply cache and the chat client."""
