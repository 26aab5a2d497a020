"""Faults of the oracle: their names, wrong bodies, and commands with side effects that can be undone."""

from __future__ import annotations

import ast
import base64
import difflib
import random
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.errors import UsageError
from holdfast.proof.rebuild.strip import STUB, Block
from holdfast.proof.tampers import TAMPERS

WORKER_FAULTS = ("early_done", "tamper", "stuck", "wrong_body", "regress", "conflict", "wander", "anxious")
JUDGE_FAULTS = ("lenient", "silent", "contradicts", "crash")

EXAMPLE = "--fault early_done:0.3"

FAULT_PREFIX = ": fault; "
"""Start of a command that a fault runs besides the task."""

UNDO_PREFIX = ": undo; "
"""Start of a command that undoes a fault's side effects."""

_PATHS = " # paths: "

_SWAPS = {" == ": " != ", " != ": " == ", " < ": " >= ", " > ": " <= ", " + ": " - ", " and ": " or ", " or ": " and "}
_WORDS = {"True": "False", "False": "True", "not ": "", " is None": " is not None", " in ": " not in "}


class Fault(msgspec.Struct, frozen=True):
    """Fault with its rate at the first attempt. `name` is that of a tamper, empty for any."""

    kind: str
    rate: float
    name: str = ""

    @property
    def role(self) -> Literal["worker", "judge"]:
        """Role that has this fault."""
        return "judge" if self.kind in JUDGE_FAULTS else "worker"


def parse_faults(words: Sequence[str]) -> tuple[Fault, ...]:
    """Parse `CLASS[:RATE]` and `tamper.NAME[:RATE]`. Raises `UsageError` with a valid example."""
    return tuple(_fault(word) for word in words)


def _fault(word: str) -> Fault:
    kind, colon, rate_text = word.partition(":")
    kind, dot, name = kind.partition(".")
    known = (*WORKER_FAULTS, *JUDGE_FAULTS)
    if kind not in known or (dot and kind != "tamper"):
        near = difflib.get_close_matches(kind, known, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"--fault {word}: {hint}there are {', '.join(known)}; a right example is {EXAMPLE}")
    if dot and name not in TAMPERS:
        near = difflib.get_close_matches(name, TAMPERS, 3)
        raise UsageError(
            f"--fault {word}: there is no tamper {name!r}; {'near are ' + ', '.join(near) if near else 'one is'} "
            "--fault tamper.delete_test"
        )
    try:
        rate = float(rate_text) if colon else 1.0
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate <= 1.0:
        raise UsageError(f"--fault {word}: the rate is a number from 0 to 1; a right example is {EXAMPLE}")
    return Fault(kind, rate, name)


# --- wrong bodies ---


def nothing_done(block: Block) -> str:
    """Return the body that returns None."""
    return block.stub.replace(STUB, "return None")


def mutants(block: Block) -> tuple[str, ...]:
    """Return wrong variants of the true body that parse; the last one always returns None."""
    found = [text for text in _changed(block) if text not in (block.true, block.stub) and _parses(text)]
    return (*dict.fromkeys(found), nothing_done(block))


def one_mutant(block: Block, chooser: random.Random) -> str:
    """Pick a random one of these variants."""
    return chooser.choice(mutants(block))


def _changed(block: Block) -> Iterator[str]:
    lines = block.true.split("\n")
    kept = set(block.stub.split("\n"))
    for number, line in enumerate(lines):
        # The stub keeps signatures, decorators, and docstrings; only removed code is mutated.
        if line in kept or not line.strip() or line.lstrip().startswith("#"):
            continue
        for old, new in (_SWAPS | _WORDS).items():
            if old in line:
                yield "\n".join([*lines[:number], line.replace(old, new, 1), *lines[number + 1 :]])
        head, word, _ = line.partition("return ")
        if word and not head.strip():
            yield "\n".join([*lines[:number], f"{head}return None", *lines[number + 1 :]])


def _parses(text: str) -> bool:
    try:
        ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return False
    return True


# --- commands ---


def script_of(parts: Mapping[str, str]) -> str:
    """Build one command that runs all of these and names the paths that they change."""
    return (" && ".join(parts.values()) or "true") + _PATHS + shlex.join(parts)


def paths_of(command: str) -> list[str]:
    """Return the paths that such a command changes."""
    return shlex.split(command.rpartition(_PATHS)[2]) if _PATHS in command else []


def put_command(path: str, content: bytes | None, mode: str) -> str:
    """Build the command that writes this content to a path, or deletes the path for None."""
    name = shlex.quote(path)
    if content is None:
        return f"rm -rf {name}"
    folder = shlex.quote(path.rpartition("/")[0] or ".")
    if mode == "120000":
        return f"rm -rf {name} && mkdir -p {folder} && ln -s {shlex.quote(content.decode())} {name}"
    text = base64.b64encode(content).decode()
    allowed = "755" if mode == "100755" else "644"
    return f"mkdir -p {folder} && rm -rf {name} && echo {text} | base64 -d > {name} && chmod {allowed} {name}"
