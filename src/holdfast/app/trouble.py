"""Whatever went wrong, as an error of ours: a sentence for people, and never a traceback on the screen."""

from __future__ import annotations

import errno
import tempfile
import traceback

from holdfast.app.exits import machine_trouble
from holdfast.errors import HoldfastError, StorageFull

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def sentence_of(error: Exception) -> HoldfastError:
    """The error as one of ours. The details of one that should not happen go to a file."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, OSError):
        return _about_the_machine(error)
    return _unexpected(error)


def _about_the_machine(error: OSError) -> HoldfastError:
    what = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    if error.errno in _FULL:
        return StorageFull(
            f"the disk is full ({what}); everything acknowledged is kept: free some space, then type it again"
        )
    return machine_trouble(what)


def _unexpected(error: Exception) -> HoldfastError:
    """An error of ours. The log holds what was acknowledged."""
    place = "nowhere, since no file could be written"
    try:
        handle, place = tempfile.mkstemp(prefix="holdfast-error-", suffix=".txt")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        pass
    return HoldfastError(
        f"something that should not happen: {type(error).__name__}: {error}; every session is intact in the log. "
        f"The details are in {place}: please report this with them"
    )
