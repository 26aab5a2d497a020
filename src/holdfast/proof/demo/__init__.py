"""`holdfast demo`: an agent rebuilds code of a real library and survives a SIGKILL."""
