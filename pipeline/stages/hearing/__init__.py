"""Sound of clips: pieces of the film's track, and what is heard in them."""
