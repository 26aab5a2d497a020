"""Programs inside and beside the sandbox: they import only the standard library and each other.

`agent` and its modules run inside, under the system's own Python, passed in by descriptor; `supervisor` runs outside as
the parent of the sandbox.
"""
