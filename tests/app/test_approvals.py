"""Approvals from the command line: one decision each, whoever answers, from wherever, whatever died meanwhile (S21)."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from pathlib import Path

import anyio
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import ItemClosed
from holdfast.facts.codec import Draft
from holdfast.facts.people import ApprovalDecided, ApprovalRequested
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.ids import new_event_id, new_worker_id, system_entropy
from holdfast.log.sqlite import SqliteStore
from holdfast.log.worker_locks import Worker
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from tests.app.asking import ASK, asks, comes_to, facts, item_of, kill_all, let_go, processes_of, rests, types
from tests.app.terminal import Type, bash, ended, kept, rows, script, spawn, turn, typed
from tests.support.receiver import Receiver, Reply

COUNTS = "echo ran >> ran; cat input"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model that asks for a command which says what is in a file, and leaves a trace."""
    return script(tmp_path / "m.json", turn(text="I look.", **_call(COUNTS)), turn(text="Done."))


def _call(command: str) -> dict[str, object]:
    return {"tool_calls": [{"name": "bash", "input": {"command": command}}]}


def _folder(home: Path) -> Path:
    (folder,) = (home / "workspaces").iterdir()
    return folder


def test_a_session_that_asks_holds_no_process_and_says_what_to_type(
    type: Type, model: str, holdfast_home: Path
) -> None:
    said = typed("run", "x", "--model", model, "--session-id", "k", "--ask", "bash").went(3)
    item = item_of(said)
    assert f"Answer with `holdfast approve {item}` or `holdfast deny {item}`" in said.err
    let_go(holdfast_home)
    assert not (_folder(holdfast_home) / "ran").exists()
    assert "goes on in the background" in type("approve", item, "--note", "go").went().err
    assert rests().out == "Done.\n"
    assert (_folder(holdfast_home) / "ran").read_text() == "ran\n"
    (decided,) = facts(type, "approval.decided")
    assert (decided["note"], decided["via"], decided["actor"][:5]) == ("go", "cli", "user:")
    assert decided["digest"] == facts(type, "approval.requested")[0]["action_digest"]
    let_go(holdfast_home)
    type("verify").went()


def test_an_answer_after_every_process_was_killed_while_it_asked(
    type: Type, model: str, holdfast_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as ops:
        ops.stalled = True  # so that it is in the middle of telling people when it dies
        _notify(tmp_path, monkeypatch, ops.url)
        running = spawn("run", "x", "--model", model, "--session-id", "k", *ASK, start_new_session=True)
        database = holdfast_home / "holdfast.db"
        while not database.exists() or not rows(database, "select 1 from sqlite_master where name = 'events'"):
            assert running.poll() is None, ended(running)
        comes_to(holdfast_home, "approval.requested")
        assert len(processes_of(holdfast_home)) >= 2, "the brain and its hands"
        running.send_signal(signal.SIGKILL)
        kill_all(holdfast_home)
        ended(running)
    assert processes_of(holdfast_home) == {}
    monkeypatch.delenv("XDG_CONFIG_HOME")
    item = item_of(type)
    typed("approve", item, "--no-wake").went()
    assert not (_folder(holdfast_home) / "ran").exists()
    assert typed("wake", "k").went().out == "Done.\n"
    assert (_folder(holdfast_home) / "ran").read_text() == "ran\n"
    assert types(holdfast_home).count("approval.requested") == 1
    assert types(holdfast_home).count("tool.dispatched") == 1


def test_a_file_that_changes_before_it_is_used_is_asked_about_again(
    type: Type, model: str, holdfast_home: Path
) -> None:
    items = [asks(type, model)]
    folder = _folder(holdfast_home)
    assert "bound to  policy, workspace files\n" in type("inbox", items[0]).went().out
    for content in ("appears", "changes"):
        (folder / "input").write_text(content)
        type("approve", items[-1]).went()
        rests(code=3)
        items.append(item_of(type))
        shown = type("inbox", items[-1]).went().out
        assert f"replaces  {items[-2]}" in shown
        assert f"bound to  policy, {folder}/input, workspace files\n" in shown
        type("approve", items[-2]).refused(2, items[-2], "was superseded", "input has changed")
    assert not (folder / "ran").exists()
    assert "tool.dispatched" not in types(holdfast_home)
    type("approve", items[-1]).went()
    assert rests().out == "Done.\n"
    assert (folder / "ran").read_text() == "ran\n"


def test_what_cannot_be_answered(type: Type, model: str, holdfast_home: Path) -> None:
    item = asks(type, model)
    before = kept(holdfast_home)
    type("approve", "itm_nothing").refused(2, "no inbox item 'itm_nothing'", "holdfast inbox")
    type("deny", "").refused(2, "no inbox item")
    type("inbox", "itm_nothing").refused(2, "no inbox item")
    type("approve", item, "--digest", "0" * 64).refused(2, item, "another action", f"holdfast inbox {item}")
    type("approve", item, "--match", "*").refused(2, "needs a bound")
    type("approve", item, "--budget", "3").refused(2, "not about money", "holdfast budget")
    for words in (("--for", "2x"), ("--for", "-1"), ("--for", "nan"), ("--uses", "0"), ("--uses", "x")):
        type("approve", item, *words).refused(2, words[0])
    assert kept(holdfast_home) == before
    type("deny", item[:9], "--note", "not now", "--no-wake").went()
    before = kept(holdfast_home)
    type("approve", item).refused(2, item, "already denied by", "not now", "nothing was changed")
    type("deny", item).refused(2, item, "already denied by")
    assert kept(holdfast_home) == before
    assert "denied" in type("inbox", item).went().out
    assert type("wake", "k").went().out == "Done.\n"
    assert "not now" in facts(type, "agent.tool_result")[0]["content"]


def test_a_grant_covers_the_same_again_and_no_more(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", *[bash("true")] * 3, bash("true; true"), turn(text="Done."))
    item = asks(type, model)
    said = type("approve", item, "--uses", "1").went()
    assert "also the next 1 of bash like true" in said.out
    rests(code=3)
    assert types(holdfast_home).count("tool.dispatched") == 2
    type("approve", item_of(type), "--for", "2h", "--match", "true*").went()
    assert rests().out == "Done.\n"
    assert types(holdfast_home).count("approval.requested") == 2


def test_the_agents_own_question(type: Type, tmp_path: Path) -> None:
    asked = {"question": "Which one?", "why": "Both fit.", "options": ["left", "right"]}
    model = script(
        tmp_path / "q.json", turn(tool_calls=[{"name": "ask_person", "input": asked}]), turn(text="Then so.")
    )
    item = item_of(type("run", "x", "--model", model, "--session-id", "k", "--no-sandbox").went(3))
    shown = type("inbox", item).went().out
    assert "answer 2  | right" in shown
    assert f"holdfast answer {item} left" in shown
    type("approve", item).refused(2, "left; right", f"holdfast answer {item} left")
    type("answer", item, "right").went()
    assert rests().out == "Then so.\n"
    assert facts(type, "agent.tool_result")[0]["content"] == "right"


@pytest.mark.parametrize("words", [("answer", "SQLite"), ("approve", "--note", "SQLite")])
def test_a_question_is_answered_in_words(type: Type, tmp_path: Path, words: tuple[str, ...]) -> None:
    asked = {"question": "Postgres or SQLite?"}
    model = script(
        tmp_path / "q.json", turn(tool_calls=[{"name": "ask_person", "input": asked}]), turn(text="So be it.")
    )
    said = type("run", "x", "--model", model, "--session-id", "k", "--no-sandbox").went(3)
    item = item_of(said)
    assert f"`holdfast answer {item} 'your words'` or `holdfast deny {item}`" in said.err
    assert f"`holdfast answer {item} 'your words'` answers it" in type("inbox", "--plain").out
    for empty in (("approve", item), ("approve", item, "--note", " "), ("answer", item, "")):
        type(*empty).refused(2, "needs an answer in words", "nothing was changed")
    type(words[0], item, *words[1:], "--no-wake").went()
    type("wake", "k").went()
    assert facts(type, "agent.tool_result")[0]["content"] == "SQLite"


def test_only_a_question_is_answered_in_words(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", bash("true"), turn(text="Done."))
    item = item_of(type("run", "x", "--model", model, "--session-id", "k", "--ask", "bash", "--no-sandbox").went(3))
    type("answer", item, "go on").refused(2, "is not a question", f"holdfast approve {item}")


def test_rules_with_a_pattern_a_count_and_a_time(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\ntool = "bash"\nmatch = "git push*"\ndecision = "ask"\n'
        '[[rule]]\ntool = "bash"\nmatch = "git push --dry-run"\ndecision = "allow"\nuses = 1\n'
    )
    model = script(tmp_path / "m.json", bash("true"), *[bash("git push --dry-run")] * 2, turn(text="Done."))
    said = type("run", "x", "--model", model, "--session-id", "k", "--rules", rules, "--no-sandbox").went(3)
    assert "git push --dry-run" in said.err
    assert types(holdfast_home).count("tool.dispatched") == 2
    for line, pieces in {
        'tool = "bash"\ndecision = "ask"\nuses = 0': ("uses: 0 is not a whole number",),
        'tool = "bash"\ndecision = "ask"\nfor_s = "soon"': ("for_s: 'soon' is not a time span", "2h"),
        'tool = "bash"\ndecision = "ask"\nmatch = 3': ("match",),
        'tool = "bash"\ndecision = "ask"\nmatches = "x"': ("did you mean 'match'?",),
    }.items():
        rules.write_text(f"[[rule]]\n{line}\n")
        type("run", "x", "--model", model, "--rules", rules).refused(2, *pieces)


# --- who may answer, and who is told --------------------------------------------------------------


def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    file = tmp_path / "config" / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return file


def _notify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("OPS_SECRET", "whsec_" + "c2VjcmV0" * 4)
    _config(tmp_path, monkeypatch, f'[notify.ops]\nkind = "webhook"\nurl = "{url}"\nsecret = "env:OPS_SECRET"\n')


def test_a_webhook_that_is_down_harms_nothing(
    type: Type, model: str, holdfast_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as ops:
        url = ops.url
    _notify(tmp_path, monkeypatch, url)
    item = asks(type, model)
    (sent,) = facts(type, "notice.sent")
    assert not sent.get("ok")
    assert sent["target"] == "ops"
    assert sent["again_us"] > SystemClock().now_us()
    assert url not in str(sent)
    assert rows(holdfast_home / "holdfast.db", "select 1 from sessions where due_us = ?", sent["again_us"])
    type("approve", item).went()
    assert rests().out == "Done.\n"
    type("verify").went()


def test_a_webhook_is_told_the_action_and_how_to_answer(
    type: Type, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as ops:
        ops.planned.append(Reply(503))
        _notify(tmp_path, monkeypatch, ops.url)
        item = asks(type, model)
        ids = {got.headers["webhook-id"] for got in ops.requests}
        assert len(ids) == 1
        body = ops.requests[-1].body.decode()
    assert COUNTS.split(";")[0] in body
    assert f"holdfast approve {item}" in body
    assert facts(type, "notice.sent")[-1]["notice_id"] in ids


def test_people_are_configured_and_kept_to(
    type: Type, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _config(
        tmp_path, monkeypatch, '[people]\napprovers = ["anna"]\nsecond = ["ben"]\nexpires_s = "2d"\nescalate_s = 1e-3\n'
    )
    item = asks(type, model)
    shown = type("inbox", item).went().out
    assert "anna or ben may answer" in shown
    type("approve", item).refused(2, "may be answered by anna or ben", "holdfast handover")
    monkeypatch.setenv("LOGNAME", "ben")
    type("approve", item, "--no-wake").went()


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("[people]\napprover = ['a']", ("'approver'", "did you mean 'approvers'?")),
        ("[people]\napprovers = 'a'", ("approvers in [people]", "list of names")),
        ("[people]\nquiet = '25:00'", ("quiet hours",)),
        ("[people]\nnotify = ['phon']", ("'phon'", "no [notify.NAME] table")),
        ("[people]\non_expiry = 'allow'", ("one of deny, approve",)),
        ("[people]\nremind_s = 0", ("time span",)),
        ("[context]\nline_token = 5", ("did you mean 'line_tokens'?",)),
        ("[context]\nkeep_tokens = 500000", ("keep_tokens in [context] is 500000",)),
        ("[context]\nsigns = 'yes'", ("true or false",)),
        ("[breakers]\nspend_per_hour_usd = -1", ("dollars above 0",)),
        ("[breakers]\ntool_failures = 0", ("tool_failures in [breakers]",)),
        ("people = 3", ("[people]",)),
    ],
)
def test_tables_that_cannot_be_meant(
    type: Type, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, pieces: tuple[str, ...]
) -> None:
    _config(tmp_path, monkeypatch, text)
    type("run", "x", "--model", model).refused(2, *pieces)


def test_a_repository_says_nothing_about_people(type: Type, model: str) -> None:
    Path("holdfast.toml").write_text('[people]\non_expiry = "approve"\n')
    type("run", "x", "--model", model).refused(2, "table people", "a repository must not say")


# --- races ----------------------------------------------------------------------------------------

ITEMS = 100


async def _open(home: Path, worker: Worker) -> list[str]:
    """A session with many questions."""
    names = [f"itm_{number:04d}" for number in range(ITEMS)]
    async with await SqliteStore.open(home / "holdfast.db", workers=home / "workers", clock=SystemClock()) as store:
        intake = _intake(store, "anna")
        created = SessionCreated(goal="x", agent=Agent(model="m"), workspace=Workspace("/w"))
        await intake.open("ses_race", created)
        started = ShiftStarted(worker_id=worker.worker_id, host_id="h", boot_id="b", pid=1, program="p")
        lease = await store.acquire("ses_race", _draft(started))
        asked = [ApprovalRequested(item_id=name, kind="escalation", title=name, action="x") for name in names]
        await store.append("ses_race", lease.epoch, [_draft(fact) for fact in asked])
    return names


def _draft(fact: ShiftStarted | ApprovalRequested) -> Draft:
    return Draft(new_event_id(SystemClock().now_us(), system_entropy), "brain", fact)


def _intake(store: SqliteStore, name: str) -> Intake:
    return Intake(store, store, SystemClock(), system_entropy, Caller(f"user:{name}"))


def test_answers_that_race_give_one_decision_each(holdfast_home: Path) -> None:
    holdfast_home.mkdir()
    worker = Worker.start(holdfast_home / "workers", new_worker_id(SystemClock().now_us(), system_entropy))
    names = anyio.run(_open, holdfast_home, worker)
    people = {"anna": "approve", "ben": "deny", "carl": "approve"}
    together = threading.Barrier(len(people))
    won: list[tuple[str, str]] = []
    late: list[str] = []
    broken: list[BaseException] = []

    async def answers(person: str) -> None:
        path = holdfast_home / "holdfast.db"
        async with await SqliteStore.open(path, workers=holdfast_home / "workers", clock=SystemClock()) as store:
            intake = _intake(store, person)
            for name in names:
                item = await store.item(name)
                together.wait(30)
                try:
                    await (intake.approve(item) if people[person] == "approve" else intake.deny(item))
                    won.append((name, person))
                except ItemClosed:
                    late.append(name)

    def thread(person: str) -> None:
        try:
            anyio.run(answers, person)
        except BaseException as error:
            broken.append(error)
            together.abort()

    threads = [threading.Thread(target=thread, args=(person,)) for person in people]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    worker.close()
    assert broken == []
    assert Counter(name for name, _ in won) == dict.fromkeys(names, 1)
    assert Counter(late) == dict.fromkeys(names, len(people) - 1)
    assert len({person for _, person in won}) > 1, "nobody raced"
    assert anyio.run(_decided, holdfast_home) == {name: people[person] for name, person in won}


async def _decided(home: Path) -> dict[str, str]:
    async with await SqliteStore.open(home / "holdfast.db", workers=home / "workers", clock=SystemClock()) as store:
        events = await store.read("ses_race")
        facts = [event.fact for event in events if isinstance(event.fact, ApprovalDecided)]
        assert len(facts) == ITEMS
        statuses = {item.item_id: item.status for item in await store.items(open_only=False)}
    found: dict[str, str] = {fact.item_id: fact.verdict for fact in facts}
    assert statuses == {name: "approved" if verdict == "approve" else "denied" for name, verdict in found.items()}
    return found


@pytest.mark.parametrize(
    "times", [1, *(pytest.param(10, marks=pytest.mark.faults, id=f"ten-{number}") for number in range(10))]
)
def test_processes_that_race_give_one_decision_each(type: Type, model: str, holdfast_home: Path, times: int) -> None:
    for number in range(times):
        key = f"k{number}"
        item = asks(type, model, key=key)
        verbs = ("approve", "deny", "approve", "deny")
        racing = [spawn(verb, item, "--no-wake") for verb in verbs]
        codes = [ended(each).code for each in racing]
        assert sorted(codes) == [0, 2, 2, 2]
        (decided,) = facts(type, "approval.decided", key)
        assert decided["verdict"] == verbs[codes.index(0)]
        type("wake", key).went()
    ran = list((holdfast_home / "workspaces").glob("*/ran"))
    allowed = rows(holdfast_home / "holdfast.db", "select 1 from items where status = 'approved'")
    assert len(ran) == len(allowed)
    assert all(path.read_text() == "ran\n" for path in ran)
