"""Golden files of captures: text without ids, times, and paths; and the rules that every capture keeps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

from holdfast.app.exits import SHORT
from tests.app.terminal import rows
from tests.captures.scenes import Scene

FOLDER = Path(__file__).parent / "golden"

LIVE = ("run", "loop", "mission")

SHARE = 0.6
"""Least part of a live view that agents' words, commands, output, and results take."""

RESULTS = frozenset(
    "→ ok error, exit status fails passes now open attempt pass fail met met, merged more lines …".split()
)
"""Words by which a live view says what came of an act."""

_CHANGES = (
    (r"ses_[0-9a-z]{26}", "ses_" + "0" * 26),
    (r"itm_[0-9a-z]+", "itm_00000000"),
    (r"\b[0-9a-f]{64}\b|\b[0-9a-f]{40}\b", "0" * 40),
    (r"(?<= )[0-9a-f]{10}\b", "0" * 10),
    (r"\b[0-9a-f]{7}\.\.[0-9a-f]{7}\b", "0000000..0000000"),
    (r"\d{4}-\d\d-\d\d", "2026-01-01"),
    (r"\d\d:\d\d(:\d\d)?\b", "00:00"),
    (r"\b\d+(\.\d+)? (s|min)\b( \d\d s)?", "N s"),
    (r" +\d+[smh]\b", " Ns"),
    (r"\b(uid|process) \d+", r"\1 N"),
    (r"(?<=\S) {2,}", "  "),
    (r"\b\d+ events\b", "N events"),
)
"""Whatever another run of the same scene may show differently, and what stands for it in a golden file."""


def normalized(scene: Scene, base: Path, short: Collection[str] = ()) -> list[str]:
    """The lines of a capture, the same for every run except for the order of lines of sessions side by side."""
    lines = []
    for line in scene.lines:
        text = line.replace(str(base), "/tmp/holdfast")
        for part in (base.name, base.name.partition("_")[2]):  # a path may be broken into lines
            text = text.replace(part, "holdfast")
        for name in short:
            text = re.sub(rf"\b{name}\b", "0" * len(name), text)
        for pattern, stands in _CHANGES:
            text = re.sub(pattern, stands, text)
        lines.append(text.rstrip())
    # Only root gives a folder away. The order of events depends on what went on at the same time.
    lines = [line for line in lines if not re.search(r"^giving /|^(that tool )?calls run as", line)]
    return [re.sub(r"\be\d+\b|^00:00 +\d+ |(?<=^last event) +\d+", "eN", line) for line in lines]


def texts(scenes: Iterable[Scene], base: Path) -> dict[str, str]:
    """The golden files: name → text, with one section for each capture."""
    files: dict[str, list[str]] = defaultdict(list)
    sessions = rows(base / "home" / "holdfast.db", "select distinct session_id from events")
    short = [session_id[-SHORT:] for (session_id,) in sessions]
    for scene in sorted(scenes, key=lambda each: -each.columns):
        name, _, part = scene.name.partition("-")
        title = f"{name} {part.replace('-', ' ')}".strip()
        files[name] += [f"==== {title}, {scene.columns} columns ====", *normalized(scene, base, short), ""]
    return {f"{name}.txt": "\n".join(lines) for name, lines in files.items()}


def sections(text: str) -> dict[str, str]:
    """The sections of a golden file by title. Lines of a mission are in order: its parts work side by side."""
    parts = re.split(r"^==== (.*) ====\n", text, flags=re.MULTILINE)[1:]
    found = {title: body.strip("\n") for title, body in zip(parts[::2], parts[1::2], strict=True)}
    return {
        title: "\n".join(sorted(body.splitlines())) if title.startswith("mission") else body
        for title, body in found.items()
    }


def share(scene: Scene, said: str) -> float:
    """The part of a live view's columns, blanks left out, that show words of the agents, their output, or results.

    The notices before the line with the session's id are not part of the view. A word counts if it is in what the
    script of the session says, does, and prints, or if it is one of `RESULTS`.
    """
    known = set(re.findall(r"[^\s\"\\]+", said)) | RESULTS
    begin = next((at + 1 for at, line in enumerate(scene.lines) if line.startswith(("session ses", "mission ses"))), 0)
    words = [word for line in scene.lines[begin:] for word in line.split()]
    shown = sum(len(word) for word in words if word in known or word.isdecimal() or word.strip("…:;,()") in known)
    return shown / sum(map(len, words))


def ids(scenes: Iterable[Scene]) -> set[str]:
    """The ids of sessions that the captures show: whole ones, and the ends of ids in lists."""
    found: set[str] = set()
    for scene in scenes:
        text = "\n".join(scene.lines)
        if not scene.name.startswith("help"):
            found |= set(re.findall(r"\bses_[0-9a-z]{26}\b", text)) | set(
                re.findall(r"\(([0-9a-z]{8})\) (?:begins|is)", text)
            )
        if scene.name.startswith("ps"):
            found |= {line.split()[0] for line in scene.lines[1:]}
        if scene.name == "budget":
            found |= {line.split()[0] for line in scene.lines[2:]}
    return found
