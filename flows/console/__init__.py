"""Terminal output: messages, progress bars, clean stop."""
