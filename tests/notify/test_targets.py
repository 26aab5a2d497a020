"""The `[notify.NAME]` tables: who may write them, what they can say, and where secrets come from."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

import apprise
import pytest
from apprise.manager_plugins import NotificationManager

from holdfast.app.settings.config import Settings, load_settings
from holdfast.app.settings.targets import make_outlets, outlets, read_targets, reply_key
from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, NotifyError, UsageError
from holdfast.ids import system_entropy
from holdfast.notify.base import Outlet
from holdfast.testing.notify import example
from tests.notify.rigs import KEY, SECRET
from tests.support.ntfy_server import NtfyServer
from tests.support.receiver import Receiver

WEBHOOK = {"kind": "webhook", "url": "https://example.com/hook", "secret": "env:OPS_SECRET"}
PHONE = {"kind": "ntfy", "url": "https://example.com", "topic": "t", "reply_topic": "env:REPLIES", "user": "ann"}


def made(table: dict[str, Any], **variables: str) -> Outlet:
    """The one target of a table called `ops`."""
    [outlet] = make_outlets(read_targets({"ops": table}), variables, SystemClock(), lambda: KEY, Path("home"))
    return outlet


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own settings file, not yet written."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "config" / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True)
    return file


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A cloned repository."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    return tmp_path / "repo"


async def test_the_users_own_file_says_where_messages_go(
    mine: Path, repository: Path, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_SECRET", SECRET)
    with Receiver() as receiver, NtfyServer() as server:
        assert isinstance(server, NtfyServer)
        mine.write_text(
            f'[notify.ops]\nkind = "webhook"\nurl = "{receiver.url}/x"\nsecret = "env:OPS_SECRET"\n'
            f'[notify.phone]\nkind = "ntfy"\nurl = "{server.url}"\ntopic = "t"\nreply_topic = "r"\nuser = "ann"\n'
            'quiet = "22:00-07:00 UTC"\n'
        )
        (repository / "holdfast.toml").write_text("max_turns = 3\n")
        ops, phone = outlets(load_settings(repository, {}), SystemClock(), system_entropy)
        for outlet in (ops, phone):
            await outlet.target.send(example())
        assert (len(receiver.requests), len(server.of("t"))) == (1, 1)
    assert (ops.name, ops.user, ops.channel) == ("ops", "", None)
    assert (phone.name, phone.user) == ("phone", "ann")
    assert phone.channel is not None
    assert phone.channel.name == "phone"
    assert phone.held_until_us(0) == 7 * 3600 * 1_000_000
    assert (holdfast_home / "reply.key").stat().st_mode & 0o777 == 0o600


def test_a_repository_must_not_say_where_approvals_go(mine: Path, repository: Path) -> None:
    (repository / "holdfast.toml").write_text('[notify.ops]\nkind = "webhook"\n')
    with pytest.raises(UsageError, match="a repository must not say where your approvals go") as caught:
        load_settings(repository, {})
    assert str(mine) in str(caught.value)
    (repository / "holdfast.toml").unlink()
    mine.write_text('[notify.ops]\nkind = "webhook"\n')
    assert load_settings(repository, {}).notify == {"ops": {"kind": "webhook"}}
    assert load_settings(mine.parent, {}).notify == {"ops": {"kind": "webhook"}}, "found twice, and mine"


@pytest.mark.parametrize("text", ['notify = "https://example.com"', "notify = 3", "[notify]\nops = 1"])
def test_notify_is_tables(text: str, mine: Path, repository: Path) -> None:
    mine.write_text(text)
    with pytest.raises(UsageError, match=r"has to be tables in a file, such as \[notify.NAME\]"):
        load_settings(repository, {})


def test_no_variable_makes_a_target(repository: Path, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_NOTIFY", "https://example.com")
    with pytest.raises(UsageError, match="notify in the environment variable HOLDFAST_NOTIFY has to be tables"):
        load_settings(repository, {})


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "no kind that exists; there are apprise, ntfy, push, webhook"),
        ({"kind": "webhok"}, "did you mean 'webhook'"),
        ({**WEBHOOK, "secrets": "env:X"}, "unknown key 'secrets' in .*did you mean 'secret'"),
        ({**WEBHOOK, "topic": "t"}, "unknown key 'topic'"),
        ({"kind": "webhook", "url": "https://example.com"}, "has no secret"),
        ({"kind": "ntfy", "url": "https://example.com"}, "has no topic"),
        ({**WEBHOOK, "url": 3}, "url in .* has to be text"),
        ({**WEBHOOK, "user": " "}, "user in .* has to be text"),
        ({**WEBHOOK, "secret": "env:"}, "names no environment variable"),
        ({**WEBHOOK, "secret": "env:A-B"}, "names no environment variable"),
        ({**WEBHOOK, "secret": "file:ops.secret"}, "by a whole path"),
        ({**WEBHOOK, "quiet": "at night"}, "22:00-07:00 Europe/Zurich"),
        ("https://example.com", "has to be a table"),
    ],
)
def test_tables_that_cannot_be_meant(table: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        read_targets({"ops": table})
    assert "notify.ops" in str(caught.value) or "quiet hours" in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        {**WEBHOOK, "secret": "T0PS3CRET"},
        {**PHONE, "token": "T0PS3CRET"},
        {"kind": "apprise", "url": "mailto://ann:T0PS3CRET@example.com"},
    ],
)
def test_a_secret_is_named_and_never_written(table: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="say where the secret is, not what it is") as caught:
        read_targets({"ops": table})
    assert "T0PS3CRET" not in str(caught.value)


def test_names_are_plain() -> None:
    with pytest.raises(UsageError, match="name that cannot be used"):
        read_targets({"a b": WEBHOOK})


def test_a_secret_comes_from_a_variable_or_a_private_file(tmp_path: Path) -> None:
    assert made(WEBHOOK, OPS_SECRET=f"{SECRET}\n").name == "ops"
    file = tmp_path / "ops.secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    assert made({**WEBHOOK, "secret": f"file:{file}"}).name == "ops"
    file.chmod(0o644)
    with pytest.raises(CannotRunSafely, match=f"others on this machine can read .*chmod 600 {file}"):
        made({**WEBHOOK, "secret": f"file:{file}"})


def test_secrets_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotRunSafely, match="the environment variable OPS_SECRET is not set"):
        made(WEBHOOK)
    for name, data in {"empty": b"", "long": b"x" * 9000, "binary": b"\xff\xfe"}.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o600)
        with pytest.raises(CannotRunSafely, match="holds no secret"):
            made({**WEBHOOK, "secret": f"file:{tmp_path / name}"})
    (tmp_path / "lines").write_text("T0PS3CRET\nT0PS3CRET\n")
    (tmp_path / "lines").chmod(0o600)
    with pytest.raises(CannotRunSafely, match="more than one line") as caught:
        made({**WEBHOOK, "secret": f"file:{tmp_path / 'lines'}"})
    assert "T0PS3CRET" not in str(caught.value)
    with pytest.raises(CannotRunSafely, match="cannot be read: No such file"):
        made({**WEBHOOK, "secret": f"file:{tmp_path / 'nowhere'}"})
    with pytest.raises(CannotRunSafely, match="no ordinary file"):
        made({**WEBHOOK, "secret": f"file:{tmp_path}"})
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(CannotRunSafely, match="no ordinary file"):
        made({**WEBHOOK, "secret": f"file:{tmp_path / 'fifo'}"})


@pytest.mark.parametrize(
    ("table", "module", "package", "extra"),
    [
        (WEBHOOK, "webhook", "standardwebhooks", "notify"),
        (WEBHOOK, "webhook", "httpx", "notify"),
        (PHONE, "ntfy", "stamina", "notify"),
        ({"kind": "apprise", "url": "env:MAIL"}, "apprise_target", "apprise", "apprise"),
    ],
)
def test_a_missing_package_is_named(
    table: dict[str, str], module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http", module):
        monkeypatch.delitem(sys.modules, f"holdfast.notify.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CannotRunSafely) as caught:
        made(table, OPS_SECRET=SECRET, REPLIES="r", MAIL="json://127.0.0.1")
    assert f"the package {package}, which is not installed; type: pip install 'holdfast[{extra}]'" in str(caught.value)


async def test_an_apprise_address_that_nobody_understands(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    outlet = made({"kind": "apprise", "url": "env:MAIL"}, MAIL="nosuch://T0PS3CRET")
    with pytest.raises(NotifyError, match="'ops' has a url that Apprise does not support") as caught:
        await outlet.target.send(example())
    assert not caught.value.retryable
    assert [record for record in caplog.records if record.name.startswith("apprise")] == []
    assert "T0PS3CRET" not in repr(caught.value) + repr(outlet.target)


def breaks(*arguments: object, **more: object) -> bool:
    """Fail as no plugin should."""
    raise RuntimeError("T0PS3CRET")


async def test_an_apprise_plugin_that_breaks() -> None:
    plugins: Any = NotificationManager
    plugins().add(type("Broken", (apprise.NotifyBase,), {"protocol": "broken", "send": breaks}), schemas="broken")
    outlet = made({"kind": "apprise", "url": "env:MAIL"}, MAIL="broken://example.com")
    with pytest.raises(NotifyError, match=r"'ops' failed inside Apprise \(RuntimeError\)") as caught:
        await outlet.target.send(example())
    assert caught.value.retryable
    assert "T0PS3CRET" not in str(caught.value)


def test_the_reply_key_is_made_once_and_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = reply_key(home, system_entropy)
    assert reply_key(home, system_entropy) == first
    assert len(first) == 32
    assert [file.name for file in home.iterdir()] == ["reply.key"]
    (home / "reply.key").chmod(0o640)
    with pytest.raises(CannotRunSafely, match="others on this machine can read the reply key"):
        reply_key(home, system_entropy)
    (home / "reply.key").write_bytes(b"short")
    (home / "reply.key").chmod(0o600)
    with pytest.raises(CannotRunSafely, match="damaged"):
        reply_key(home, system_entropy)


def test_two_makers_of_the_reply_key_agree(tmp_path: Path) -> None:
    """The one that is later finds the other's file in its place, at every point where that can happen."""
    home = tmp_path / "home"
    other: list[bytes] = []

    def meanwhile(size: int) -> bytes:
        other.append(reply_key(home, system_entropy))
        (home / f"reply.key.{os.getpid()}").write_bytes(b"left by a crash")
        return bytes(size)

    assert reply_key(home, meanwhile) == other[0]
    assert [file.name for file in home.iterdir()] == ["reply.key"]


def test_nothing_is_asked_for_without_tables(holdfast_home: Path) -> None:
    assert outlets(Settings(home=str(holdfast_home)), SystemClock(), system_entropy) == ()
    assert not holdfast_home.exists()
