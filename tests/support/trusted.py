"""Trust a project's settings in a test, as `holdfast trust --yes` does."""

from __future__ import annotations

from pathlib import Path

from holdfast.app.mission.contract import mission_found
from holdfast.app.trust_prompt import accept, project_found


def trust(folder: Path | str = ".") -> None:
    """Accept the settings files of the project in that folder, into the configuration folder of the test."""
    files = [*project_found(Path(folder), {}), *mission_found(Path(folder), {})]
    assert files, f"there are no project settings in {folder}"
    accept(files)
