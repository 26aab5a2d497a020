"""The demonstration on a real model, once, on purpose: a row for the table in docs/models.md.

    scripts/live.py [--model M] [--base-url URL] [--budget USD] [--library NAME==VERSION]

Without --model, the one that `holdfast doctor` proposes is asked. Exit 5 when there is none, with what to set.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from holdfast.app.available_models import look
from holdfast.app.models import find_model, settled_model
from holdfast.app.settings.config import Settings, load_settings
from holdfast.errors import HoldfastError
from holdfast.facts.base import Usage

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "models.md"

NOTHING = """\
live: no model can be asked from here. Set the key of a provider, for example

    export ANTHROPIC_API_KEY=…        (or OPENAI_API_KEY, or GEMINI_API_KEY)

or start a local server such as Ollama, then type it again. `holdfast doctor` shows what is found."""


def row(result: dict[str, Any], date: str) -> str:
    """One line of the table."""
    tests = result["tests"]
    passed = f"{tests['passed']} passed, {tests['failed'] + tests['errors']} failed"
    cost = "unpriced" if result["cost_usd"] is None else f"${result['cost_usd']:.4f}"
    delivered = "yes" if result["exit_code"] == 0 else f"no ({result['status']})"
    cells = (
        date,
        f"`{result['model']}`",
        result["library"],
        delivered,
        passed,
        str(result["calls"]),
        cost,
        f"{result['wall_s']:.0f} s",
    )
    return f"| {' | '.join(cells)} |\n"


def append(page: Path, line: str) -> None:
    """Add a row to the table, which ends the page."""
    text = page.read_text(encoding="utf-8")
    assert text.rstrip().endswith("|"), f"{page} does not end with its table"
    page.write_text(text.rstrip() + "\n" + line, encoding="utf-8")


def chosen(args: argparse.Namespace) -> list[str]:
    """The flags of the model to ask, empty when there is none."""
    if args.model:
        return ["--model", args.model, *(["--base-url", args.base_url] if args.base_url else [])]
    return shlex.split(anyio.run(look).proposal)


def priced(flags: list[str], settings: Settings) -> bool:
    """Whether a budget can be kept with that model. Raises `HoldfastError` when it cannot be asked."""
    name = settled_model(flags[1], flags[3] if len(flags) > 2 else "")
    return find_model(name, settings).cost_pico(Usage(1)) is not None


def main() -> int:
    """Run it; 0 when the demonstration delivered."""
    parser = argparse.ArgumentParser(description="the demonstration on a real model")
    parser.add_argument("--model", default="", help="provider:name; what doctor proposes when left out")
    parser.add_argument("--base-url", default="", help="the model's server")
    parser.add_argument("--budget", default="5", help="dollars, where the model has a price")
    parser.add_argument("--library", default="", help="another library, NAME==VERSION")
    parser.add_argument("--page", type=Path, default=PAGE, help=argparse.SUPPRESS)
    args = parser.parse_args()
    flags = chosen(args)
    if not flags:
        print(NOTHING, file=sys.stderr)
        return 5
    try:
        if priced(flags, load_settings(Path.cwd(), {})):
            flags += ["--budget", args.budget]
    except HoldfastError as error:
        print(f"live: {error}", file=sys.stderr)
        return error.exit_code
    flags += ["--library", args.library] if args.library else []
    words = [sys.executable, "-m", "holdfast", "demo", "--json", *flags]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    last = done.stdout.splitlines()[-1] if done.stdout.strip() else "{}"
    result = json.loads(last)
    if result.get("type") != "result":
        print(f"live: the demonstration did not come to a result (exit status {done.returncode})", file=sys.stderr)
        return done.returncode or 1
    line = row(result, datetime.now(UTC).strftime("%Y-%m-%d"))
    append(args.page, line)
    print(line, end="")
    return int(result["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
