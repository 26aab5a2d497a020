"""Generate docs/reference from the code: events, errors, the command line.

scripts/reference.py            write the files
scripts/reference.py --check    write nothing; exit 1 and name the files that are out of date
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec

from holdfast import errors
from holdfast.facts import base, codec, union
from holdfast.model import scripted

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
NOTE = "<!-- Made by scripts/reference.py (`make docs`) from the code. Do not edit. -->\n"


def doc(thing: object) -> str:
    """The docstring as Markdown; the constructs of plain text are kept as they are."""
    text = inspect.getdoc(thing) or ""
    if not text:
        raise SystemExit(f"reference: {thing!r} has no docstring")
    return text


def cell(text: str) -> str:
    """`text` as code in a table cell."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


# --- events --------------------------------------------------------------------------------------


def annotations_of(cls: type) -> dict[str, str]:
    """Field → type as it is written in the source, inherited fields first."""
    found: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__):
        found.update({k: str(v) for k, v in inspect.get_annotations(ancestor).items()})
    return found


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """The default of a field as code, empty when it must be given."""
    if field.default is not msgspec.NODEFAULT:
        return cell(repr(field.default))
    if field.default_factory is not msgspec.NODEFAULT:
        return cell(repr(field.default_factory()))
    return ""


def fields_table(cls: type[msgspec.Struct]) -> str:
    """The fields of a struct, their types and defaults."""
    written = annotations_of(cls)
    rows = [
        (cell(field.encode_name), cell(written[field.name]), default_of(field) or "required")
        for field in msgspec.structs.fields(cls)
    ]
    return table(("field", "type", "default"), rows) if rows else "No fields.\n"


def aliases(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Public type aliases of a module that have a docstring below them: name, value, docstring."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, below in itertools.pairwise(body):
        if not (isinstance(statement, ast.Assign) and isinstance(below, ast.Expr)):
            continue
        target, text = statement.targets[0], below.value
        if isinstance(target, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            if not target.id.startswith("_"):
                yield target.id, ast.unparse(statement.value), inspect.cleandoc(text.value)


def shapes(module: ModuleType) -> Iterator[type[msgspec.Struct]]:
    """Public structs of a module that are not events themselves."""
    for cls in vars(module).values():
        if not (isinstance(cls, type) and issubclass(cls, msgspec.Struct)) or issubclass(cls, base.Fact):
            continue
        if cls.__module__ == module.__name__ and not cls.__name__.startswith("_"):
            yield cls


def module_parts(module: ModuleType) -> Iterator[str]:
    """The shapes and named values that a family's events use."""
    for cls in shapes(module):
        yield f"### {cls.__name__}\n\n{doc(cls)}\n\n{fields_table(cls)}"
    for name, value, text in aliases(module):
        yield f"### {name}\n\n{text}\n\n```python\n{name} = {value}\n```\n"


def families() -> dict[str, list[type[base.Fact]]]:
    """Module name → its event classes, in the order of the union."""
    found: dict[str, list[type[base.Fact]]] = {}
    for cls in union.FACT_TYPES.values():
        found.setdefault(cls.__module__, []).append(cls)
    return found


def events() -> str:
    """The text of events.md."""
    parts = [
        NOTE + "# Events\n\n"
        "What can be true of a session. An event is a fact with its place in the log; the fact is one of the types "
        "below, tagged by `type`. Types are only added, never changed in meaning.\n",
        f"Vocabulary version: {codec.SCHEMA}.\n",
        "## Every event\n",
        f"{doc(codec.Event)}\n\n{fields_table(codec.Event)}",
    ]
    for name, classes in families().items():
        module = importlib.import_module(name)
        family = name.rsplit(".", 1)[1]
        parts.append(f"## Family: {family}\n\n{doc(module)}\n")
        parts.extend(f"### `{cls.__struct_config__.tag}`\n\n{doc(cls)}\n\n{fields_table(cls)}" for cls in classes)
        parts.extend(module_parts(module))
    parts.append(f"## Shared shapes\n\n{doc(base)}\n")
    parts.extend(module_parts(base))
    return "\n".join(parts)


# --- errors --------------------------------------------------------------------------------------


def error_classes() -> list[type[errors.HoldfastError]]:
    """Every error of the package, parents before children."""
    return [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.HoldfastError)]


def errors_page() -> str:
    """The text of errors.md."""
    parts = [
        NOTE + "# Errors\n\n"
        "All derive from `holdfast.errors.HoldfastError`. The exit status is what the command line returns when the "
        "error reaches it.\n"
    ]
    for cls in error_classes():
        parent = cls.__bases__[0].__name__
        extra = sorted(set(inspect.signature(cls.__init__).parameters) - {"self", "message", "args", "kwargs"})
        lines = [f"## {cls.__name__}\n", f"{doc(cls)}\n", f"- exit status: {cls.exit_code}", f"- is a: `{parent}`"]
        if extra:
            lines.append("- carries: " + ", ".join(f"`{name}`" for name in extra))
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


# --- script --------------------------------------------------------------------------------------


def script_page() -> str:
    """The text of script.md: the file that a scripted model follows."""
    parts = [NOTE + f"# Scripts of the scripted model\n\n{doc(scripted)}\n"]
    parts += [f"## {cls.__name__}\n\n{doc(cls)}\n\n{fields_table(cls)}" for cls in shapes(scripted)]
    kinds = ", ".join(cell(kind) for kind in get_args(scripted.ErrorKind))
    parts.append(f"## ErrorKind\n\nOne of {kinds}.\n")
    plain = {"_Count": "int", "_Seconds": "float", "_Dollars": "float"}
    return re.sub(r"Annotated\[(\w+), [^`]*?\)\]|_[A-Z]\w+", lambda m: m[1] or plain[m[0]], "\n".join(parts))


# --- command line --------------------------------------------------------------------------------


def option_rows(parser: argparse.ArgumentParser) -> Sequence[tuple[str, ...]]:
    """One row for each argument: how it is written, what it does, its default."""
    rows = []
    for action in parser._actions:
        if isinstance(action, (argparse._SubParsersAction, argparse._HelpAction)) or action.help == argparse.SUPPRESS:
            continue
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            name += f" {action.metavar or (action.dest.upper() if not action.choices else '')}".rstrip()
        if action.choices:
            name += " {" + ",".join(map(str, action.choices)) + "}"
        shown = action.default not in (None, False, argparse.SUPPRESS, []) and action.option_strings
        text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
        rows.append((cell(name), text.replace("|", "\\|"), cell(str(action.default)) if shown else ""))
    return rows


def words_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """The subcommands of a verb: name, summary, parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            yield from ((name, helps[name], inner) for name, inner in action.choices.items())


def verb_section(module: Any, verb: str) -> str:
    """What is said about one verb: its arguments, its example, and the same of its subcommands."""
    info = module.VERBS[verb]
    text = f"## holdfast {verb}\n\n{info.summary}.\n"
    below = ""
    if importlib.util.find_spec(info.path) is not None:
        whole: argparse.ArgumentParser = module.build_parser(only=verb)
        (parser,) = (parser for name, _, parser in words_of(whole) if name == verb)
        text += "\n" + table(("argument", "meaning", "default"), option_rows(parser))
        for name, summary, inner in words_of(parser):
            below += f"\n### holdfast {verb} {name}\n\n{summary}.\n"
            below += "\n" + table(("argument", "meaning", "default"), option_rows(inner))
    return text + f"\nExample: `{info.example}`\n" + below


def cli() -> str | None:
    """The text of cli.md; None while there is no command line."""
    if importlib.util.find_spec("holdfast.app") is None or importlib.util.find_spec("holdfast.app.cli") is None:
        return None
    module: Any = importlib.import_module("holdfast.app.cli")
    parts = [
        NOTE + "# Command line\n\nThe verbs and their arguments, as `holdfast VERB --help` says them. "
        "What happens on an error, with the exit status of each: [errors](errors.md).\n"
    ]
    first: dict[Any, str] = {}
    for verb, info in module.VERBS.items():
        same = first.setdefault(getattr(importlib.import_module(info.path), f"{verb}_run"), verb)
        if same == verb:
            parts.append(verb_section(module, verb))
        else:
            parts.append(f"## holdfast {verb}\n\nAnother name of `holdfast {same}`.\n")
    return "\n".join(parts)


def pages() -> dict[Path, str]:
    """Path → text of every generated page."""
    made = {"events.md": events(), "errors.md": errors_page(), "script.md": script_page(), "cli.md": cli()}
    return {REFERENCE / name: re.sub(r"\n{3,}", "\n\n", text) for name, text in made.items() if text is not None}


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description="generate docs/reference from the code")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
    check = parser.parse_args().check
    stale = []
    for path, text in pages().items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"out of date: {names}. Type `make docs` and commit the result.")


if __name__ == "__main__":
    main()
