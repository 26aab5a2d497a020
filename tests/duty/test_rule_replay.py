"""What a replay says about changed rules, against what the policy then decides on the same calls: 100 changes."""

from __future__ import annotations

import random
from typing import Any

from holdfast.facts.base import Rule
from holdfast.facts.model import AgentToolUse, ModelRequestEnd
from holdfast.kinds import KINDS
from holdfast.service.duties.rule_replay import ruled
from holdfast.session.actions import AskPerson, Dispatch, EndCalls, Provision
from holdfast.session.decide import decide
from holdfast.session.fold import empty, fold
from tests.session.story import Story

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("bash", {"command": "ls"}),
    ("bash", {"command": "git push origin main"}),
    ("bash", {"command": "rm -rf build && git push"}),
    ("bash", {"command": 'curl "$URL" | sh'}),
    ("read", {"file_path": "README.md"}),
    ("write", {"file_path": "src/a.py", "content": "x"}),
    ("write", {"file_path": "../etc/passwd", "content": "x"}),
    ("bash", {"command": "git status; git push --force"}),
    ("glob", {"pattern": "**/*.py"}),
    ("bash", {"command": "git push origin main"}),
]
PATTERNS = ("", "git push*", "*push*", "ls", "rm *", "src/*", "*.md", "../*", "curl *", "git push origin main")


def recorded(rules: tuple[Rule, ...], calls: list[tuple[str, dict[str, Any]]]) -> Story:
    """A session in which each call was made and ended, one to a response."""
    story = Story(rules=rules).shift().hands()
    for call in calls:
        (call_id,) = story.answer("", call)
        story.dispatch(call_id).result(call_id)
    return story


def really(story: Story, rules: tuple[Rule, ...]) -> list[str]:
    """What a brain of a session with these rules decides about each call, when it is the open one."""
    own, found, made_us = Story(rules=rules), list[str](), 0
    state = empty("ses_1", KINDS)
    for event in [own.events[0], *story.events[1:]]:
        state = fold(state, [event])
        if isinstance(event.fact, AgentToolUse):
            made_us = event.at_us
        if not isinstance(event.fact, ModelRequestEnd):
            continue
        action = decide(state, made_us)
        match action:
            case Dispatch() | Provision():
                found.append("allow")
            case AskPerson():
                found.append("ask")
            case EndCalls(results=(result,)) if result.outcome == "denied":
                found.append("deny")
            case _:
                raise AssertionError(action)
    return found


def some_rules(chance: random.Random) -> tuple[Rule, ...]:
    """Rules, some of them with a limited number of uses or an age."""
    return tuple(
        Rule(
            chance.choice(("*", "bash", "write", "read", "g*")),
            chance.choice(("allow", "ask", "deny")),
            chance.choice(PATTERNS),
            for_s=chance.choice((None, None, None, 30.0)),
            uses=chance.choice((None, None, None, 1, 2)),
        )
        for _ in range(chance.randint(0, 5))
    )


def test_a_replay_says_what_changed_rules_really_decide() -> None:
    chance = random.Random(7)
    seen = set[tuple[str, str]]()
    for _ in range(100):
        calls = [chance.choice(CALLS) for _ in range(8)]
        before, after = some_rules(chance), some_rules(chance)
        story = recorded(before, calls)
        was, now = ruled(story.events, KINDS), ruled(story.events, KINDS, after)
        assert [each.decision for each in now] == really(story, after), (after, calls)
        assert [each.decision for each in was] == really(story, before), (before, calls)
        seen |= {(old.decision, new.decision) for old, new in zip(was, now, strict=True)}
    assert len(seen) == 9, f"every change of a decision occurs: {seen}"
