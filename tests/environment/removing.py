"""Remove a folder in which a link leads out of it, as whoever runs this: prints as JSON what came of it."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

from holdfast.environment.layers import remove


def removed(base: Path) -> dict[str, int | bool]:
    """Return whether the folder is left, and the mode of the folder outside."""
    outside, folder = base / "outside", base / "folder"
    outside.mkdir(mode=0o755)
    (folder / "locked").mkdir(parents=True)
    (folder / "locked" / "file").write_text("x")
    (folder / "link").symlink_to(outside)
    (folder / "locked").chmod(0)
    remove(folder)
    return {"left": folder.exists(), "outside": stat.S_IMODE(outside.stat().st_mode)}


if __name__ == "__main__":
    print(json.dumps(removed(Path(sys.argv[1]))))
