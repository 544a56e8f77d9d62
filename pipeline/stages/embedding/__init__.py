"""Embeddings of pictures and figures by networks that the user names."""
