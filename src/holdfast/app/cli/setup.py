"""The verbs that set up Holdfast for a user: init, config, notify."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from holdfast.app import exits
from holdfast.app.available_models import ask_once, look
from holdfast.app.call import Call
from holdfast.app.models import find_model, settled_model
from holdfast.app.settings.config import budget_pico, user_file
from holdfast.app.settings.targets import outlets
from holdfast.app.settings.user_file import Setting, current, find_setting, set_values, settings_in_force
from holdfast.app.settings.values import nearest
from holdfast.app.trust_prompt import can_ask, confirmed, typed_line
from holdfast.app.wrap import terminal_width
from holdfast.clock import SystemClock
from holdfast.errors import ModelError, UsageError
from holdfast.facts.base import Usage
from holdfast.ids import system_entropy
from holdfast.notify.base import Outlet, send_test
from holdfast.session.context.text import visible


def init_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `init`."""
    parser.add_argument("--model", metavar="NAME", help="Default model (required without a terminal)")
    parser.add_argument("--base-url", metavar="URL", default="", help="Address of the model's server")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="Default spending cap of a session")
    parser.add_argument("--no-check", action="store_true", help="Do not send a request to check the key")
    parser.add_argument("--replace", action="store_true", help="Replace values that are set already, without asking")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def init_run(call: Call) -> int:
    """Choose and check a model, and write the user's settings file. Keys stay in the environment."""
    args = call.args
    budget_pico(args.budget_usd or "")
    model = await _chosen_model(call)
    door = find_model(model, call.settings)
    priced = door.cost_pico(Usage()) is not None
    if args.budget_usd and not priced:
        raise UsageError(f"{model} has no price, so no cap can be kept; nothing was written: leave --budget out")
    if not args.no_check:
        call.note(f"Checking {model} with one short request.")
        try:
            await ask_once(door)
        except ModelError as error:
            raise ModelError(error.kind, f"{error}; nothing was written") from error
    budget = args.budget_usd or ""
    if not budget and priced and can_ask(call) and current("budget_usd") is None:
        budget = await typed_line("Spending cap of a session in dollars, such as 5 (Enter: none): ")
        budget_pico(budget)
    values = {"model": json.dumps(model, ensure_ascii=False), **({"budget_usd": json.dumps(budget)} if budget else {})}
    kept = [key for key, value in values.items() if await _is_kept(call, key, json.loads(value))]
    values = {key: value for key, value in values.items() if key not in kept}
    path = set_values(values) if values else user_file()
    if call.json:
        call.emit({"file": str(path), "model": model, "written": list(values), "checked": not args.no_check})
    else:
        call.say(f"{'Wrote ' + ', '.join(values) + ' to' if values else 'Nothing to change in'} {path}")
    targets = outlets(call.settings, SystemClock(), system_entropy)
    if targets and can_ask(call) and await confirmed("Send a test notification?"):
        await _send(call, targets)
    elif not targets:
        call.note("No notifications are set up: see `holdfast notify --help`.")
    call.note('Next: holdfast run "fix the failing test" --workspace .')
    return exits.DONE


async def _chosen_model(call: Call) -> str:
    """The model of the flags, or the user's answer. Raises `UsageError` without both."""
    if call.args.model:
        return settled_model(call.args.model, call.args.base_url)
    if not can_ask(call):
        raise UsageError("there is no terminal to ask on; name the model: holdfast init --model anthropic:NAME")
    found = await look()
    for finding in found.findings:
        if finding.level == "ok":
            call.note(f"{finding.name}: {finding.message}")
    words = shlex.split(found.proposal)
    proposed = dict(zip(words[::2], words[1::2], strict=True))
    default = settled_model(proposed["--model"], proposed.get("--base-url", "")) if proposed else ""
    if not default:
        call.note("No key and no local server was found. Set a key, such as ANTHROPIC_API_KEY, and start again.")
    answer = await typed_line(f"Model{f' [{default}]' if default else ' (PROVIDER:NAME)'}: ")
    return settled_model(answer, call.args.base_url) if answer else default


async def _is_kept(call: Call, key: str, new: str) -> bool:
    """True if the user's file has that value, or the user keeps another one. Raises `UsageError` without a terminal."""
    old = current(key)
    if old is None or (old != new and call.args.replace):
        return False
    if old == new:
        return True
    if not can_ask(call):
        raise UsageError(f"{key} is {old!r} in {user_file()}; nothing was changed: add --replace to replace it")
    return not await confirmed(f"{key} is {visible(str(old))}. Replace it with {new}?")


# --- config ----------------------------------------------------------------------------------------

EXAMPLES = {"get": "holdfast config get model", "set": "holdfast config set max_turns 100"}


def config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `config`."""
    parser.add_argument("action", choices=("show", "get", "set"), metavar="ACTION", help="show, get, or set")
    parser.add_argument("key", metavar="KEY", nargs="?", help="A setting, such as model or hands.memory_bytes")
    parser.add_argument("value", metavar="VALUE", nargs="?", help="Its new value in your own holdfast.toml")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def config_run(call: Call) -> int:
    """Show settings with their sources, or change the user's file."""
    action, key, value = call.args.action, call.args.key, call.args.value
    if (key is None) != (action == "show") or (value is None) != (action != "set"):
        raise UsageError(
            f"config {action} takes {_TAKES[action]}; for example: {EXAMPLES.get(action, 'holdfast config show')}"
        )
    here, flags = Path.cwd(), vars(call.args)
    if action == "set":
        path = set_values({key: value})
        call.note(f"Set {key} in {path}")
    found = settings_in_force(here, flags)
    if action == "show":
        _show(call, found)
        return exits.DONE
    each = next((each for each in found if each.key == key), None) if action == "set" else find_setting(found, key)
    if each is not None and call.json:
        call.emit({"key": each.key, "value": each.value, "source": each.source})
    elif each is not None and action == "get":
        call.say(each.value if isinstance(each.value, str) else as_toml(each.value), whole=True)
        call.note(f"from {each.source}")
    elif each is not None and each.source != str(user_file()):
        call.note(f"{key} is {as_toml(each.value)} here all the same, from {each.source}")
    return exits.DONE


_TAKES = {"show": "no key", "get": "a key", "set": "a key and a value"}


def _show(call: Call, found: list[Setting]) -> None:
    """The settings by source, defaults last."""
    width = terminal_width()
    for source in sorted({each.source for each in found}, key=lambda source: (source == "default", source)):
        if not call.json:
            call.say(source)
        for each in found:
            if each.source == source and call.json:
                call.emit({"key": each.key, "value": each.value, "source": each.source})
            elif each.source == source:
                line = f"  {each.key} = {as_toml(each.value)}"
                call.say(line if width is None or len(line) <= width else f"{line[: width - 1]}…")


def as_toml(value: Any) -> str:
    """A value as it is written in TOML, and `none` for None."""
    match value:
        case None:
            return "none"
        case dict():
            return "{" + ", ".join(f"{name} = {as_toml(each)}" for name, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(as_toml, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


# --- notify ----------------------------------------------------------------------------------------


def notify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `notify`."""
    parser.add_argument("action", choices=("test",), metavar="ACTION", help="test: send a test notification")
    parser.add_argument("names", metavar="TARGET", nargs="*", help="Only these targets (default: all)")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")
    parser.epilog = (
        f"{parser.epilog}. Add a target to {user_file()}, as docs/notifications.md says: "
        """holdfast config set notify.phone '{kind = "ntfy", url = "https://ntfy.sh", topic = "env:NTFY_TOPIC"}'"""
    )


async def notify_run(call: Call) -> int:
    """Send a test notification to each target."""
    names = call.args.names
    targets = outlets(call.settings, SystemClock(), system_entropy)
    if not targets:
        raise UsageError("no notification target is set up, and nothing was sent; see `holdfast notify --help`")
    known = [each.name for each in targets]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no notification target {name!r}, and nothing was sent; {nearest(name, known)}")
    return await _send(call, tuple(each for each in targets if not names or each.name in names))


async def _send(call: Call, targets: tuple[Outlet, ...]) -> int:
    code = exits.DONE
    for each in targets:
        sent = await send_test(each.target, SystemClock())
        code = code if sent.ok else exits.UNABLE
        if call.json:
            call.emit({"target": each.name, "ok": sent.ok, "problem": sent.detail or None})
        else:
            call.say(f"{'sent  ' if sent.ok else 'FAILED'} {each.name}{f': {sent.detail}' if sent.detail else ''}")
    return code
