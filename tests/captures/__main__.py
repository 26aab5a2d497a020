"""Write the golden files: `make captures`."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from tests.captures.golden import FOLDER, texts
from tests.captures.scenes import Stage, play


def home(base: Path) -> None:
    """Let the commands use a home and settings in this folder only."""
    base.chmod(0o711)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        del os.environ[name]
    os.environ |= {"HOLDFAST_HOME": str(base / "home"), "XDG_CONFIG_HOME": str(base / "config"), "TZ": "UTC"}
    time.tzset()


def main() -> None:
    """Play every scene and write what the terminals show."""
    base = Path(tempfile.mkdtemp(prefix="holdfast_", dir="/tmp"))
    try:
        home(base)
        stage = Stage(base)
        play(stage)
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        for name, text in texts(stage.scenes, base).items():
            (FOLDER / name).write_text(text)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
