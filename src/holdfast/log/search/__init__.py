"""Full-text search index: a file beside the log that is derived from it and can be rebuilt at any time."""
