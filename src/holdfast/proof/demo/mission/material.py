"""Material of the demo mission: a repository of a stripped library, its contract, and the oracle's answers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from holdfast.app.compose import Runtime
from holdfast.errors import CannotRunSafely
from holdfast.facts.mission import Contract
from holdfast.proof.demo.mission.probe import Say, find_needs, proven
from holdfast.proof.oracle.answers import MissionAnswers, save_answers
from holdfast.proof.oracle.faults import Fault
from holdfast.proof.rebuild.contract import commands, make_contract, make_criteria
from holdfast.proof.rebuild.items import WorkItem, make_items
from holdfast.proof.rebuild.library import Library, install_test_dependencies, open_library
from holdfast.proof.rebuild.mini import PIN, mini_dependencies, mini_library
from holdfast.proof.rebuild.probe import Needs
from holdfast.proof.rebuild.stripped import Whole, strip_all, stripped_tree
from holdfast.proof.rebuild.tree import Tree, write_tree

_BY = {"NAME": "Demo", "EMAIL": "demo@holdfast.invalid", "DATE": "1700000000 +0000"}

BRANCH = "trunk"
"""Branch that is checked out."""


@dataclass(frozen=True)
class MissionMaterial:
    """Material that is prepared before the mission opens and needed for its report."""

    library: Library
    whole: Whole
    needs: Needs
    items: tuple[WorkItem, ...]
    contract: Contract
    answers: MissionAnswers
    answers_path: Path
    dependencies: Path
    repo: Path
    base: str


async def prepare_mission(
    runtime: Runtime,
    pin: str,
    repo: Path,
    name: str,
    *,
    faults: Sequence[Fault],
    seed: int,
    rubric_share: float,
    more: Sequence[str],
    say: Say,
) -> MissionMaterial:
    """Fetch and strip the library, find the bodies that each test needs, and create a repository in `repo`.

    `name` is a part of folder names; `more` are packages that the suite needs but does not declare. The first run for a
    library takes minutes and needs the package index, except for the built-in library.
    """
    library, dependencies = await to_thread.run_sync(_open, runtime, pin, tuple(more))
    whole = strip_all(library)
    needs = await find_needs(runtime, library, whole, dependencies, name, say)
    items = await proven(runtime, library, whole, make_items(whole, needs), dependencies, name)
    criteria = make_criteria(items, rubric_share, seed)
    guards = [test for test, bodies in needs.entered.items() if not bodies]
    tree = stripped_tree(library, whole)
    answers = MissionAnswers(
        library=library.pin,
        items=items,
        bodies=whole.bodies,
        criteria=criteria,
        commands=commands(library, items, needs.entered),
        files={path: file.data for path, file in tree.items()},
        faults=tuple(faults),
        seed=seed,
    )
    path = runtime.home.logs / f"{name}.oracle.json"
    save_answers(path, answers)
    base = await to_thread.run_sync(_make_repository, tree, repo)
    contract = make_contract(library, items, criteria, needs.entered, guards)
    return MissionMaterial(library, whole, needs, items, contract, answers, path, dependencies, repo, base)


def _open(runtime: Runtime, pin: str, more: tuple[str, ...]) -> tuple[Library, Path]:
    if pin == PIN:
        return mini_library(), mini_dependencies(runtime.home.cache)
    library = open_library(pin, runtime.home.cache, more_requirements=more)
    return library, install_test_dependencies(library, runtime.home.cache)


def _git(folder: Path, *arguments: str) -> str:
    """Run git in `folder` without any user's configuration and return its output. Raises `CannotRunSafely`."""
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in _BY.items()},
    }
    settings = ("core.hooksPath=/dev/null", "core.autocrlf=false", "gc.auto=0", f"safe.directory={folder}")
    words = [word for setting in settings for word in ("-c", setting)]
    try:
        done = subprocess.run(
            ["git", *words, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip()
        raise CannotRunSafely(
            f"git {arguments[0]} did not work in {folder}: {said[-300:]}. Nothing else was changed; install git "
            "(`apt-get install git`) if it is missing, and try again"
        ) from error
    return done.stdout.strip()


def _make_repository(tree: Tree, folder: Path) -> str:
    """Write the tree into the new or empty `folder`, commit all of it, and return the commit."""
    write_tree(tree, folder)
    _git(folder, "init", "-q", "--template=", f"--initial-branch={BRANCH}")
    _git(folder, "add", "--all", "--force")
    _git(folder, "commit", "-q", "--no-verify", "-m", "The library without its bodies")
    return _git(folder, "rev-parse", "HEAD")
