"""pytest for hands, as a tool-chain: an environment of its own, where hands may have it from wherever the tests run."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import venv
from functools import cache
from pathlib import Path

from holdfast.proof.rebuild.mini import mini_dependencies

PLACES = (Path("/opt"), Path.home())
"""Where a tool-chain can stand: not in folders that are the sandbox's own, as those for temporary files are."""


@cache
def toolchain() -> str:
    """Its path. It goes with this process."""
    place = next(each for each in PLACES if os.access(each, os.W_OK))
    prefix = Path(tempfile.mkdtemp(dir=place, prefix="holdfast-testers-"))
    atexit.register(shutil.rmtree, prefix, ignore_errors=True)
    prefix.chmod(0o755)
    venv.EnvBuilder(symlinks=True, with_pip=False).create(prefix)
    (packages,) = prefix.glob("lib/python3*/site-packages")
    shutil.copytree(mini_dependencies(prefix / "cache"), packages, dirs_exist_ok=True)
    return str(prefix)
