"""Weak hands, taint and the way outside, wherever a session is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app.screen.inbox import details
from holdfast.app.screen.panel import Panel
from holdfast.clock import SystemClock
from holdfast.facts.hands import (
    EgressFailed,
    EgressRecorded,
    EgressSeen,
    EnvironmentRecorded,
    HandsProvisioned,
    HandsRestored,
    SessionTainted,
)
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import Destination, EgressPolicy, SecretUse, SessionUpdated
from holdfast.facts.tool import ToolResult
from holdfast.service.access_lines import outside_details, outside_lines, warnings
from holdfast.service.event_lines import describe
from tests.app.terminal import Type, bash, script, turn
from tests.app.test_inbox import NOW_US, row, shown
from tests.session.story import Story
from tests.session.test_taint import POLICY, asked, held, ran, seen
from tests.session.test_taint import told as session

MADE = HandsProvisioned(
    hands_id="hnd_1",
    provider="landlock",
    host_id="h",
    boot_id="b",
    address="",
    workspace="/w",
    root="/w",
    uid=1,
    isolation={"files": "soft"},
    weak="no namespaces: other processes can be seen",
)
HARD = msgspec.structs.replace(MADE, provider="bubblewrap", isolation={"files": "hard"}, weak="")
OPEN = msgspec.structs.replace(MADE, provider="unsandboxed", isolation={"files": "none"}, weak="")


def line(fact: Any) -> str:
    return describe(Story().tell(fact).events[-1])


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (HARD, "hands ready (bubblewrap)"),
        (MADE, "hands ready (landlock): WEAK ISOLATION: no namespaces: other processes can be seen"),
        (OPEN, "hands ready (unsandboxed): NOT SANDBOXED"),
        (EgressFailed(reason="no\nproxy"), "no way outside: no proxy"),
        (SessionTainted(reason="it has read from docs.test"), "tainted: it has read from docs.test"),
        (
            EgressRecorded(
                through=9,
                seen=(
                    EgressSeen("allowed", "a.test", 443, count=4),
                    *(EgressSeen("refused", f"{name}.test", 8443) for name in "bcde"),
                    EgressSeen("held", "api.test", 443, secret="KEY"),
                ),
                dropped=7,
            ),
            "outside: 1 held (api.test), 4 refused (b.test:8443, c.test:8443, d.test:8443 and 1 more), "
            "4 allowed (a.test), 7 more",
        ),
        (EnvironmentRecorded(digest="0123456789abcdef", cached=True), "environment 0123456789ab found as it was made"),
        (EnvironmentRecorded(digest="0", duration_ms=2_500, packages=("p",)), "made in 2.5 s, 1 packages"),
        (EnvironmentRecorded(digest="0", error="npm said no"), "no environment: npm said no"),
        (
            HandsRestored(hands_id="h", snapshot="s", through_seq=7, content="c", unkept=("1.0",)),
            "new hands have the files as after event 7; 1 call after that are gone",
        ),
        (ToolResult(call_id="1.0", outcome="ok", content="x", untrusted=True), "ok, from outside"),
        (SessionUpdated(egress=POLICY), "may talk to: docs.test; api.test with the secret KEY"),
        (SessionUpdated(egress=EgressPolicy()), "may talk to: nothing is allowed"),
    ],
)
def test_lines(fact: Any, words: str) -> None:
    if isinstance(fact, ToolResult):
        story = Story().shift()
        (call_id,) = story.answer("", ("bash", {"command": "x"}))
        fact = msgspec.structs.replace(fact, call_id=call_id)
    assert words in line(fact)


def test_show_says_what_was_let_through_and_why_it_is_tainted() -> None:
    story = held(session())
    lines = outside_lines(story.state())
    assert lines["outside"] == "docs.test; api.test with the secret KEY; api.test with the secret OTHER"
    assert lines["requests"] == "1 allowed, 0 refused, 1 held; 0 bytes sent, 0 received"
    assert lines["tainted"].startswith("yes: it has read from docs.test (event ")
    assert lines["tainted"].endswith("strangers may have written, holds private data and may talk outside")
    asked(story).tell(ApprovalDecided(item_id="itm_1", verdict="approve"))
    assert outside_lines(story.state())["allowed"] == "the use of KEY"
    told: Any = outside_details(story.state())
    assert told["egress"]["held"] == 1
    assert told["egress"]["granted"] == ["KEY"]
    assert told["taint"]["tainted"] is True
    assert told["weak"] is True  # these hands say nothing of their walls


@pytest.mark.parametrize(("hands", "words"), [(MADE, ["WEAK ISOLATION"]), (OPEN, ["NOT SANDBOXED"]), (HARD, [])])
def test_the_live_panel_warns(hands: HandsProvisioned, words: list[str]) -> None:
    story = session().tell(hands)
    assert warnings(story.state()) == words
    panel = Panel(SystemClock(), len)
    panel.begin(story.state(), [], 120)
    rows = " ".join(text for each in panel.rows(120) for text, _ in each.spans)
    assert all(word in rows for word in words)
    assert ("tainted" in rows, "refused" in rows) == (False, False)
    ran(story, seen(), seen("refused", "evil.test", reason="no"))
    panel.begin(story.state(), [], 120)
    rows = " ".join(text for each in panel.rows(120) for text, _ in each.spans)
    assert "tainted" in rows
    assert "outside 1 refused, 0 held" in rows


def test_the_inbox_says_how_long_and_what_the_session_is() -> None:
    item = shown(
        "s", kind="egress", title="may the secret KEY be used?", action="use secret KEY for POST https://a.test/"
    )
    lines = details(item, row("s", "parked", "person", marks="tainted weak"), NOW_US)
    text = "\n".join(lines)
    assert "until what the session may talk to changes; --uses 1 or --for 2h bounds it" in text
    assert "it has read what strangers may have written and ITS HANDS ARE WEAKLY ISOLATED" in text
    other = details(shown("s"), row("s", "parked", "person"), NOW_US)
    assert "bounds it" not in "\n".join(other)


def test_a_run_without_a_sandbox_is_loud_in_every_view(type: Type, holdfast_home: Path) -> None:
    script(Path("m.json"), bash("true"), turn(text="ok"))
    ran_ = type("run", "x", "--model", "scripted:m.json", "--session-id", "loud", "--no-sandbox").went()
    assert "NOT SANDBOXED" in ran_.err
    assert "[WEAK] x" in type("ps").went().out
    assert "NOT SANDBOXED" in type("show", "loud").went().out
    assert "NOT SANDBOXED" in type("logs", "loud").went().out
    (told,) = type("ps", "--json").went().lines
    assert told["marks"] == ["unpriced", "weak"]


def test_policies_in_a_line() -> None:
    many = EgressPolicy(
        allow=tuple(Destination(f"h{n}.test") for n in range(5)),
        registries=True,
        secrets=(SecretUse("KEY", ("api.test",)),),
    )
    told = outside_lines(session(many).state())["outside"]
    assert told == "h0.test; h1.test; h2.test; 2 more hosts; package registries; api.test with the secret KEY"


def test_without_a_sandbox_no_policy_bounds_anything() -> None:
    state = session().state()
    assert state.created is not None
    workspace = msgspec.structs.replace(state.created.workspace, isolation="none")
    state.created = msgspec.structs.replace(state.created, workspace=workspace)
    assert outside_lines(state)["outside"].startswith("whatever its user can reach")
