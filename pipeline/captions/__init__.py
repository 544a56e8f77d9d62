"""Captions: the stage, its two captioners, their questions, the reply cache and the chat client."""
