"""Subtitles of a film: its tracks, files beside it, and the rules that find dialogue in them."""
