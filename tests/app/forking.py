"""A `holdfast fork` that is there already and waits for a word: `python -m tests.app.forking WORD…`.

It says `ready` when everything is imported, and types the command when a line comes.
"""

from __future__ import annotations

import sys

from holdfast.app.cli import main, show, start

LOADED = (show, start)

if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    sys.exit(main(sys.argv[1:]))
