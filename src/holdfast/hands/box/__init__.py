"""Programs inside and beside the sandbox: standard library only, no imports of ours but these files.

`agent` and what it needs run inside, under the system's own Python, handed over by descriptor;
`supervisor` runs outside as the parent of the sandbox.
"""
