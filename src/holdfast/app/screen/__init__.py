"""Views on the terminal: progress, live view, inbox, and briefs."""
