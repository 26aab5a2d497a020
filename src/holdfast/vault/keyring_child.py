"""A process that asks the keyring of the operating system: it may wait for a person, and brings code of its own.

    python -P -m holdfast.vault.keyring_child get SERVICE NAME     prints the value
    python -P -m holdfast.vault.keyring_child set SERVICE NAME     reads it from standard input
    python -P -m holdfast.vault.keyring_child remove SERVICE NAME

The status says what became of it. Nothing else is ever printed.
"""

from __future__ import annotations

import importlib
import os
import sys

DONE, NOT_INSTALLED, NO_KEYRING, NOT_THERE, FAILED = 0, 3, 4, 5, 6


def main(words: list[str]) -> int:
    """Do what the words say; the exit status."""
    verb, service, name = words
    try:
        keyring = importlib.import_module("keyring")
        errors = importlib.import_module("keyring.errors")
    except ModuleNotFoundError:
        return NOT_INSTALLED
    # What a keyring's own code prints is not for us.
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
    except Exception:  # it may be of any library, and its words may have the value in them
        return FAILED
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
