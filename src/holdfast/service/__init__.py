"""Use cases over sessions, for every face: typed input, typed result, an explicit caller; no parsing, no printing."""
