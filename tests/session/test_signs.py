"""Signs: what is seen within a few turns, and what must not be taken for a sign."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from bench.signs import RECALL, RESETS_IN_50, STOPS, measure, verdict
from holdfast.facts.session import Breakers, ContextPolicy
from holdfast.session.signs import Sign, sign
from holdfast.session.signs.trace import STEPS_MAX, Step, note
from tests.support.synthetic.events import Done, Say, Teller

POLICY, BREAKERS = ContextPolicy(), Breakers()

Turn = Callable[[int], Done]


def bash(command: str, content: str = "", ok: bool = True) -> Done:
    """A command with what it printed."""
    return Done("bash", {"command": command}, content, ok)


def edit(number: int, path: str = "a.py") -> Done:
    """A file that becomes another each time."""
    value = {"file_path": path, "old_string": str(number), "new_string": str(number + 1)}
    return Done("edit", value, f"Edited {path}", files={path: str(number)})


class Session:
    """Turns told one after the other, with the sign after each."""

    def __init__(self) -> None:
        self.teller = Teller(random.Random(1))
        self.steps: list[Step] = []
        self.fill = 0.3

    def turn(self, *calls: Done, text: str = "Some words of ordinary length about what comes next.") -> Sign | None:
        """A turn, and the sign after it."""
        self.teller.tell(Say(text, calls), tokens=1)
        return self.now()

    def hear(self, text: str) -> None:
        """A person speaks."""
        self.teller.hear(text)
        self.now()

    def now(self, policy: ContextPolicy = POLICY) -> Sign | None:
        """The sign now."""
        for seq, fact in self.teller.turns[-1].facts:
            note(self.steps, fact, seq)
        return sign(self.steps, self.fill, policy, BREAKERS)

    def first(self, one: Turn, most: int = 40) -> tuple[int, Sign | None]:
        """After how many turns of this the first sign comes."""
        for number in range(most):
            found = self.turn(one(number))
            if found is not None:
                return number + 1, found
        return most, None


FAILING = ("npm ERR! not found", "ModuleNotFoundError: x", "No rule to make target")


@pytest.mark.parametrize(
    ("one", "at", "words"),
    [
        (lambda n: bash("./run", f"12:00:{n:02d} nothing to do today"), 4, "same input and the same result"),
        (lambda n: bash("./run", f"worker {n} of many found nothing"), 5, "only numbers changed"),
        (lambda n: edit(n % 2), 6, "with the same result"),
        (lambda n: bash(f"{('cat', 'head', 'less', 'tail')[n % 4]} a.txt", "the text of the file"), 4, "other words"),
        (lambda n: bash("cat app.log", "began\n" + "ERROR no route\n" * (n + 1)), 4, "same"),
        (lambda n: bash(f"step{n % 3}", FAILING[n % 3], ok=False), 8, "ways seen before"),
    ],
    ids=["same call", "same but for numbers", "ping-pong", "paraphrase", "growing output", "errors"],
)
def test_a_loop_is_seen(one: Turn, at: int, words: str) -> None:
    turns, found = Session().first(one)
    assert found is not None
    assert (turns, found.kind) == (at, "loop")
    assert words in found.detail
    assert len(found.evidence) >= 4


def test_growing_output_is_named_as_such() -> None:
    _, found = Session().first(lambda n: bash("./go", "\n".join(f"attempt {i} failed: no route" for i in range(n + 1))))
    assert found is not None
    assert "only grew" in found.detail


@pytest.mark.parametrize(
    "one",
    [
        lambda n: bash("sleep 30; tail -n 1 build.log", "still building"),
        lambda n: bash("sleep 20" if n % 2 else "cat state", "" if n % 2 else "in progress, as before it was"),
        lambda n: bash("make test", "1 failed: test_a", ok=False) if n % 2 else edit(n),
        lambda n: Done("read", {"file_path": f"f{n}.py"}, f"the content of file {chr(97 + n)}"),
        lambda n: bash(f"sed -n '{n * 40},{n * 40 + 39}p' t.csv", f"{n},{n + 7},{n * 3}\n{n * n},1,2"),
        lambda n: edit(0, f"module_{chr(97 + n)}.py"),
        lambda n: bash("make", f"error: {chr(97 + n)} undeclared", ok=False) if n % 3 else edit(n),
    ],
    ids=["polling", "polling by two", "tests between edits", "reading", "paging numbers", "refactoring", "building"],
)
def test_healthy_work_is_left_alone(one: Turn) -> None:
    assert Session().first(one, most=26) == (26, None)


def test_polling_for_very_long_without_news_is_no_progress() -> None:
    turns, found = Session().first(lambda n: bash("sleep 60; cat state", "still the same state"), most=80)
    assert found is not None
    assert (turns, found.kind) == (STEPS_MAX, "no_progress")


def test_turns_that_bring_nothing_are_no_progress() -> None:
    session = Session()
    known = [f"the content of file {chr(97 + number)}, long enough" for number in range(18)]
    for number, content in enumerate(known):
        assert session.turn(Done("read", {"file_path": f"{number}.py"}, content)) is None
    turns, found = session.first(lambda n: Done("read", {"file_path": f"{n}.py"}, known[n]), most=18)
    assert found is not None
    assert (turns, found.kind) == (BREAKERS.idle_turns, "no_progress")


def test_tests_after_each_new_attempt_are_no_loop() -> None:
    """Even where the attempts fail: each is another one."""
    session = Session()
    test = bash("make test", "test_a failed as before", ok=False)
    value = {"file_path": "a.py", "old_string": "name", "new_string": "x"}
    for done in (test, test, Done("edit", value, "old_string not found", ok=False), test, test, test):
        assert session.turn(done) is None
    assert Session().first(lambda _: test)[0] == 5


def test_a_file_read_again_and_again_is_a_loop_only_while_nothing_new_comes() -> None:
    again = Done("read", {"file_path": "a.py"}, "the content of the file that matters")
    session = Session()
    for number in range(2):
        assert session.turn(again) is None
        assert session.turn(again) is None
        other = Done("read", {"file_path": f"{number}.py"}, f"the content of file {chr(98 + number)}, which is new")
        assert session.turn(other) is None
    assert session.turn(again) is None
    turns, found = Session().first(lambda _: again)
    assert found is not None
    assert (turns, found.kind) == (5, "loop")


def test_what_is_looked_up_once_more_is_no_round() -> None:
    session = Session()
    known = [
        Done("read", {"file_path": f"{n}.py"}, f"the content of file {chr(97 + n)}, long enough") for n in range(4)
    ]
    for done in (*known, *known[:1], *reversed(known)):
        assert session.turn(done) is None


def test_what_a_person_asks_for_again_is_no_loop() -> None:
    session = Session()
    for _ in range(12):
        assert session.turn(bash("make deploy", "deployed as it was before")) is None
        session.hear("once more, please")


def test_it_can_be_turned_off() -> None:
    session = Session()
    session.first(lambda n: bash("./run", "nothing to do for today"))
    assert session.now() is not None
    assert session.now(ContextPolicy(signs=False)) is None


def working(session: Session, rounds: int = 8) -> None:
    """Edits, each followed by the tests."""
    for number in range(rounds):
        assert session.turn(edit(number), text="x" * (200 + number * 9)) is None
        assert session.turn(bash("make test", f"{number} passed"), text="y" * (180 + number * 9)) is None


HURRY = (
    "Given how little context remains, only the main case.",
    "This should work.",
    "I'll leave the rest for later.",
)


def hurried(session: Session, most: int = 6) -> int:
    """Anxious turns until the sign, 0 when none comes."""
    for number in range(most):
        found = session.turn(edit(100 + number), text=HURRY[number % 3])
        if found is not None:
            assert found.kind == "anxiety", found
            assert str(round(session.fill * 100)) in found.detail
            return number + 1
    return 0


def test_anxiety_is_seen_when_the_context_is_full() -> None:
    session = Session()
    working(session)
    session.fill = 0.7
    assert 1 <= hurried(session) <= 4


def test_nothing_presses_in_an_empty_context() -> None:
    session = Session()
    working(session)
    session.fill = 0.2
    assert hurried(session) == 0


def test_a_habit_is_no_sign() -> None:
    session = Session()
    session.fill = 0.8
    for number in range(20):
        said = "Quick one. This should work. " if number % 2 else "Short, for brevity. "
        assert session.turn(edit(number), text=said) is None


def renaming(session: Session, old: Callable[[int], str]) -> list[Sign]:
    """Short turns, each with an edit of another file, and no tests between them."""
    working(session)
    session.fill = 0.8
    signs = []
    for number in range(8):
        value = {"file_path": f"{number}.py", "old_string": old(number), "new_string": f"other_{number}"}
        done = Done("edit", value, "Edited", files={f"{number}.py": f"renamed {number}"})
        signs.append(session.turn(done, text="z" * 60))
    return [found for found in signs if found is not None]


def test_one_edit_in_many_files_is_one_change_to_check() -> None:
    assert renaming(Session(), lambda _: "old_name") == []
    assert [found.kind for found in renaming(Session(), lambda n: f"name_{chr(97 + n)}")][:1] == ["anxiety"]


def test_a_commit_leaves_nothing_unchecked() -> None:
    session = Session()
    working(session)
    session.fill = 0.8
    for _ in range(3):
        assert session.turn(edit(50 + len(session.steps)), text="z" * 90) is None
        assert session.turn(bash("make test", f"all {len(session.steps)} passed"), text="z" * 90) is None
    assert session.turn(bash("git commit -am 'done'", "[main 1c9623e] done"), text="z" * 90) is None
    assert session.turn(text="Done.") is None


def test_an_early_end_that_leaves_work_over_is_a_sign() -> None:
    session = Session()
    working(session)
    session.fill = 0.6
    found = session.turn(text="I will leave the rest for a follow-up.")
    assert found is not None
    assert found.kind == "anxiety"


def test_an_end_with_everything_checked_is_none() -> None:
    session = Session()
    working(session)
    session.fill = 0.9
    assert session.turn(text="Done: all of it is there and the tests pass.") is None


@pytest.mark.real
def test_the_bounds_hold_over_many_kinds_of_sessions() -> None:
    rows = measure(5_000_000, 20, 99)
    figures: dict[str, Any] = verdict(rows)
    assert figures["recall_anxious"] >= RECALL, rows
    for row in rows:
        if row.kind.startswith("loop"):
            assert row.seen >= RECALL * row.sessions, row
    assert figures["false_resets_in_50"] <= RESETS_IN_50, rows
    assert figures["false_stops"] <= STOPS, rows
