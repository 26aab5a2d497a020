"""A git repository made of a tree, with one commit, by nobody's configuration."""

from __future__ import annotations

import subprocess
from pathlib import Path

from holdfast.errors import CannotRunSafely
from holdfast.proof.rebuild.tree import Tree, write_tree

_PATH = "/usr/local/bin:/usr/bin:/bin"
_WHO = ("Demo", "demo@holdfast.invalid")
_WHEN = "1700000000 +0000"

BRANCH = "trunk"
"""The branch that is checked out."""


def git(folder: Path, *arguments: str) -> str:
    """What git says, run on that repository without anybody's configuration. Raises `CannotRunSafely`."""
    environment = {
        "PATH": _PATH,
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": _WHO[0],
        "GIT_AUTHOR_EMAIL": _WHO[1],
        "GIT_AUTHOR_DATE": _WHEN,
        "GIT_COMMITTER_NAME": _WHO[0],
        "GIT_COMMITTER_EMAIL": _WHO[1],
        "GIT_COMMITTER_DATE": _WHEN,
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


def make_repository(tree: Tree, folder: Path) -> str:
    """Write the tree into the new or empty `folder` and commit all of it; the commit's name."""
    write_tree(tree, folder)
    git(folder, "init", "-q", "--template=", f"--initial-branch={BRANCH}")
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "-q", "--no-verify", "-m", "The library without its bodies")
    return git(folder, "rev-parse", "HEAD")
