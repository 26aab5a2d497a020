"""What words of several verbs have in common."""

from __future__ import annotations

import argparse

from holdfast.app.settings.config import count


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    try:
        return count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
