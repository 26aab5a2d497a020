"""Trust in a repository's mission.toml and hooks: show what they would change, and ask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.app.call import Call
from holdfast.app.settings.config import load_settings, trust_store
from holdfast.app.settings.mission_file import MissionFile, mission_changes, mission_values, project_mission
from holdfast.app.settings.project_files import MISSION_FILE, read_mission
from holdfast.app.trusting import Found, settled


def mission_found(folder: Path, flags: Mapping[str, Any]) -> list[Found]:
    """The mission.toml of that folder with the hooks beside it, if there are any. Raises `UsageError`."""
    mission = read_mission(folder.resolve() / MISSION_FILE)
    if mission is None:
        return []
    changes = mission_changes(mission, mission_values(mission), load_settings(folder, flags))
    return [Found(mission, changes, trust_store().accepts(mission))]


async def mission_settings(call: Call, folder: Path) -> MissionFile:
    """What counts of a repository's mission.toml; on a terminal the user is asked about the rest of it."""
    file = project_mission(folder, call.settings)
    if await settled(call, file.ignored, lambda: mission_found(folder, vars(call.args))):
        file = project_mission(folder, call.settings)
    return file
