"""What the tests of libraries share: an index of their own, and the made library."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from holdfast.proof.rebuild.library import Library, open_library
from holdfast.proof.rebuild.mini import mini_library
from holdfast.proof.rebuild.stripped import Whole, strip_all
from tests.proof.made_library import write_sdist

PYTHON = sys.executable


def only_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the only package index."""
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only package index of the test."""
    return only_index(tmp_path / "index", monkeypatch)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The made library, fetched once."""
    folder = tmp_path_factory.mktemp("library")
    with pytest.MonkeyPatch.context() as monkeypatch:
        write_sdist(only_index(folder / "index", monkeypatch))
        return open_library("made==1.2.3", folder / "cache", python=PYTHON)


@pytest.fixture(scope="module")
def mini() -> Library:
    """The small library of our own."""
    return mini_library()


@pytest.fixture(scope="module")
def whole(mini: Library) -> Whole:
    """The same without its bodies."""
    return strip_all(mini)
