"""The file tools: what they say, and when they refuse (S18)."""

from __future__ import annotations

import hashlib

import msgspec

from holdfast.testing.hands.rig import Check, Rig, run, tool


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def a_file_must_have_been_read_before_it_is_changed(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    path = f"{hands.identity.root}/a/b.txt"
    made = await run(hands, "1.0", tool("write", file_path="a/b.txt", content="one\ntwo\n"))
    assert made.ok, made
    assert [(seen.path, seen.digest) for seen in made.files] == [(path, _sha(b"one\ntwo\n"))]
    blind = await run(hands, "1.1", tool("write", file_path=path, content="lost"))
    assert not blind.ok
    assert "read it first" in blind.output, blind
    stale = await run(hands, "1.2", tool("edit", {path: _sha(b"old")}, file_path=path, old_string="o", new_string="0"))
    assert not stale.ok
    assert "has changed since it was last read" in stale.output, stale
    read = await run(hands, "1.3", tool("read", file_path="a/b.txt"))
    assert read.output == "     1\tone\n     2\ttwo", read
    seen = {item.path: item.digest for item in read.files}
    edited = await run(hands, "1.4", tool("edit", seen, file_path=path, old_string="two", new_string="2"))
    assert edited.ok, edited
    assert edited.files[0].digest == _sha(b"one\n2\n")
    again = await run(hands, "1.5", tool("write", {path: _sha(b"one\n2\n")}, file_path="a/../a/b.txt", content="x"))
    assert again.ok, again
    assert again.files[0].path == path


async def an_edit_names_one_place(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    made = await run(hands, "1.0", tool("write", file_path="f", content="a b a"))
    seen = {item.path: item.digest for item in made.files}
    twice = await run(hands, "1.1", tool("edit", seen, file_path="f", old_string="a", new_string="c"))
    assert not twice.ok
    assert "occurs 2 times" in twice.output
    never = await run(hands, "1.2", tool("edit", seen, file_path="f", old_string="z", new_string="c"))
    assert not never.ok
    assert "does not occur" in never.output
    absent = await run(hands, "1.3", tool("edit", file_path="g", old_string="z", new_string="c"))
    assert not absent.ok
    assert "does not exist" in absent.output
    whole = await run(hands, "1.4", tool("edit", seen, file_path="f", old_string="a", new_string="c", replace_all=True))
    assert whole.ok
    assert (await run(hands, "1.5", tool("read", file_path="f"))).output == "     1\tc b c"


async def files_are_found_by_name_and_by_content(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    for number, name in enumerate(("src/a.py", "src/deep/b.py", "notes.md")):
        await run(hands, f"1.{number}", tool("write", file_path=name, content=f"line\nneedle {number}\n"))
    found = await run(hands, "2.0", tool("glob", pattern="src/**/*.py"))
    assert sorted(found.output.split("\n")) == ["src/a.py", "src/deep/b.py"], found
    newest = await run(hands, "2.1", tool("glob", pattern="**/*.{py,md}"))
    assert newest.output.split("\n") == ["notes.md", "src/deep/b.py", "src/a.py"], newest
    lines = await run(hands, "2.2", tool("grep", pattern=r"needle [01]$", path="src"))
    assert sorted(lines.output.split("\n")) == ["src/a.py:2:needle 0", "src/deep/b.py:2:needle 1"], lines
    nothing = await run(hands, "2.3", tool("grep", pattern="absent"))
    assert (nothing.ok, nothing.output) == (True, "[no line matches]")
    broken = await run(hands, "2.4", tool("grep", pattern="("))
    assert not broken.ok
    assert "not a regular expression" in broken.output


async def a_read_is_bounded_and_says_how_to_go_on(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    text = "".join(f"line {number}\n" for number in range(1, 5001))
    await run(hands, "1.0", tool("write", file_path="long", content=text))
    first = await run(hands, "1.1", msgspec.structs.replace(tool("read", file_path="long"), output_cap=2000))
    assert len(first.output) < 2200
    assert "has 5000 lines" in first.output
    assert "view_range" in first.output
    part = await run(hands, "1.2", tool("read", file_path="long", view_range=[4999, -1]))
    assert part.output == "  4999\tline 4999\n  5000\tline 5000"
    absent = await run(hands, "1.3", tool("read", file_path="nowhere"))
    assert not absent.ok
    assert "no such file" in absent.output


async def reads_may_run_side_by_side(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await run(hands, "1.0", tool("write", file_path="f", content="x"))
    for number in range(8):
        await hands.start(1, f"2.{number}", tool("read", file_path="f"))
    outputs = [(await hands.wait(1, f"2.{number}")).output for number in range(8)]
    assert outputs == ["     1\tx"] * 8


CHECKS: tuple[Check, ...] = (
    a_file_must_have_been_read_before_it_is_changed,
    an_edit_names_one_place,
    files_are_found_by_name_and_by_content,
    a_read_is_bounded_and_says_how_to_go_on,
    reads_may_run_side_by_side,
)
"""All of them, in the order to read them in."""
