"""Argument types shared by several commands."""

from __future__ import annotations

import argparse

from holdfast.app.settings.config import count, duration_s


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    try:
        return count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def span(text: str) -> float:
    """Parse a time span such as `90s` or `2h`, in seconds."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
