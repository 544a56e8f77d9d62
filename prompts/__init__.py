"""What we ask a captioner, as versioned Markdown, and the tag grammar of its replies."""
