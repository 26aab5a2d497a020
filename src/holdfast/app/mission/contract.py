"""Contracts from files, and the trust in a repository's mission.toml and hooks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.app.call import Call
from holdfast.app.settings.config import load_settings, trust_store
from holdfast.app.settings.mission_file import MissionFile, mission_changes, mission_values, project_mission
from holdfast.app.settings.project import MISSION_FILE, read_mission
from holdfast.app.settings.trust import read_beneath
from holdfast.app.trust_prompt import Found, settled
from holdfast.errors import ContractInvalid, UsageError
from holdfast.facts.mission import Contract
from holdfast.kinds.mission.contract.formats.files import read_contract

CONTRACTS = ("feature_list.json", "prd.json")
"""Files of a repository that are tried when no contract is named."""

CONTRACT_MAX = 64 << 20


def find_contract(folder: Path, named: str, usual: str = "") -> Path:
    """Return the file of a contract. `usual` is the one in mission.toml. Raises `UsageError` for a missing file."""
    if named:
        places = [Path(named), folder / named]
    else:
        places = [folder / name for name in ((usual,) if usual else CONTRACTS)]
    found = next((place for place in places if place.is_file()), None)
    if found is not None:
        return found
    if named:
        raise UsageError(f"there is no contract {named}; for example feature_list.json")
    raise UsageError(
        f"there is no contract in {folder} ({', '.join(place.name for place in places)}); name one, or create one: "
        'holdfast mission init "the goal"'
    )


def load_contract(path: Path, folder: Path) -> tuple[Contract, bytes]:
    """Return the contract of a file and its bytes. Its source is the path in the repository; links are not followed."""
    top, place = folder.resolve(), Path(os.path.normpath(path.absolute()))
    inside = place.is_relative_to(folder.absolute()) or place.is_relative_to(top)
    source = str(place.relative_to(top if place.is_relative_to(top) else folder.absolute())) if inside else path.name
    try:
        data = read_beneath(top, source, CONTRACT_MAX) if inside else path.read_bytes()
    except OSError as error:
        raise ContractInvalid(f"the contract {path} cannot be read: {error.strerror}; name another file") from error
    return read_contract(data, source), data


def mission_found(folder: Path, flags: Mapping[str, Any]) -> list[Found]:
    """Return the mission.toml of that folder with its hooks, if there is one. Raises `UsageError`."""
    mission = read_mission(folder.resolve() / MISSION_FILE)
    if mission is None:
        return []
    changes = mission_changes(mission, mission_values(mission), load_settings(folder, flags))
    return [Found(mission, changes, trust_store().accepts(mission))]


async def mission_settings(call: Call, folder: Path) -> MissionFile:
    """Return the accepted part of a repository's mission.toml. On a terminal, ask the user to accept the rest."""
    file = project_mission(folder, call.settings)
    if await settled(call, file.ignored, lambda: mission_found(folder, vars(call.args))):
        file = project_mission(folder, call.settings)
    return file
