"""Build planning: request, workspace, films by content, stages to run, publishing, status and summary."""
