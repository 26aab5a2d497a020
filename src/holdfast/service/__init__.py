"""Use cases and queries for every face: typed input, typed result, an explicit caller; no parsing, no printing."""
