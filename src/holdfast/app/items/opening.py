"""Open a run over a list from the command line: read the list and the settings, and check everything first."""

from __future__ import annotations

import argparse
import glob
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.items.file import ItemsFile, read_items_file
from holdfast.app.models import settled_model
from holdfast.app.running.opening import limits_of, policies_of, workspace_of
from holdfast.app.settings.agent_file import load_agent, load_rules
from holdfast.app.settings.config import budget_pico
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.items import ItemData, Items
from holdfast.facts.session import Agent
from holdfast.facts.task import Run
from holdfast.kinds import ITEMS
from holdfast.kinds.items import lists
from holdfast.service.items import runs as service
from holdfast.service.opening import Change, NewSession, continue_session
from holdfast.session.rows import SessionRow

LIST_BYTES = 256 << 20
"""Most bytes of a list."""

TEXT_BYTES = 256 << 10
"""Most bytes of a file that becomes the field `text`."""

SENT_BACK = 2
"""Times that an item's session gets its own invalid output or failing check back before the try fails."""


def merged(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments, with the values of an items.toml where the command line has none."""
    if not args.list.endswith(".toml"):
        return args
    file = read_items_file(Path(args.list))
    values = dict(vars(args)) | {"list": file.list or ""}
    for name in ItemsFile.__struct_fields__:
        if name != "list" and values.get(name) in (None, ""):
            values[name] = getattr(file, name)
    return argparse.Namespace(**values)


async def open_items(call: Call, runtime: Runtime) -> SessionRow:
    """Open the run. Nothing is left behind if anything is wrong."""
    args, settings = merged(call.args), call.settings
    settings = replace(settings, budget_usd=args.budget_usd or settings.budget_usd)
    if not args.each:
        raise UsageError("--each is missing: the prompt for an item, for example --each 'Summarize: {text}'")
    if bool(args.list) == bool(args.command):
        raise UsageError("name one list: a .jsonl or .csv file, a quoted pattern such as 'docs/*.md', or -- COMMAND")
    data = read_list(args.list, args.key or "", args.each, has_folder=args.workspace is not None) if args.list else ()
    items = _items(args, len(data))
    if (items.run.until or items.command) and runtime.shelf is None:
        raise CannotRunSafely("--check and a list from a command work on a copy of the workspace, which needs git")
    agent = _agent(args, call)
    given = policies_of(settings, args.allow_host, args.registries, args.secret or None)
    new = NewSession(
        goal=f"{args.list or args.command}: {args.each}",
        agent=agent,
        workspace=workspace_of(settings, args.workspace, sandbox=not args.no_sandbox),
        limits=limits_of(settings, unpriced=args.unpriced),
        policies=given,
        key=args.session_id or "",
        accounts=tuple(dict.fromkeys(args.account)),
        items=items,
        needs_hands=bool(agent.tools or items.run.until or items.command or items.reduce_command),
    )
    return (await service.open_items(runtime.site, new, data, tell=call.note)).row


async def continue_items(call: Call, runtime: Runtime, row: SessionRow) -> None:
    """Continue the run of this key: complete its list if that was interrupted, and raise the budget."""
    state, items, own = await service.run_of(runtime.site, row)
    args = merged(call.args)
    if own.listed < items.count and args.list:
        data = read_list(args.list, items.key, items.each, has_folder=True)
        if len(data) != items.count:
            raise UsageError(
                f"the list of {row.key or row.session_id} has {items.count} items, and this one {len(data)}; nothing "
                "was changed. Use another --session-id"
            )
        await service.complete(runtime.intake, row, data)
    change = Change(budget_pico=budget_pico(call.args.budget_usd or ""))
    await continue_session(runtime.site, row, state, change)


def _items(args: argparse.Namespace, count: int) -> Items:
    found: dict[str, Any] = {
        name: value
        for name in ("workers", "batch", "tries", "every", "context", "judge", "reduce", "reduce_command")
        if (value := getattr(args, name))
    }
    share, out = args.max_quarantine, Path(args.out or "results.jsonl")
    if out.is_dir() or not out.name:
        raise UsageError(f"the output {str(out)!r} is a folder; name a file in it, such as --out results.jsonl")
    return Items(
        each=args.each,
        count=count,
        out=str(out.parent.resolve() / out.name),
        schema=_schema(args.schema) if args.schema else {},
        key=args.key or "",
        run=Run(until=(args.check,) if args.check else (), sent_back_max=SENT_BACK),
        max_quarantine=0.05 if share is None else percent(share),
        audit=percent(args.audit) if args.audit else 0.0,
        command=args.command or "",
        own_workspace=args.workspace is None,
        **found,
    )


def percent(text: str) -> float:
    """Parse a share such as `5%` or `0.05`. Raises `UsageError`."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"{text!r} is not a share from 0% to 100%, such as 5%")
    return share


def _schema(text: str) -> dict[str, Any]:
    try:
        schema = msgspec.json.decode(Path(text).read_bytes())
    except OSError as error:
        raise UsageError(f"the schema {text} cannot be read: {error.strerror}; nothing was started") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the schema {text} is not JSON: {error}; nothing was started") from None
    if not isinstance(schema, dict) or not schema:
        raise UsageError(f"the schema {text} is not a JSON object with a schema; nothing was started")
    return schema


def _agent(args: argparse.Namespace, call: Call) -> Agent:
    agent = load_agent(args.agent or "", args.model or call.settings.model)
    return msgspec.structs.replace(
        agent,
        model=settled_model(agent.model, args.base_url),
        rules=load_rules(args.rules or "", args.rule_flags),
        name=ITEMS,
        tools=() if args.no_tools else agent.tools,
    )


# --- the list ----------------------------------------------------------------------------------------


def read_list(source: str, key: str, each: str = "", *, has_folder: bool = False) -> tuple[ItemData, ...]:
    """Read the items of a file, of standard input (`-`), or of the files that match a pattern. Raises `UsageError`."""
    if source == "-":
        return lists.keyed(lists.read_lines(_text(sys.stdin.buffer.read(), source), source, plain=True), key, source)
    if any(char in source for char in "*?["):
        return lists.keyed(_files(source, each, has_folder=has_folder), key or "path", source)
    path = Path(source)
    try:
        if path.stat().st_size > LIST_BYTES:
            raise UsageError(f"{source} has more than {LIST_BYTES >> 20} MB; nothing was started. Split it")
        text = _text(path.read_bytes(), source)
    except OSError as error:
        raise UsageError(
            f"the list {source!r} cannot be read ({error.strerror}), and nothing was started; a list is a .jsonl or "
            ".csv file, a quoted pattern such as 'docs/*.md', or -- COMMAND"
        ) from None
    if path.suffix == ".csv":
        return lists.keyed(lists.read_csv(text, source), key, source)
    return lists.keyed(lists.read_lines(text, source, plain=path.suffix == ".txt"), key, source)


def _text(data: bytes, source: str) -> str:
    return lists.read_text(data, source)


def _files(pattern: str, each: str, *, has_folder: bool) -> Sequence[dict[str, Any]]:
    """Return a record for each file: `path`, `name`, and `text` if the prompt names it."""
    paths = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
    if not paths:
        raise UsageError(f"no file matches {pattern!r}; nothing was started")
    reads = "text" in lists.fields_of(each)
    if not reads and not has_folder:
        raise UsageError(
            "the agents would not see the files: put their content into the prompt with {text}, or name the folder "
            "that they work in with --workspace; nothing was started"
        )
    records = []
    for path in paths:
        record = {"path": path, "name": os.path.basename(path)}
        if reads:
            try:
                data = Path(path).read_bytes()
            except OSError as error:
                raise UsageError(f"{path} cannot be read: {error.strerror}; nothing was started") from None
            if len(data) > TEXT_BYTES:
                raise UsageError(f"{path} has more than {TEXT_BYTES >> 10} KB: leave {{text}} out, and use --workspace")
            record["text"] = _text(data, path)
        records.append(record)
    return records
