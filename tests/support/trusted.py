"""Accept a project's settings in a test, as `holdfast trust --yes` does."""

from __future__ import annotations

from pathlib import Path

from holdfast.app.trusting import accept, find_files


def trust(folder: Path | str = ".") -> None:
    """Accept the settings files of the project in that folder, into the configuration folder of the test."""
    files = find_files(Path(folder), {})
    assert files, f"there are no project settings in {folder}"
    accept(files)
