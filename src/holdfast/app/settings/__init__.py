"""Settings: their sources, their precedence, and their meaning."""
