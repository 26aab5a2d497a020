"""What an initializer hands in: entries, a set-up, settings. Checked as any contract is, and made into files. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.errors import ContractInvalid
from holdfast.facts.contract import Contract
from holdfast.facts.mission import MissionPolicy
from holdfast.mission.formats import read_contract
from holdfast.mission.lint import static_findings

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


def submitted_problems(value: Mapping[str, Any]) -> list[str]:
    """Why it cannot be a contract, each in words for whoever made it; empty when it can."""
    try:
        contract, _ = submitted_contract(value)
    except ContractInvalid as error:
        return [str(error)]
    found = static_findings(contract, MissionPolicy())
    return [f"{each.criterion or each.item}: {each.message}" for each in found if each.level == "error"]
