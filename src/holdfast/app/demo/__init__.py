"""The demonstration: an agent rebuilds real code of a real library and survives a SIGKILL."""
