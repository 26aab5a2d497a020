"""`on_terminal COLUMNS [WORDS=KEYS]... -- COMMAND`: run a command on a terminal of its own, and print what stood there.

Once the screen shows WORDS, KEYS are pressed. Ends with the command's exit status.
"""

from __future__ import annotations

import sys

from tests.app.screen import Session


def main(words: list[str]) -> int:
    """Run the command."""
    at = words.index("--")
    with Session(columns=int(words[0]), rows=60, command=tuple(words[at + 1 :])) as terminal:
        for step in words[1:at]:
            shown, _, keys = step.partition("=")
            terminal.until(shown)
            terminal.type(keys if keys.startswith("ctrl-") else f"{keys}\n")
        code = terminal.ended()
        print("\n".join(terminal.past()))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
