"""Use cases over sessions, for every face: typed input, typed result, an explicit caller; no arguments, no output."""
