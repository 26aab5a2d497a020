"""Vaults to run the kit on: one for each kind of place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.clock import SystemClock
from holdfast.vault.base import Vault
from holdfast.vault.fake import FakeVault
from holdfast.vault.reference_vault import KEPT_S, ReferenceVault
from holdfast.vault.sources import Kind, Source

KEYRING = '''"""A keyring in a folder, for tests."""
import os, pathlib, keyring.backend, keyring.errors
FOLDER = pathlib.Path(__file__).parent

class Keyring(keyring.backend.KeyringBackend):
    priority = 1

    def get_password(self, service, name):
        print("noise on standard output")
        file = FOLDER / f"{service}.{name}.entry"
        return file.read_text() if file.exists() else None

    def set_password(self, service, name, value):
        (FOLDER / f"{service}.{name}.entry").write_text(value)

    def delete_password(self, service, name):
        try:
            (FOLDER / f"{service}.{name}.entry").unlink()
        except FileNotFoundError:
            raise keyring.errors.PasswordDeleteError("none")
'''


def keyring_home(folder: Path) -> dict[str, str]:
    """The variables under which the keyring of the operating system is one in `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / "folder_keyring.py").write_text(KEYRING)
    rc = folder / "python_keyring" / "keyringrc.cfg"
    rc.parent.mkdir(exist_ok=True)
    rc.write_text(f"[backend]\ndefault-keyring=folder_keyring.Keyring\nkeyring-path={folder}\n")
    return {"XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder), "HOME": str(folder), "PATH": os.defpath}


class Hurried(SystemClock):
    """A clock on which what was kept is too old whenever a value was changed."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.skipped_s


class FakeRig:
    """Values in memory."""

    def __init__(self, tmp_path: Path) -> None:
        self._fake = FakeVault({"token": "not-set-yet-at-all"}, SystemClock())
        self.vault: Vault = self._fake
        self._value = ""

    def put(self, value: str) -> None:
        self._fake.rotate("token", value)

    def lose(self) -> None:
        self._fake.drop("token")

    def expire(self) -> None:
        self._fake.expire("token", 1)


class PlacedRig:
    """A value in a real place. `place` is a file that each kind reads in its own way."""

    def __init__(self, tmp_path: Path, kind: Kind) -> None:
        self._clock = Hurried()
        self._file = tmp_path / "value"
        self._variables = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "UNNAMED": "stays-here-always"}
        match kind:
            case "env":
                place: tuple[str, ...] = ("TOKEN",)
            case "file":
                place = ("~/value",)
            case "keyring":
                self._variables = keyring_home(tmp_path / "keyring")
                place, self._file = ("service", "name"), tmp_path / "keyring" / "service.name.entry"
            case _:
                place = (sys.executable, "-c", f"import sys; sys.stdout.write(open({str(self._file)!r}).read())")
        self._kind = kind
        self._source = Source("token", kind, place)
        self.vault: Vault = ReferenceVault([self._source], self._variables, self._clock)

    def put(self, value: str) -> None:
        self._clock.skipped_s += KEPT_S
        if self._kind == "env":
            self._variables["TOKEN"] = value
            return
        self._file.touch(0o600)
        self._file.write_text(value, newline="")

    def lose(self) -> None:
        self._clock.skipped_s += KEPT_S
        self._variables.pop("TOKEN", None)
        self._file.unlink(missing_ok=True)

    def expire(self) -> None:
        source = msgspec.structs.replace(self._source, expires_us=self._clock.now_us())
        self.vault = ReferenceVault([source], self._variables, self._clock)


RIGS: dict[str, Callable[[Path], FakeRig | PlacedRig]] = {
    "fake": FakeRig,
    "env": lambda tmp_path: PlacedRig(tmp_path, "env"),
    "file": lambda tmp_path: PlacedRig(tmp_path, "file"),
    "keyring": lambda tmp_path: PlacedRig(tmp_path, "keyring"),
    "command": lambda tmp_path: PlacedRig(tmp_path, "command"),
}
