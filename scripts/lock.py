"""Resolve the dependencies: write uv.lock, requirements.txt and requirements-dev.txt.

No file names a package registry: the addresses are taken out, so that everyone's own registry or
mirror serves the files, and the hashes say whether they are the right ones. `uv` is taken from
PATH or from the environment of this Python; `pip install uv` provides one.

    scripts/lock.py              keep the locked versions where they still fit pyproject.toml
    scripts/lock.py --upgrade    take the newest versions

`uv sync` and `uv run` keep the versions of such a lock and ask the registry for the addresses
again (they write them into uv.lock: do not commit that). The Makefile installs from the
requirement files and demands their hashes.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXPORTS = {
    "requirements.txt": ["--no-default-groups"],
    "requirements-dev.txt": ["--group", "dev"],
}
HEADER = """\
# {what}, with the hash of each file. Made by `make lock`; do not edit.
# pip install --require-hashes -r {name}
"""
WHAT = {
    "requirements.txt": "What Holdfast needs to run",
    "requirements-dev.txt": "What Holdfast needs to run, to be checked and to be tested",
}


def without_addresses(lock: str) -> str:
    """The text of a uv.lock with file names instead of addresses."""
    # Without the project's own requirements uv takes the lock for out of date: it keeps the versions
    # and resolves again. With them it would believe the lock, and then fail for want of addresses.
    own = r"\[package\.metadata\]\nrequires-dist = \[\n.*?\n\]\n(?:provides-extras = [^\n]*\n)?"
    lock = re.sub(own, "", lock, flags=re.DOTALL)
    lock = re.sub(r'\bsdist = \{ url = "[^"]*", ', "sdist = { ", lock)
    lock = re.sub(r'\burl = "[a-z+]*://[^"]*/([^"/]+)"', r'filename = "\1"', lock)
    return re.sub(r'\{ registry = "[^"]*" \}', '{ registry = "." }', lock)


def with_extras(requirements: str, lock: str) -> str:
    """Requirement lines that name the extras which other packages ask for.

    pip resolves `name[extra]` apart from `name`: without the extra on the pinned line it takes the newest
    release for it, and then refuses that release because no hash of it is known.
    """
    wanted: dict[str, set[str]] = {}
    for name, extras in re.findall(r'^    \{ name = "([^"]+)", extra = \[([^\]]+)\]', lock, flags=re.MULTILINE):
        wanted.setdefault(name, set()).update(re.findall(r'"([^"]+)"', extras))
    for name, asked in wanted.items():
        requirements = re.sub(rf"(?m)^{re.escape(name)}==", f"{name}[{','.join(sorted(asked))}]==", requirements)
    return requirements


def find_uv() -> str:
    """The path of uv; exit 5 with the way to get it when there is none."""
    beside = Path(sys.executable).with_name("uv")
    found = shutil.which("uv") or (str(beside) if beside.exists() else None)
    if found is None:
        print("lock: uv is needed to resolve the dependencies. Type `pip install uv` and try again.", file=sys.stderr)
        raise SystemExit(5)
    return found


def main() -> None:
    """Write the three files."""
    parser = argparse.ArgumentParser(description="resolve the dependencies and write the lock files")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    arguments = parser.parse_args()
    uv = find_uv()

    def run(*command: str) -> str:
        done = subprocess.run([uv, *command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    run("lock", "-q", *(["--upgrade"] if arguments.upgrade else []))
    lock = ROOT / "uv.lock"
    for name, groups in EXPORTS.items():
        body = run("export", "-q", "--frozen", "--no-emit-project", "--no-header", "--no-annotate", *groups)
        (ROOT / name).write_text(HEADER.format(what=WHAT[name], name=name) + with_extras(body, lock.read_text()))
    lock.write_text(without_addresses(lock.read_text()))


if __name__ == "__main__":
    main()
