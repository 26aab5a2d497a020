"""Run the pip at a given path, under the interpreter that runs this file.

Run as a file, standard library only: `python -I run_pip.py ROOT (run|fetch) ARGUMENTS…`. ROOT is the folder or wheel
that holds the package `pip`. `run` is pip's own command line. `fetch TARGET NAME VERSION` saves the source distribution
of that version and executes none of it: pip's own `download` would run the package's build backend for its metadata.
Both read the configuration that pip reads, so the machine's indexes, certificates, and credentials apply.

Exit status of `fetch`: 0 saved, 3 the index has no such source distribution, 4 an index did not respond and the others
have none, else pip's own.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import json
import logging
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NO_SUCH = 3
"""Exit status of `fetch` when no index has that source distribution."""

UNREACHABLE = 4
"""Exit status of `fetch` when an index did not respond and no other one has the distribution."""

BYTES_MAX = 64 * 1024 * 1024
"""A larger archive is not downloaded."""

REPORT = "fetched.json"
"""File that `fetch` writes beside the archive: file name and SHA-256, the versions found, and index errors."""


class _OnlyPip:
    """Finder of `pip` alone at one place, so that its neighbors are not imported."""

    def __init__(self, root: str) -> None:
        self._root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pip":
            return None
        return importlib.machinery.PathFinder.find_spec(fullname, [self._root], target)


class _Troubles(logging.Handler):
    """Log handler for pip's debug-level messages about unreachable indexes."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        # An index answers 404 for a project that it does not have; that is a valid answer.
        if message.startswith("Could not fetch URL") and " 404 " not in message:
            self.messages.append(message.removesuffix(" - skipping"))

    def listen(self) -> None:
        """Start listening, after pip has configured its own logging."""
        logger = logging.getLogger("pip._internal.index.collector")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)


def fetch(target: str, name: str, version: str) -> int:
    """Save the archive and the report in the folder `target`. Return the exit status."""
    download: Any = importlib.import_module("pip._internal.commands.download")
    arguments = ["--no-input", "--disable-pip-version-check", "--no-binary", ":all:", name]

    def run(self: Any, options: Any, _args: list[str]) -> int:
        troubles = _Troubles()
        troubles.listen()
        session = self.get_default_session(options)
        finder = self._build_package_finder(options, session)
        found = list(finder.find_all_candidates(name))
        sources = [item for item in found if not item.link.is_wheel and item.link.filename.endswith(".tar.gz")]
        right = [item for item in sources if str(item.version) == version]
        versions = sorted({item.version for item in sources}, reverse=True)
        report: dict[str, Any] = {"versions": [str(item) for item in versions], "troubles": troubles.messages}
        if right:
            report.update(_save(session, right[-1].link, target))
        with open(os.path.join(target, REPORT), "w", encoding="utf-8") as file:
            json.dump(report, file)
        if right:
            return 0
        return UNREACHABLE if troubles.messages else NO_SUCH

    command = type("Fetch", (download.DownloadCommand,), {"run": run})
    status: int = command("download", "Save one source distribution.").main(arguments)
    return status


def _save(session: Any, link: Any, target: str) -> dict[str, str]:
    response = session.get(link.url_without_fragment, headers={"Accept-Encoding": "identity"}, stream=True)
    response.raise_for_status()
    digest, size = hashlib.sha256(), 0
    filename = os.path.basename(link.filename)
    with open(os.path.join(target, filename), "wb") as file:
        for chunk in response.iter_content(65_536):
            size += len(chunk)
            if size > BYTES_MAX:
                raise SystemExit(f"the archive is larger than {BYTES_MAX} bytes")
            digest.update(chunk)
            file.write(chunk)
    if link.hash_name == "sha256" and link.hash != digest.hexdigest():
        raise SystemExit(f"the index announced SHA-256 {link.hash}, the archive has {digest.hexdigest()}")
    return {"filename": filename, "sha256": digest.hexdigest()}


def main(arguments: list[str]) -> int:
    """Run the command line."""
    root, verb, *rest = arguments
    sys.meta_path.insert(0, _OnlyPip(root))
    if verb == "fetch":
        return fetch(*rest)
    pip: Any = importlib.import_module("pip._internal.cli.main")
    status: int = pip.main(rest)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
