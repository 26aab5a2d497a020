"""The prompts: files of this package, which a project can replace one by one, versioned by their content.

Replacements come from the folder given by `prompts` in the settings or `--prompts`, never from a session's workspace:
the agent could write its own instructions there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import holdfast.prompts
from holdfast.app.settings.trust import read_beneath
from holdfast.app.settings.values import nearest
from holdfast.errors import UsageError

NAMES = (
    *("worker", "compaction", "handoff", "mission_worker", "planner", "judge", "initializer"),
    *("loop", "loop_analysis", "loop_plan"),
)
"""The prompts of turns, of the summary of a compaction, of the handoff for a reset, of a mission's roles, and of the
command of a loop: in its iterations and in the stages before them."""

BYTES_MAX = 65_536
"""Maximum size of a prompt in bytes: a longer one would fill most of a context."""

_OURS = Path(holdfast.prompts.__file__).parent

_NO_PROMPTS = frozenset({"readme.md"})


@dataclass(frozen=True)
class Prompts:
    """The texts by name, and the SHA-256 hex of their bytes for `shift.started`."""

    texts: Mapping[str, str]
    digests: dict[str, str]


def load_prompt(name: str) -> tuple[str, str]:
    """A prompt of this package: its text and the SHA-256 hex of its bytes."""
    data = (_OURS / f"{name}.md").read_bytes()
    return data.decode(), hashlib.sha256(data).hexdigest()


def load_prompts(folder: str, workspace: str = "", accepted: Mapping[str, bytes] | None = None) -> Prompts:
    """All prompts; those in `folder`, unless it is empty, replace ours.

    `accepted` are the files of a project's folder as the user accepted them: they are used, and the folder is not read
    again. Raises `UsageError` for an unusable folder or file, or one inside the workspace.
    """
    found = {name: load_prompt(name) for name in NAMES}
    if folder:
        found |= _own(Path(folder), workspace, accepted)
    return Prompts(
        {name: text for name, (text, _) in found.items()}, {name: digest for name, (_, digest) in found.items()}
    )


def _own(folder: Path, workspace: str, accepted: Mapping[str, bytes] | None) -> dict[str, tuple[str, str]]:
    if accepted is None and not folder.is_dir():
        raise UsageError(
            f"the prompts folder {folder} does not exist or is no folder; nothing was started. Make it, or name "
            "another one with --prompts DIR"
        )
    _outside(folder, workspace)
    found = {}
    for file in sorted(folder.iterdir() if accepted is None else (folder / name for name in accepted)):
        if file.suffix != ".md" or file.name.lower() in _NO_PROMPTS:
            continue
        if file.stem not in NAMES:
            raise UsageError(f"there is no prompt for {file} to replace; {nearest(file.stem, NAMES)}")
        _outside(file, workspace)
        found[file.stem] = _checked(file, _read(file) if accepted is None else accepted[file.name])
    if not found:
        names = ", ".join(f"{name}.md" for name in NAMES)
        raise UsageError(f"the prompts folder {folder} has no prompt in it; put one of {names} there")
    return found


def _outside(path: Path, workspace: str) -> None:
    if workspace and path.resolve().is_relative_to(Path(workspace).resolve()):
        raise UsageError(
            f"the prompt {path} lies inside the workspace {workspace}, where the agent could rewrite its own "
            "orders; nothing was started. Move it elsewhere, for example beside your own holdfast.toml, and name the "
            "folder with --prompts DIR"
        )


def _read(file: Path) -> bytes:
    try:
        return read_beneath(file.parent, file.name)
    except OSError as error:
        raise UsageError(f"the prompt {file} cannot be read: {error.strerror}") from error


def _checked(file: Path, data: bytes) -> tuple[str, str]:
    if len(data) > BYTES_MAX:
        raise UsageError(f"the prompt {file} is longer than {BYTES_MAX} bytes; shorten it")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompt {file} is not UTF-8 text (byte {error.start + 1}); save it as UTF-8") from error
    if not text.strip():
        raise UsageError(f"the prompt {file} is empty; write it, or delete the file to use the one that comes along")
    if "\0" in text:
        raise UsageError(f"the prompt {file} holds a zero byte (byte {data.index(0) + 1}); it is no text")
    return text, hashlib.sha256(data).hexdigest()
