"""Crops of a film: its black borders, the times at which they change, and the picture without overlays."""
