"""What an initializer hands in: entries, a set-up, settings. Checked as any contract is, and made into files. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from holdfast.errors import ContractInvalid
from holdfast.facts.contract import Contract
from holdfast.facts.mission import MissionPolicy
from holdfast.globs import matches
from holdfast.kinds.mission.contract.formats.files import read_contract
from holdfast.kinds.mission.contract.protected import MISSION
from holdfast.kinds.mission.lint import static_findings

FILE = "feature_list.json"

_ORDER = ("id", "category", "description", "steps", "priority", "acceptance", "check", "paths", "depends")


def feature_list(entries: list[dict[str, Any]]) -> bytes:
    """The entries as a file, none of them passing: what passes is written by the harness alone."""
    ordered = [
        {
            **{name: each[name] for name in _ORDER if name in each},
            **{name: value for name, value in each.items() if name not in (*_ORDER, "passes")},
            "passes": False,
        }
        for each in entries
    ]
    return (json.dumps(ordered, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def submitted_contract(value: Mapping[str, Any]) -> tuple[Contract, bytes]:
    """The contract of what was handed in, and its file. Raises `ContractInvalid` with the place."""
    entries = value.get("features")
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ContractInvalid('features is no list of entries; a right form is [{"id": "…", "description": "…"}]')
    data = feature_list(entries)
    return read_contract(data, FILE), data


def submitted_files(value: Mapping[str, Any]) -> dict[str, str]:
    """The test files of what was handed in, by path."""
    files = value.get("files")
    return {str(path): str(text) for path, text in files.items()} if isinstance(files, dict) else {}


def _misplaced(path: str, protected: Collection[str]) -> str:
    """Why a file cannot be handed in with a contract; empty when it can."""
    parts = path.split("/")
    if path.startswith("/") or {"", ".", "..", ".git"} & set(parts):
        return f"files: {path!r} is no path inside the repository, such as tests/test_greet.py"
    if path in MISSION or not matches(path, protected):
        return f"files: {path} is no test file: only those are handed in here, such as tests/test_greet.py"
    return ""


def submitted_problems(value: Mapping[str, Any]) -> list[str]:
    """Why it cannot be a contract, each in words for whoever made it; empty when it can."""
    try:
        contract, _ = submitted_contract(value)
    except ContractInvalid as error:
        return [str(error)]
    wrong = [why for path in submitted_files(value) if (why := _misplaced(path, contract.protected))]
    found = static_findings(contract, MissionPolicy())
    return wrong + [f"{each.criterion or each.item}: {each.message}" for each in found if each.level == "error"]
