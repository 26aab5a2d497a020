"""Settings of a user and of a repository, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.app.settings.config import Settings, load_settings
from tests.support.trusted import trust

Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """The settings of two texts: the user's own file, and the repository's."""

    def loaded(mine: str = "", repository: str = "", *, trusted: bool = False) -> Settings:
        own, folder = tmp_path / "config" / "holdfast", tmp_path / "repository"
        own.mkdir(parents=True, exist_ok=True)
        folder.mkdir(exist_ok=True)
        (own / "holdfast.toml").write_text(mine)
        (folder / "holdfast.toml").write_text(repository)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        if trusted:
            trust(folder)
        return load_settings(folder, {"home": str(tmp_path / "home")})

    return loaded
