"""The verb `service`: `holdfast serve` kept alive by the user's service manager (systemd)."""

from __future__ import annotations

import argparse
import getpass
import hashlib
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import NamedTuple

import anyio

from holdfast.app import exits
from holdfast.app.call import Call, positive
from holdfast.app.home import Home, workers
from holdfast.app.models import REMOTES
from holdfast.app.settings.config import Settings, config_folder, database_path, default_home, variables
from holdfast.errors import CannotRunSafely, UsageError

ASK_S = 30.0
"""Longest time for an answer of the service manager."""

LINGER = Path("/var/lib/systemd/linger")
"""Folder with a file for each user whose services run without a login."""

UNIT = """\
# Written by `holdfast service install`, which also replaces it.
[Unit]
Description=Holdfast: agents of {home}
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
Environment={path}
EnvironmentFile=-{variables}
# A crash, and a reboot: sessions continue. A wrong command line (status 2) does not become right by itself.
Restart=always
RestartSec=2
RestartPreventExitStatus=2
# Running commands of agents belong to supervisors that outlive this process and report to the next one.
KillMode=process
OOMPolicy=continue
Delegate=yes
UMask=0077
{hardening}
[Install]
WantedBy=default.target
"""


def service_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `service`."""
    actions = ("install", "status", "remove")
    parser.add_argument("action", choices=actions, metavar="ACTION", help="install, status, or remove")
    parser.add_argument("--port", metavar="N", type=positive, help="install: port of the page")
    parser.add_argument("--concurrency", metavar="N", type=positive, help="install: sessions at a time")
    parser.add_argument("--print", action="store_true", help="install: print the unit and change nothing")
    parser.add_argument("--json", action="store_true", help="Print JSON")


class Place(NamedTuple):
    """The service of one home: the name of its unit, the unit's file, and the file with its variables."""

    name: str
    unit: Path
    variables: Path


def place_of(settings: Settings) -> Place:
    """Return the names of a home's service. A home other than the default has its own."""
    home = Path(settings.home).absolute()
    own = "" if home == default_home() else f"-{hashlib.sha256(os.fsencode(home)).hexdigest()[:8]}"
    name = f"holdfast{own}.service"
    config = config_folder()
    return Place(name, config.parent / "systemd" / "user" / name, config / f"service{own}.env")


def unit_text(call: Call, place: Place) -> str:
    """Return the unit that serves this home. Raises `UsageError` for a path that no unit can hold."""
    args, home = call.args, str(Path(call.settings.home).absolute())
    words = [sys.executable, "-P", "-m", "holdfast", "serve", "--no-link", "--home", home]
    words += ["--db", call.settings.db] if call.settings.db else []
    for flag in ("port", "concurrency"):
        words += [f"--{flag}", str(value)] if (value := getattr(args, flag)) else []
    bwrap = shutil.which("bwrap")
    # A bubblewrap that is installed setuid, for kernels without user namespaces, could not become root.
    setuid = bwrap is not None and bool(os.stat(bwrap).st_mode & stat.S_ISUID)
    return UNIT.format(
        home=home.replace("%", "%%"),
        command=" ".join(quoted(word).replace("$", "$$") for word in words),
        path=quoted(f"PATH={variables({'PATH'}).get('PATH', os.defpath)}"),
        variables=str(place.variables).replace("%", "%%"),
        hardening="RestrictRealtime=yes\n" if setuid else "NoNewPrivileges=yes\nRestrictRealtime=yes\n",
    )


def quoted(word: str) -> str:
    """Quote a word of a unit, as systemd.syntax(7) and systemd.service(5) say. Raises `UsageError`."""
    if any(ord(char) < 32 for char in word):
        raise UsageError(f"a service cannot have {word!r} in its unit, and nothing was changed: use another path")
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{word}"'


async def service_run(call: Call) -> int:
    """Install, show, or remove the service of this home."""
    if call.args.action == "install":
        return await _install(call)
    if call.args.print or call.args.port or call.args.concurrency:
        raise UsageError(f"service {call.args.action} takes no --print, --port, or --concurrency")
    return await (_remove(call) if call.args.action == "remove" else _status(call))


async def _install(call: Call) -> int:
    """Write the unit and start it. Safe to repeat: a changed unit restarts the service, which loses nothing."""
    place = place_of(call.settings)
    text = unit_text(call, place)
    if call.args.print:
        call.say(text.rstrip("\n"))
        return exits.DONE
    await _manager("show-environment", why="nothing was changed")
    try:
        place.unit.parent.mkdir(parents=True, exist_ok=True)
        place.unit.write_text(text)
    except OSError as error:
        raise CannotRunSafely(f"{place.unit} cannot be written ({error.strerror}); nothing was changed") from error
    await _manager("daemon-reload")
    await _manager("enable", place.name)
    await _manager("restart", place.name)
    lingers = (LINGER / getpass.getuser()).exists()
    missing = _missing(place)
    if call.json:
        call.emit({"unit": place.name, "file": str(place.unit), "lingers": lingers, "missing_variables": missing})
        return exits.DONE
    call.say(f"{place.name} runs, and starts again after a crash.")
    if not lingers:
        call.say("It ends when you log out, and starts at your next login. To keep it running: loginctl enable-linger")
    if missing:
        call.say(
            f"It does not see this shell's variables. Write {', '.join(f'{name}=…' for name in missing)} to "
            f"{place.variables} (chmod 600), and then: {call.typed('service', 'install')}"
        )
    call.say(f"Open its page: {call.typed('open')}")
    return exits.DONE


def _missing(place: Place) -> list[str]:
    """Return the keys of models that are set in this shell, and not in the file of the service."""
    keys = variables(sorted({key for remote in REMOTES.values() for key in remote.keys}))
    try:
        lines = place.variables.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    return [key for key in keys if key not in {line.partition("=")[0].strip() for line in lines}]


async def _status(call: Call) -> int:
    """Show whether the service runs and serves. The exit status is 0 if it does, else 1."""
    place = place_of(call.settings)
    installed = place.unit.exists()
    shown: dict[str, str] = {}
    if installed:
        asked = ("show", place.name, "--property=ActiveState,SubState,MainPID,NRestarts,UnitFileState")
        lines = (await _manager(*asked)).splitlines()
        shown = dict(line.split("=", 1) for line in lines if "=" in line)
    active = shown.get("ActiveState", "inactive")
    serves = bool(workers(Home(Path(call.settings.home)), database_path(call.settings)))
    lingers = (LINGER / getpass.getuser()).exists()
    if call.json:
        found = {"unit": place.name, "installed": installed, "active": active, "serves": serves, "lingers": lingers}
        call.emit({**found, "pid": int(shown.get("MainPID", "0")), "restarts": int(shown.get("NRestarts", "0"))})
    elif not installed:
        call.say(f"There is no service of this home; type: {call.typed('service', 'install')}")
    else:
        restarts = shown.get("NRestarts", "0")
        call.say(f"{place.name} is {active} ({shown.get('SubState', '')}), restarted {restarts} times.")
        call.say("It serves this home." if serves else "It does not serve this home yet.")
        call.say("It runs without a login." if lingers else "It runs while you are logged in (loginctl enable-linger).")
        if active != "active":
            call.say(f"Its last words: journalctl --user -u {place.name} -n 20")
    return exits.DONE if active == "active" else exits.FAILED


async def _remove(call: Call) -> int:
    """Stop the service and delete its unit. Sessions stay, and continue with the next worker."""
    place = place_of(call.settings)
    if place.unit.exists():
        await _manager("disable", "--now", place.name, why="nothing was removed")
        place.unit.unlink(missing_ok=True)
        await _manager("daemon-reload")
    if call.json:
        call.emit({"unit": place.name, "installed": False})
    else:
        left = f" {place.variables} was left alone." if place.variables.exists() else ""
        call.say(f"There is no service of this home now. Its sessions stay.{left}")
    return exits.DONE


async def _manager(*words: str, why: str = "") -> str:
    """Ask the user's service manager. Raises `CannotRunSafely` if there is none, or if it refuses."""
    command = ["systemctl", "--user", "--no-pager", *words]
    try:
        with anyio.fail_after(ASK_S):
            done = await anyio.run_process(command, check=False)
    except FileNotFoundError:
        said = "systemd is not on this machine"
    except TimeoutError:
        said = f"`systemctl --user {words[0]}` did not end within {ASK_S:.0f} s"
    else:
        if done.returncode == 0:
            return done.stdout.decode("utf-8", "replace")
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        said = last[0] if last else f"`systemctl --user {words[0]}` ended with status {done.returncode}"
    raise CannotRunSafely(
        f"the service manager of this user refused: {said}{f'; {why}' if why else ''}. To keep `holdfast serve` "
        "running by other means, see `holdfast service install --print`"
    )
