"""Bodies that are wrong on purpose: small changes of a true one, as a hurried worker would leave them."""

from __future__ import annotations

import ast
import random
import textwrap
from collections.abc import Iterator

from holdfast.proof.rebuild.strip import STUB, Block

_SWAPS = {" == ": " != ", " != ": " == ", " < ": " >= ", " > ": " <= ", " + ": " - ", " and ": " or ", " or ": " and "}
_WORDS = {"True": "False", "False": "True", "not ": "", " is None": " is not None", " in ": " not in "}


def nothing_done(block: Block) -> str:
    """The body that does nothing and says nothing."""
    return block.stub.replace(STUB, "return None")


def mutants(block: Block) -> tuple[str, ...]:
    """Texts that could stand for the true one, each of which parses; the last always does nothing at all."""
    found = [text for text in _changed(block) if text not in (block.true, block.stub) and _parses(text)]
    return (*dict.fromkeys(found), nothing_done(block))


def one_mutant(block: Block, chooser: random.Random) -> str:
    """One of them."""
    return chooser.choice(mutants(block))


def _changed(block: Block) -> Iterator[str]:
    lines = block.true.split("\n")
    kept = set(block.stub.split("\n"))
    for number, line in enumerate(lines):
        # Signatures, decorators and docstrings stand in the stub too: only what was taken out is changed.
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
