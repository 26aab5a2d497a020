"""Ralph loops: run any command repeatedly, one item of a list at a time, and let the harness run the checks."""
