"""What nobody asked for: new public functions, options and files that neither contract, task nor tests name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from holdfast.facts.contract import Contract
from holdfast.kinds.mission.ratchet.additions import last_name, parsed
from holdfast.kinds.mission.ratchet.pristine import is_test_file

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OPTION = re.compile(r"--[a-z][a-z0-9-]*")

_SUPPRESSED = re.compile(rb"#\s*(?:noqa|type:\s*ignore|pragma:\s*no cover|pylint:\s*disable|nosec|pyright:\s*ignore)")

_NOT_PRODUCT = frozenset({"tests", "test", "docs", "doc", "examples", "benchmarks", "testing"})


class Asked:
    """The words that somebody used for what is wanted: the contract, the task, and the tests of the base."""

    def __init__(self, contract: Contract, task: str, before: Mapping[str, bytes]) -> None:
        texts = [contract.goal, task]
        for item in contract.items:
            texts += [item.id, item.description, item.category, *item.steps, *item.paths]
            for criterion in item.criteria:
                texts += [criterion.id, criterion.text]
                if criterion.check is not None:
                    texts += [criterion.check.command, *criterion.check.tests]
        self._text = "\n".join(texts)
        self._words = {word.lower() for word in _WORD.findall(self._text)}
        self._before = before
        self._tested: set[str] | None = None

    def names(self, name: str) -> bool:
        """Whether somebody used this name."""
        return name.lower() in self._words or name in self._in_tests()

    def says(self, text: str) -> bool:
        """Whether this very text occurs in what is wanted: an option, a path."""
        return text in self._text or text in "\n".join(self._in_tests())

    def _in_tests(self) -> set[str]:
        if self._tested is None:
            self._tested = {
                word
                for path, content in self._before.items()
                if is_test_file(path)
                for word in (*_WORD.findall(content.decode("utf-8", "replace")),)
            }
            self._tested |= {
                option
                for path, content in self._before.items()
                if is_test_file(path)
                for option in _OPTION.findall(content.decode("utf-8", "replace"))
            }
        return self._tested


def unasked(path: str, old: bytes | None, new: bytes | None, asked: Asked) -> list[str]:
    """What is new in a file of the product that nobody named, in words."""
    if new is None or is_test_file(path) or _NOT_PRODUCT & set(path.split("/")[:-1]):
        return []
    found = []
    if old is None and not _is_named_path(path, asked):
        found.append(f"{path}: a new file")
    if path.endswith(".py"):
        after, before = parsed(new), parsed(old) if old is not None else None
        if after is not None:
            known = set(_public(before)) if before is not None else set()
            found += [
                f"{path}: a new {kind} {name}"
                for kind, name in dict.fromkeys(_public(after))
                if (kind, name) not in known and not (asked.says(name) if name.startswith("-") else asked.names(name))
            ]
        more = len(_SUPPRESSED.findall(new)) - len(_SUPPRESSED.findall(old or b""))
        if more > 0:
            found.append(f"{path}: {more} more places that checkers are told to pass over")
    return found


def _is_named_path(path: str, asked: Asked) -> bool:
    name = path.rsplit("/", 1)[-1]
    return asked.says(path) or asked.says(name) or asked.names(name.rsplit(".", 1)[0]) or name == "__init__.py"


def _public(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield "function", node.name
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield "class", node.name
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and last_name(each.func) in ("add_argument", "option", "Option", "add_option"):
            for argument in each.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield from (("option", name) for name in _OPTION.findall(argument.value))
