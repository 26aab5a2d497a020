"""Faces open sessions through `holdfast.service` alone, which prints nothing and depends on no current folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import holdfast

ROOT = Path(holdfast.__file__).parent


def _calls(room: str) -> Iterator[tuple[str, ast.Call]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node.func)}", node


def test_no_face_opens_a_session_itself() -> None:
    found = []
    for place, call in _calls("app"):
        name = ast.unparse(call.func)
        creates = any(word.arg == "create" for word in call.keywords)
        if name in ("SessionCreated", "SessionForked") or name.endswith("intake.open") or creates:
            found.append(place)
    assert not found, "open it by holdfast.service.opening.open_session"


def test_the_service_has_no_output_and_no_current_folder() -> None:
    refused = {"print", "Path.cwd", "Path.home", "os.getcwd", "input"}
    assert not [place for place, call in _calls("service") if ast.unparse(call.func) in refused]


def test_the_service_opens_sessions_in_two_places() -> None:
    opened = [place.split(":")[0] for place, call in _calls("service") if ast.unparse(call.func) == "SessionCreated"]
    forked = [place.split(":")[0] for place, call in _calls("service") if ast.unparse(call.func) == "SessionForked"]
    assert (opened, forked) == (["service/opening.py"], ["service/forks.py"])
