"""What the demonstration works on: the library with a hole, its test dependencies, and the question."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.app.home import Home
from holdfast.facts.session import Workspace
from holdfast.proof.oracle.answers import Answers, save_answers
from holdfast.proof.rebuild.library import (
    TESTDEPS_INSIDE,
    Library,
    install_test_dependencies,
    open_library,
    prepare_workspace,
    suite_command,
)
from holdfast.proof.rebuild.strip import Manifest

EFFECTS = ".demo-effects"
"""A file in the workspace that gets a line for each real run of the tests."""

DELTA_S = 0.004
"""Pause between two pieces of a streamed answer, so that it can be watched."""


@dataclass(frozen=True)
class Material:
    """A prepared workspace and everything the story needs to know of it."""

    library: Library
    manifest: Manifest
    workspace: Workspace
    suite: str
    answers: Path

    @property
    def goal(self) -> str:
        """What the agent is asked."""
        module = self.library.module
        return (
            f"The functions of {module} of the library {self.library.name} {self.library.version} have lost their "
            f"bodies: each only raises NotImplementedError. Write them again so that the library's own tests pass. "
            f"Change nothing but {module}. The tests run with:\n\n{self.suite}"
        )

    def effects(self) -> int:
        """How often the tests really ran, by what the runs themselves left behind."""
        try:
            return len((Path(self.workspace.path) / EFFECTS).read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return 0


def prepare(home: Home, pin: str, folder: Path, session_id: str) -> Material:
    """Fetch, check and strip the library into `folder`. The first time this needs the package index."""
    library = open_library(pin, home.cache)
    dependencies = install_test_dependencies(library, home.cache)
    manifest = prepare_workspace(library, folder)
    quick = suite_command(library, manifest.quick_tests)
    suite = suite_command(library)
    workspace = Workspace(str(folder), True, read_only={str(dependencies): TESTDEPS_INSIDE})
    answers = home.logs / f"{session_id}.oracle.json"
    save_answers(answers, Answers(manifest, _counted(suite), _counted(quick), DELTA_S))
    return Material(library, manifest, workspace, suite, answers)


def _counted(command: str) -> str:
    return f"echo run >> {EFFECTS}; {command}"
