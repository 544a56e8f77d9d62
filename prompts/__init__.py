"""Prompts: the captioner's questions as versioned Markdown, and the tag grammar of its replies."""
