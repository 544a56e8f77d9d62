"""Stages from a film to verdicts on its clips, and the algorithms they run."""
