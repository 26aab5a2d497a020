"""Many sessions: the worker loop, and the dispatch of due sessions to processes."""
