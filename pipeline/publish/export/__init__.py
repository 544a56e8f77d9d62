"""Exports of kept clips as trainers of video models and the Hugging Face hub read them."""
