"""Child process that queries the operating system's keyring, which may prompt and runs third-party code.

    python -P -m holdfast.vault.keyring_child get SERVICE NAME     print the value
    python -P -m holdfast.vault.keyring_child set SERVICE NAME     read the value from standard input
    python -P -m holdfast.vault.keyring_child remove SERVICE NAME

The exit status gives the result. Only `get` prints, and only the value.
"""

from __future__ import annotations

import importlib
import os
import sys

DONE, NOT_INSTALLED, NO_KEYRING, NOT_THERE, FAILED = 0, 3, 4, 5, 6


def main(words: list[str]) -> int:
    """Run one command and return the exit status."""
    verb, service, name = words
    try:
        keyring = importlib.import_module("keyring")
        errors = importlib.import_module("keyring.errors")
    except ModuleNotFoundError:
        return NOT_INSTALLED
    # Discard the output of the keyring's own code.
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    try:
        if verb == "set":
            keyring.set_password(service, name, sys.stdin.buffer.read().decode())
        elif verb == "remove":
            keyring.delete_password(service, name)
        else:
            value = keyring.get_password(service, name)
            if value is None:
                return NOT_THERE
            os.write(out, value.encode())
    except errors.NoKeyringError:
        return NO_KEYRING
    except errors.PasswordDeleteError:
        return NOT_THERE
    except Exception:  # any library may raise one, and its message may contain the value
        return FAILED
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
