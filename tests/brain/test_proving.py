"""Checks are proven able to fail before they count: real hands, real pytest, products that fool their checks."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import anyio
import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import Settings
from holdfast.errors import HandsLost
from holdfast.facts.mission import Contract, Item, VerificationEnded, VerificationStarted
from holdfast.facts.task import RatchetViolated
from holdfast.kinds.mission.acts.checkouts import IDLE_S
from holdfast.kinds.mission.check import proofs
from holdfast.kinds.mission.fold.state import LAST
from tests.brain.merge_stage import state_of
from tests.brain.proving_stage import RIGHT, SESSION, WRONG, criterion, proving
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


async def test_honest_work_is_green_and_proven(tmp_path: Path) -> None:
    async with proving(tmp_path) as stage:
        assert await stage.verified({"app.py": RIGHT}, "add", "shout") == {"add": "pass", "shout": "pass"}
        probed, proved = await stage.probed(), await stage.proved()
        assert (probed["add"].canary, probed["add"].hollow, probed["add"].reports) == ("yes", "base", True)
        assert proved["add"].shown == ("canary", "flip")
        assert not proved["add"].lost
        assert proofs.evidence(state_of(stage.shift), "add") == ""
        assert not await stage.facts(RatchetViolated)
        # The base and a canary before the work; then the check, its canary, its flips, and one more confirming run.
        assert len(await stage.facts(VerificationStarted)) == 2 + 4


@pytest.mark.parametrize("how", ["", "equals everything", "fails"])
async def test_the_last_look_is_proven_by_the_runs_beside_it(tmp_path: Path, how: str) -> None:
    """They count only if the check passes, and against a product that fools it."""
    work = {"": RIGHT, "fails": WRONG}.get(how) or WRONG + FOOLING[how]
    async with proving(tmp_path) as stage:
        commit, tree = stage.commit({"app.py": work})
        effect = f"{LAST}{tree}"
        assert await stage.verify(commit, tree, "add", effect=effect) == {"add": "fail" if how else "pass"}
        proved = (await stage.proved()).get("add")
        assert (proved is None) == (how == "fails")
        if how != "fails":
            assert proved is not None
            assert proved.shown == (("canary",) if how else ("canary", "flip"))
        if not how:
            # As where the proof comes after the check: no probe runs twice.
            assert len(await stage.facts(VerificationStarted)) == 2 + 4
        assert not state_of(stage.shift).verifications


async def test_a_check_that_cannot_fail_is_said_to_be_unproven(tmp_path: Path) -> None:
    contract = Contract("g", (Item("i", "it", criteria=(criterion("loose", "true"),)),), ("tests/**",))
    async with proving(tmp_path, contract) as stage:
        assert await stage.verified({"app.py": RIGHT}) == {"loose": "pass"}
        assert proofs.evidence(state_of(stage.shift), "loose") == proofs.UNPROVEN
        assert (await stage.probed())["loose"].hollow == "no"
        assert not await stage.facts(RatchetViolated)


FOOLING = {
    "ends the run": b"import os, atexit\natexit.register(os._exit, 0)\n",
    "ends the run at import": b"import os\nos._exit(0)\n",
    "patches the outcome": (
        b"import _pytest.runner as runner\nkept = runner.TestReport.from_item_and_call\n"
        b"def made(item, call):\n    call.excinfo = None\n    return kept(item, call)\n"
        b"runner.TestReport.from_item_and_call = made\n"
    ),
    "equals everything": (
        b"class Yes:\n    def __eq__(self, other):\n        return True\n\ndef add(a, b):\n    return Yes()\n"
    ),
    "drops tests from the collection": (
        b"import gc\nimport _pytest.main as m\n"
        b"class Few:\n    def pytest_collection_modifyitems(self, items):\n"
        b"        items[:] = [each for each in items if 'small' not in each.name and 'negative' not in each.name]\n"
        b"        items[:] = items or [None]\n        items.remove(None) if None in items else None\n"
        b"    def pytest_sessionfinish(self, session):\n        session.exitstatus = 0\n"
        b"for each in gc.get_objects():\n    if type(each) is m.Session:\n"
        b"        each.config.pluginmanager.register(Few())\n"
    ),
}


CORPUS = ("ends the run at import", "patches the outcome", "drops tests from the collection")
"""Ways that `tests/tampers` tries as well: here they belong to the long form."""


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[pytest.mark.faults] if how in CORPUS else []) for how in FOOLING]
)
async def test_a_product_that_fools_its_check_is_red(tmp_path: Path, how: str) -> None:
    async with proving(tmp_path) as stage:
        assert await stage.verified({"app.py": WRONG + FOOLING[how]}, "add") == {"add": "fail"}
        note = await stage.note("add")
        assert note
        if "runner" in note or "expected value" in note:
            violated = await stage.facts(RatchetViolated)
            lost = (await stage.proved())["add"].lost if violated else ()
            assert bool(violated) == bool(lost)


# --- killed ------------------------------------------------------------------------------------------


async def killed_at(base: Path, run: int, commit: str, tree: str) -> None:
    """A process that verifies, killed when it has announced so many runs."""
    words = [sys.executable, "-m", "tests.brain.proving_stage", str(base), commit, tree, "add"]
    async with (
        open_runtime(Settings(home=str(base / "home"))) as runtime,
        await anyio.open_process(words, stdout=None, stderr=None) as process,
    ):
        head = begun = 0
        with anyio.fail_after(PATIENCE_S):
            while begun < run:
                head = await runtime.store.wait(SESSION, head)
                events = await runtime.store.read(SESSION)
                begun = sum(isinstance(event.fact, VerificationStarted) for event in events)
                assert process.returncode is None, "it came to its end before it was killed"
        process.send_signal(signal.SIGKILL)


async def test_hands_of_a_killed_proof_end_by_themselves(tmp_path: Path) -> None:
    async with proving(tmp_path) as stage:
        commit, tree = stage.commit({"app.py": RIGHT})
    await killed_at(tmp_path, 4, commit, tree)
    async with open_runtime(Settings(home=str(tmp_path / "home"))) as runtime:
        events = await runtime.store.read(SESSION)
    started = [each.fact.hands for each in events if isinstance(each.fact, VerificationStarted)]
    hands = started[-1]
    assert hands is not None
    with anyio.fail_after(IDLE_S + PATIENCE_S):
        while Path(hands.address).exists():  # noqa: ASYNC110 - a socket sets no event of ours
            await anyio.sleep(0.02)


@pytest.mark.parametrize("run", [pytest.param(2, marks=pytest.mark.faults), 5])
async def test_killed_in_a_proof(tmp_path: Path, run: int) -> None:
    """Hands of a killed brain end by themselves; the next one goes on, and the work is green."""
    async with proving(tmp_path) as stage:
        commit, tree = stage.commit({"app.py": RIGHT})
    await killed_at(tmp_path, run, commit, tree)
    async with proving(tmp_path) as stage:
        assert await stage.verify(commit, tree, "add") == {"add": "pass"}
        assert (await stage.proved())["add"].shown
        assert len(await stage.facts(VerificationEnded)) == 1
        left = [each.name for each in (tmp_path / "home" / "workspaces").iterdir() if each.name.startswith("vrf_")]
        assert left == []
        started = [each.hands for each in await stage.facts(VerificationStarted)]
        for each in started:
            hands = await stage.shift.doors.hands.attach(each)
            with pytest.raises(HandsLost):
                await hands.fence(stage.shift.fence)
