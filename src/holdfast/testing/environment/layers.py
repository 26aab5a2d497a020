"""Layers are whole or not there, and made by one at a time."""

from __future__ import annotations

import anyio

from holdfast.environment.base import Draft, Environments, Made, Wanted
from holdfast.facts.environment import EnvironmentRecorded, Step
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import Environment
from holdfast.testing.environment.rig import Check, Rig

_POLICY = Environment(setup=("make deps",))


async def _nobody(hands: HandsProvisioned) -> None:
    raise AssertionError(f"hands were released that nobody had begun: {hands.hands_id}")


async def _wanted(rig: Rig, policy: Environment = _POLICY) -> Wanted:
    return await rig.one.look(rig.workspace, policy, rig.owner[0])


async def _draft(environments: Environments, rig: Rig, wanted: Wanted) -> Draft:
    draft = await environments.prepare(wanted, rig.owner, _nobody)
    assert isinstance(draft, Draft)
    return draft


def _record(wanted: Wanted) -> EnvironmentRecorded:
    return EnvironmentRecorded(digest=wanted.digest, steps=(Step("make deps", 0, 12.0),))


def _hands() -> HandsProvisioned:
    return HandsProvisioned(
        hands_id="hnd_left", provider="none", host_id="", boot_id="", address="", workspace="", root="", uid=0
    )


async def the_same_wishes_have_one_digest(rig: Rig) -> None:
    """Another command is another environment; the same ones are the same, whoever looks."""
    first = await _wanted(rig)
    assert first.digest == (await rig.other.look(rig.workspace, _POLICY, rig.owner[0])).digest
    assert first.digest != (await _wanted(rig, Environment(setup=("make other",)))).digest
    assert first.commands == ("make deps",)


async def what_is_sealed_is_found(rig: Rig) -> None:
    """By every process, with what was recorded of it; and not before."""
    wanted = await _wanted(rig)
    assert await rig.one.find(wanted) is None
    draft = await _draft(rig.one, rig, wanted)
    assert await rig.other.find(wanted) is None
    made = await rig.one.seal(draft, wanted, rig.workspace.path, _record(wanted))
    found = await rig.other.find(wanted)
    assert found is not None
    assert found == made
    assert found.record.steps == _record(wanted).steps
    again = await rig.other.prepare(wanted, rig.owner, _nobody)
    assert isinstance(again, Made)


async def what_is_given_up_leaves_nothing(rig: Rig) -> None:
    """The next one begins anew. Giving up twice is fine."""
    wanted = await _wanted(rig)
    draft = await _draft(rig.one, rig, wanted)
    await rig.one.begun(draft, _hands())
    await rig.one.give_up(draft)
    await rig.one.give_up(draft)
    assert await rig.other.find(wanted) is None
    await rig.other.give_up(await _draft(rig.other, rig, wanted))


async def one_makes_it_and_the_other_takes_it(rig: Rig) -> None:
    """Whoever comes second waits, and has what the first made."""
    wanted = await _wanted(rig)
    draft = await _draft(rig.one, rig, wanted)
    taken: list[Draft | Made] = []

    async def second() -> None:
        taken.append(await rig.other.prepare(wanted, rig.owner, _nobody))

    async with anyio.create_task_group() as group:
        group.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        assert taken == []
        await rig.one.seal(draft, wanted, rig.workspace.path, _record(wanted))
    assert isinstance(taken[0], Made)


async def other_wishes_do_not_wait(rig: Rig) -> None:
    """Two different environments are made side by side."""
    wanted, another = await _wanted(rig), await _wanted(rig, Environment(setup=("make other",)))
    first, second = await _draft(rig.one, rig, wanted), await _draft(rig.other, rig, another)
    assert first.folder != second.folder
    await rig.one.give_up(first)
    await rig.other.give_up(second)


async def what_a_dead_one_had_begun_ends_first(rig: Rig) -> None:
    """Its hands may still write: they are released before a new draft is handed out."""
    wanted = await _wanted(rig)
    await rig.one.begun(await _draft(rig.one, rig, wanted), _hands())
    await rig.kill_one()
    ended: list[str] = []

    async def release(hands: HandsProvisioned) -> None:
        ended.append(hands.hands_id)

    draft = await rig.other.prepare(wanted, rig.owner, release)
    assert ended == ["hnd_left"]
    assert isinstance(draft, Draft)
    assert await rig.other.find(wanted) is None
    await rig.other.seal(draft, wanted, rig.workspace.path, _record(wanted))
    assert await rig.other.find(wanted) is not None


CHECKS: tuple[Check, ...] = (
    the_same_wishes_have_one_digest,
    what_is_sealed_is_found,
    what_is_given_up_leaves_nothing,
    one_makes_it_and_the_other_takes_it,
    other_wishes_do_not_wait,
    what_a_dead_one_had_begun_ends_first,
)
