"""Settings of a project count only in places where no other user can write: tried as root and as an ordinary user."""

from __future__ import annotations

import os
import pwd
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.app.settings.config import find_project, load_settings, trust_store
from holdfast.errors import HoldfastError
from tests.support.child import as_uid

STRANGER = 61_234
PLANTED = 'model = "openai:x@http://127.0.0.1:9/v1"\nprompts = "p"\nmax_turns = 3\n'
"""The last of these would count without trust in a safe place."""

root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of several users")


def project(base: Path, me: int, text: str = PLANTED) -> Path:
    """A project of a user in a safe place, with a folder of prompts."""
    folder = base / "shared" / "project"
    (folder / "p").mkdir(parents=True)
    (folder / "p" / "worker.md").write_text("Obey.")
    (folder / "holdfast.toml").write_text(text)
    for path in (base / "shared", folder, folder / "p", folder / "p" / "worker.md", folder / "holdfast.toml"):
        os.chown(path, me, pwd.getpwuid(me).pw_gid)
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def given(path: Path, uid: int, gid: int = -1) -> bool:
    """Give it to a user or a group."""
    os.chown(path, uid, gid)
    return True


def opened(path: Path, mode: int) -> bool:
    """Give it a mode."""
    path.chmod(mode)
    return True


def linked(path: Path) -> None:
    """Put a link in the place of a file or folder, to where it went."""
    path.rename(path.with_name(f"{path.name}.real"))
    path.symlink_to(f"{path.name}.real")


def access_list(path: Path) -> None:
    """Let the stranger write by an access control list."""
    entries = [(1, 6, -1), (2, 6, STRANGER), (4, 6, -1), (16, 6, -1), (32, 4, -1)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", packed)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error.strerror}")


Attack = Callable[[Path, int], object]

ATTACKS: dict[str, tuple[Attack, str]] = {
    "the file belongs to a stranger": (lambda at, me: given(at / "holdfast.toml", STRANGER), "belongs to"),
    "the folder belongs to a stranger": (lambda at, me: given(at, STRANGER), "belongs to"),
    "the folder above belongs to a stranger": (lambda at, me: given(at.parent, STRANGER), "belongs to"),
    "every user writes to the file": (lambda at, me: opened(at / "holdfast.toml", 0o666), "every user can write"),
    "every user writes to the folder": (lambda at, me: opened(at, 0o777), "every user can write"),
    "every user writes to the folder above": (lambda at, me: opened(at.parent, 0o777), "every user can write"),
    "a group writes to the file": (
        lambda at, me: (given(at / "holdfast.toml", me, STRANGER), opened(at / "holdfast.toml", 0o664)),
        "members of the group",
    ),
    "a group writes to the folder above": (
        lambda at, me: (given(at.parent, me, STRANGER), opened(at.parent, 0o775)),
        "members of the group",
    ),
    "an access control list": (lambda at, me: access_list(at / "holdfast.toml"), "can write"),
    "the file is a link": (lambda at, me: linked(at / "holdfast.toml"), "symbolic link"),
    "the prompts are a link": (lambda at, me: linked(at / "p"), "symbolic link"),
    "a prompt is a link": (lambda at, me: linked(at / "p" / "worker.md"), "symbolic link"),
    "a prompt belongs to a stranger": (lambda at, me: given(at / "p" / "worker.md", STRANGER), "belongs to"),
    "every user writes to the prompts": (lambda at, me: opened(at / "p", 0o777), "every user can write"),
}

SAFE: dict[str, Attack] = {
    "a place of the user's own": lambda at, me: None,
    "a sticky folder above": lambda at, me: opened(at.parent, 0o1777),
    "a sticky folder of root's above": lambda at, me: (given(at.parent, 0, 0), opened(at.parent, 0o1777)),
    "all of it belongs to root": lambda at, me: [
        given(path, 0, 0) for path in (at, at.parent, at / "holdfast.toml", at / "p", at / "p" / "worker.md")
    ],
    "the group has the owner alone": lambda at, me: opened(at / "holdfast.toml", 0o664),
}


def private_user() -> int:
    """An ordinary user whose group has no other member."""
    users = pwd.getpwall()
    return next(
        each.pw_uid for each in users if each.pw_uid and [other.pw_gid for other in users].count(each.pw_gid) == 1
    )


def seen(folder: Path, config: Path) -> dict[str, Any]:
    """What counts there before the user accepts it, whether they can, and what counts then."""
    os.environ["XDG_CONFIG_HOME"] = str(config)
    before = load_settings(folder, {"home": "/nowhere"})
    file = find_project(folder)
    assert file is not None
    try:
        trust_store().accept([file], "2026-05-01T09:00:00Z")
        refused = ""
    except HoldfastError as error:
        refused = str(error)
    after = load_settings(folder, {"home": "/nowhere"})
    return {
        "before": [before.model, before.prompts, before.max_turns],
        "notes": [each.note() for each in before.ignored],
        "refused": refused,
        "after": [after.model, after.prompts, after.max_turns],
    }


def looked_at(tmp_path: Path, who: str, change: Attack) -> dict[str, Any]:
    """The same as root or as an ordinary user, in a project that somebody changed."""
    me = 0 if who == "root" else private_user()
    folder, config = project(tmp_path, me), tmp_path / "mine"
    config.mkdir(mode=0o700)
    os.chown(config, me, -1)
    change(folder, me)
    found: dict[str, Any] = as_uid(me, pwd.getpwuid(me).pw_gid, lambda: seen(folder, config))
    return found


@root_only
@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_counts_where_a_stranger_can_write(name: str, who: str, tmp_path: Path) -> None:
    change, why = ATTACKS[name]
    found = looked_at(tmp_path, who, change)
    assert found["before"] == found["after"] == ["", "", 200]
    assert why in found["refused"], found
    assert why in found["notes"][0]


@root_only
@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize("name", SAFE)
def test_in_a_safe_place_harmless_keys_count_and_the_others_once_accepted(name: str, who: str, tmp_path: Path) -> None:
    found = looked_at(tmp_path, who, SAFE[name])
    assert found["before"] == ["", "", 3]
    assert found["refused"] == ""
    assert found["after"][0].startswith("openai:x@")
    assert found["after"][1].endswith("/p")


TAMPERS: dict[str, Callable[[Path], object]] = {
    "a key is changed": lambda at: (at / "holdfast.toml").write_text(PLANTED.replace("127.0.0.1:9", "127.0.0.1:10")),
    "a comment is added": lambda at: (at / "holdfast.toml").write_text(PLANTED + "# more\n"),
    "a prompt is changed": lambda at: (at / "p" / "worker.md").write_text("Obey me."),
    "a prompt is replaced": lambda at: (
        (at / "p" / "other").write_text("Mine."),
        (at / "p" / "other").replace(at / "p" / "worker.md"),
    ),
    "a prompt is added": lambda at: (at / "p" / "judge.md").write_text("Pass."),
    "a prompt is removed": lambda at: (at / "p" / "worker.md").unlink(),
    "the prompts become a link": lambda at: linked(at / "p"),
    "the file becomes a link": lambda at: linked(at / "holdfast.toml"),
    "the store is emptied": lambda at: trust_store().path.unlink(),
}


@pytest.mark.parametrize("name", TAMPERS)
def test_a_change_of_what_was_accepted_drops_the_trust(name: str, tmp_path: Path) -> None:
    folder = project(tmp_path, os.getuid())
    file = find_project(folder)
    assert file is not None
    trust_store().accept([file], "2026-05-01T09:00:00Z")
    settings = load_settings(folder, {})
    assert (settings.model[:9], settings.prompt_files) == ("openai:x@", {"worker.md": b"Obey."})
    TAMPERS[name](folder)
    settings = load_settings(folder, {})
    assert (settings.model, settings.prompts, settings.prompt_files) == ("", "", None)
    assert settings.ignored


def test_trust_does_not_go_with_a_copy(tmp_path: Path) -> None:
    folder = project(tmp_path, os.getuid())
    file = find_project(folder)
    assert file is not None
    trust_store().accept([file], "2026-05-01T09:00:00Z")
    folder.rename(tmp_path / "elsewhere")
    assert load_settings(tmp_path / "elsewhere", {}).model == ""


def test_a_model_of_a_file_is_accepted_with_it(tmp_path: Path) -> None:
    folder = project(tmp_path, os.getuid(), 'model = "scripted:m.json"\n')
    (folder / "m.json").write_text('{"turns": [{"text": "accepted"}]}')
    file = find_project(folder)
    assert file is not None
    trust_store().accept([file], "2026-05-01T09:00:00Z")
    assert load_settings(folder, {}).model == f"scripted:{folder}/m.json"
    (folder / "m.json").write_text('{"turns": [{"text": "planted"}]}')
    assert load_settings(folder, {}).model == ""


def test_the_store_is_private_and_one_that_others_write_is_not_believed(tmp_path: Path) -> None:
    folder = project(tmp_path, os.getuid())
    file = find_project(folder)
    assert file is not None
    store = trust_store()
    store.accept([file], "2026-05-01T09:00:00Z")
    assert (store.path.stat().st_mode & 0o777, store.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    for path, mode in ((store.path, 0o666), (store.path.parent, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(HoldfastError, match="is not trusted"):
            load_settings(folder, {})
        path.chmod(before)
    assert load_settings(folder, {}).model
    store.path.unlink()
    store.path.parent.chmod(0o777)
    with pytest.raises(HoldfastError, match="would not be believed"):
        store.accept([file], "2026-05-01T09:00:00Z")
    store.path.parent.chmod(0o700)
    store.path.write_text("{}}")
    with pytest.raises(HoldfastError, match="remove it and accept the settings again"):
        load_settings(folder, {})
