"""Bytecode for Python modules in a folder that is read-only for the processes that import them."""

from __future__ import annotations

import subprocess
from pathlib import Path

SYSTEM_PYTHON = "/usr/bin/python3"


def compile_modules(folder: Path) -> None:
    """Compile the modules in a folder for the system's Python, but for the hundreds of Pygments' lexers."""
    command = [SYSTEM_PYTHON, "-I", "-m", "compileall", "-qq", "-x", "/pygments/(lexers|styles)/", str(folder)]
    subprocess.run(command, check=True)
