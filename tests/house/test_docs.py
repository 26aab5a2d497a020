"""What the documents promise runs.

- A ```python block is run as a program in an empty folder and must end with 0.
- A ```sh block that has a line beginning `$ holdfast` is run line by line in one empty folder with a
  home of its own. A line may end with `# exit N` when N is not 0. The lines below a command are its
  output: each must be found in it, in that order; `…` in a line stands for anything.
- `<!-- not run: why -->` right above a block leaves it out. The reason is printed.

Other blocks are not run. docs/reference is made by a script and compared with what it would make.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.app.cli import VERBS
from holdfast.facts.union import FACT_TYPES
from tests.house.source import PACKAGE, ROOT, none_of, python_files, short, tracked

BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>.+?) -->\n)?^```(?P<kind>python|sh)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One example of a document."""

    place: str
    kind: str
    body: str
    why_not: str


def blocks_of(text: str, name: str) -> list[Block]:
    """The examples in the text of a document."""
    found = []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("body"))
        if match["kind"] == "python" or re.search(r"^\$ holdfast\b", match["body"], re.MULTILINE):
            found.append(Block(f"{name}:{line}", match["kind"], match["body"], match["why"] or ""))
    return found


def blocks() -> list[Block]:
    """The examples of all hand-written documents."""
    pages = [
        file for file in tracked() if file.suffix == ".md" and not file.is_relative_to(ROOT / "docs" / "reference")
    ]
    pages = [file for file in pages if file.parent == ROOT or file.is_relative_to(ROOT / "docs")]
    return [block for page in pages for block in blocks_of(page.read_text(), short(page))]


def commands_of(body: str) -> list[tuple[str, int, list[str]]]:
    """The commands of a shell block: what is typed, the exit status, the lines of output shown."""
    found: list[tuple[str, int, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            typed, _, status = line[2:].partition("# exit ")
            found.append((typed.strip(), int(status or 0), []))
        elif found and found[-1][0].endswith("\\"):
            typed, status_0, shown = found.pop()
            found.append((f"{typed}\n{line}", status_0, shown))
        elif found and line.strip():
            found[-1][2].append(line.strip())
    return found


def shown_in(shown: list[str], output: str) -> bool:
    """Whether the lines shown are in the output, in this order."""
    pattern = ".*".join(".*".join(re.escape(part) for part in line.split("…")) for line in shown)
    return re.search(pattern, output, re.DOTALL) is not None


def run_block(block: Block, folder: Path) -> None:
    """Run one example; fail with what it said."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    commands = [(f"python - <<'END'\n{block.body}\nEND", 0, [])] if block.kind == "python" else commands_of(block.body)
    for typed, status, shown in commands:
        done = subprocess.run(
            ["sh", "-c", typed],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == status, f"{block.place}: {typed}\nended with {done.returncode}:\n{done.stdout}"
        assert shown_in(shown, done.stdout), f"{block.place}: {typed}\nshould show {shown}, said:\n{done.stdout}"


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in blocks()])
def test_the_example_runs(block: Block, tmp_path: Path) -> None:
    if block.why_not:
        pytest.skip(f"{block.place} is not run: {block.why_not}")
    folder = tmp_path / "work"
    folder.mkdir()
    run_block(block, folder)


def test_an_example_that_fails_or_lies_is_seen(tmp_path: Path) -> None:
    good, bad, lie, left_out = blocks_of(
        "```sh\n$ holdfast --version\nholdfast …\n```\n"
        "```sh\n$ holdfast no-such-verb\n```\n"
        "```sh\n$ holdfast --version\nholdfast of another name\n```\n"
        "```text\n$ holdfast is only shown here\n```\n"
        "<!-- not run: it needs a key -->\n```sh\n$ holdfast run x\n```\n",
        "page",
    )
    run_block(good, tmp_path)
    with pytest.raises(AssertionError, match="ended with 2"):
        run_block(bad, tmp_path)
    with pytest.raises(AssertionError, match="should show"):
        run_block(lie, tmp_path)
    assert left_out.why_not == "it needs a key"
    (program,) = blocks_of("```python\nraise SystemExit(3)\n```\n", "page")
    with pytest.raises(AssertionError, match="ended with 3"):
        run_block(program, tmp_path)


def test_the_reference_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_event_error_and_verb_is_in_the_reference() -> None:
    reference = ROOT / "docs" / "reference"
    events, failures, cli = ((reference / f"{name}.md").read_text() for name in ("events", "errors", "cli"))
    assert [name for name in FACT_TYPES if f"\n### `{name}`\n" not in events] == []
    classes = [name for name, thing in vars(errors).items() if isinstance(thing, type)]
    assert [name for name in classes if f"\n## {name}\n" not in failures] == []
    assert [name for name in VERBS if f"\n## holdfast {name}\n" not in cli] == []


def test_no_error_class_hides_outside_its_module() -> None:
    """An error of ours that another module makes would be missing in the reference."""
    ours = "|".join(name for name, thing in vars(errors).items() if isinstance(thing, type))
    derived = re.compile(rf"^class (\w+)\((?:errors\.)?(?:{ours})\b", re.MULTILINE)
    wrong = [
        f"{short(file)}: {name}"
        for file in python_files("src")
        if file.name != "errors.py"
        for name in derived.findall(file.read_text())
    ]
    none_of(wrong)


ROOMS = (
    "app|brain|egress|environment|facts|fleet|hands|kinds|log|model|notify|proof|repo|service|session|sim|testing|vault"
)


def test_files_that_documents_name_are_there() -> None:
    wrong = [
        f"{short(page)}: {named}"
        for page in tracked()
        if page.suffix == ".md" and page.name != "CHANGELOG.md"
        for named in re.findall(rf"`((?:{ROOMS})/[\w/*.]+)`", page.read_text())
        if not list(PACKAGE.glob(named.rstrip("/")))
    ]
    none_of(wrong)


def test_links_between_documents_lead_somewhere() -> None:
    wrong = [
        f"{short(page)}: {target}"
        for page in tracked()
        if page.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    none_of(wrong)
