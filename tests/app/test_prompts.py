"""Prompts of one's own: what is taken, what is refused, and that nothing is started then."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from holdfast.app.settings.prompts import BYTES_MAX, NAMES, load_prompt, load_prompts
from holdfast.errors import UsageError
from tests.app.terminal import Type, kept, script, turn
from tests.support.trusted import trust


def folder(at: Path, **texts: str | bytes) -> Path:
    """A folder with these prompts."""
    at.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (at / f"{name}.md").write_bytes(text if isinstance(text, bytes) else text.encode())
    return at


def test_all_prompts_of_the_package_are_there_and_known_by_their_content() -> None:
    prompts = load_prompts("")
    assert set(prompts.texts) == set(NAMES) == set(prompts.digests)
    for name in NAMES:
        assert prompts.digests[name] == hashlib.sha256(prompts.texts[name].encode()).hexdigest()
        assert 300 < len(prompts.texts[name]) < 4_000


def test_a_folder_replaces_what_it_has_and_leaves_the_rest(tmp_path: Path) -> None:
    own = folder(tmp_path / "p", compaction="Be short.\n", README="about these")
    prompts = load_prompts(str(own))
    assert prompts.texts["compaction"] == "Be short.\n"
    assert prompts.digests["compaction"] == hashlib.sha256(b"Be short.\n").hexdigest()
    assert (prompts.texts["worker"], prompts.digests["worker"]) == load_prompt("worker")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"compactoin": "x"}, ("compactoin.md", "did you mean 'compaction'?")),
        ({"worker": b"caf\xe9"}, ("worker.md", "not UTF-8", "byte 4")),
        ({"worker": " \n"}, ("worker.md", "is empty")),
        ({"worker": b"a\0b"}, ("worker.md", "zero byte")),
        ({"handoff": "x" * (BYTES_MAX + 1)}, ("handoff.md", "longer than")),
        ({}, ("has no prompt in it", "worker.md")),
    ],
    ids=["unknown name", "not UTF-8", "empty", "binary", "too long", "nothing"],
)
def test_a_prompt_that_does_not_parse_is_refused_in_words(
    tmp_path: Path, texts: dict[str, str | bytes], words: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as refused:
        load_prompts(str(folder(tmp_path / "p", **texts)))
    for word in words:
        assert word in str(refused.value)


def test_a_prompt_that_the_agent_could_write_is_refused(tmp_path: Path) -> None:
    inside = folder(tmp_path / "w" / "prompts", worker="obey")
    with pytest.raises(UsageError, match="inside the workspace"):
        load_prompts(str(inside), str(tmp_path / "w"))
    outside = folder(tmp_path / "p")
    (outside / "worker.md").symlink_to(inside / "worker.md")
    with pytest.raises(UsageError, match="inside the workspace"):
        load_prompts(str(outside), str(tmp_path / "w"))
    with pytest.raises(UsageError, match="symbolic link is not followed"):
        load_prompts(str(outside), str(tmp_path / "elsewhere"))


def test_own_prompts_reach_the_log_by_their_digests(type: Type, holdfast_home: Path, tmp_path: Path) -> None:
    script(Path("m.json"), turn(text="ok"))
    own = folder(tmp_path / "p", worker="Work.")
    type("run", "x", "--model", "scripted:m.json", "--session-id", "one", "--prompts", own).went()
    said = type("export", "one").out
    assert hashlib.sha256(b"Work.").hexdigest() in said
    assert load_prompt("handoff")[1] in said


def test_a_bad_prompt_starts_nothing_and_leaves_a_session_as_it_is(
    type: Type, holdfast_home: Path, tmp_path: Path
) -> None:
    script(Path("m.json"), turn(text="ok"))
    bad = folder(tmp_path / "p", worker=b"\xff")
    type("run", "x", "--model", "scripted:m.json", "--session-id", "one").went()
    before = kept(holdfast_home)
    for words in (("run", "y", "--model", "scripted:m.json"), ("wake", "one")):
        said = type(*words, "--prompts", bad)
        assert said.code == 2
        assert "worker.md is not UTF-8" in said.err
        assert "Traceback" not in said.err
        assert kept(holdfast_home) == before


def test_a_repository_may_name_prompts_beside_its_settings_but_not_inside_a_workspace(
    type: Type, holdfast_home: Path
) -> None:
    script(Path("m.json"), turn(text="ok"))
    folder(Path("prompts"), worker="Ours.")
    Path("holdfast.toml").write_text('prompts = "prompts"\n')
    trust()
    run = ("run", "x", "--model", "scripted:m.json")
    type(*run, "--session-id", "apart").went()
    assert hashlib.sha256(b"Ours.").hexdigest() in type("export", "apart").out
    said = type(*run, "--workspace", ".", "--session-id", "within")
    assert (said.code, "inside the workspace" in said.err) == (2, True)
    Path("holdfast.toml").write_text('prompts = "../elsewhere"\n')
    said = type(*run)
    assert (said.code, "lies outside the folder of that file" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("judge", "Assume that each criterion is not met until you have seen that it is."),
        ("judge", "For a criterion about text or structure, find the line that meets it and quote it."),
        ("judge", "A behavior that you did not run is a fail."),
        ("judge", "Then try once to break it"),
        ("judge", "Look twice at the changes that are listed as unrequested or suspicious."),
        ("judge", "A criterion that passes has no `issue`."),
        ("planner", "first what everything else imports, then what is likeliest to fail"),
        ("planner", "Give a task 1 to 4 criteria and about six files at most."),
        ("planner", "A task never asks for stubs"),
        ("planner", "which check fails now and why"),
        ("planner", "After three refused plans the harness plans by itself."),
        ("mission_worker", "your task shows the failing output"),
        ("mission_worker", "Reproduce what fails now"),
        ("mission_worker", "then test the edges: empty, large, and wrong input"),
        ("mission_worker", "say so in `deviations` of `hand_in`"),
        ("initializer", "hand in the test file in `files`"),
        ("initializer", "Nobody may change it from then on."),
        ("initializer", "at the beginning it has to fail, for the reason that you mean"),
        ("initializer", "A check that needs the network, or a package that is not installed here, cannot pass here."),
    ],
)
def test_a_prompt_says_its_rules(name: str, rule: str) -> None:
    assert rule in " ".join(load_prompt(name)[0].split())
