"""Conformance kit of environment stores.

`CHECKS` maps a name to a coroutine function of a fresh `Rig`. Run each on your implementation, as the tests do with
`holdfast.environment.store` and `holdfast.environment.fake`:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_environments(name):
        await CHECKS[name](my_rig())

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from holdfast.environment.base import Draft, Environments, Made, Wanted
from holdfast.facts.hands import EnvironmentRecorded, HandsProvisioned, Step
from holdfast.facts.session import Environment, Workspace


class Rig(Protocol):
    """One home shared by two processes, and a workspace that both can access."""

    one: Environments
    other: Environments
    workspace: Workspace
    owner: tuple[int, int]

    async def kill_one(self) -> None:
        """Kill the first process."""
        ...


Check = Callable[[Rig], Awaitable[None]]
"""A check. Raises `AssertionError` if the implementation fails it."""


_POLICY = Environment(setup=("make deps",))


async def _no_release(hands: HandsProvisioned) -> None:
    raise AssertionError(f"released hands that were never begun: {hands.hands_id}")


async def _wanted(rig: Rig, policy: Environment = _POLICY) -> Wanted:
    return await rig.one.look(rig.workspace, policy, rig.owner[0])


async def _draft(environments: Environments, rig: Rig, wanted: Wanted) -> Draft:
    draft = await environments.prepare(wanted, rig.owner, _no_release)
    assert isinstance(draft, Draft)
    return draft


def _record(wanted: Wanted) -> EnvironmentRecorded:
    return EnvironmentRecorded(digest=wanted.digest, steps=(Step("make deps", 0, 12.0),))


def _hands() -> HandsProvisioned:
    return HandsProvisioned(
        hands_id="hnd_left", provider="none", host_id="", boot_id="", address="", workspace="", root="", uid=0
    )


async def the_same_commands_have_one_digest(rig: Rig) -> None:
    """The same commands give the same digest in every process; another command gives another."""
    first = await _wanted(rig)
    assert first.digest == (await rig.other.look(rig.workspace, _POLICY, rig.owner[0])).digest
    assert first.digest != (await _wanted(rig, Environment(setup=("make other",)))).digest
    assert first.commands == ("make deps",)


async def a_sealed_environment_is_found(rig: Rig) -> None:
    """A sealed environment is found by every process, with its record, and not before."""
    wanted = await _wanted(rig)
    assert await rig.one.find(wanted) is None
    draft = await _draft(rig.one, rig, wanted)
    assert await rig.other.find(wanted) is None
    made = await rig.one.seal(draft, wanted, rig.workspace.path, _record(wanted))
    found = await rig.other.find(wanted)
    assert found is not None
    assert found == made
    assert found.record.steps == _record(wanted).steps
    again = await rig.other.prepare(wanted, rig.owner, _no_release)
    assert isinstance(again, Made)


async def a_draft_given_up_leaves_nothing(rig: Rig) -> None:
    """After a draft is given up, the next one starts over. Giving up twice is safe."""
    wanted = await _wanted(rig)
    draft = await _draft(rig.one, rig, wanted)
    await rig.one.begun(draft, _hands())
    await rig.one.give_up(draft)
    await rig.one.give_up(draft)
    assert await rig.other.find(wanted) is None
    await rig.other.give_up(await _draft(rig.other, rig, wanted))


async def a_second_process_waits_for_the_first(rig: Rig) -> None:
    """A second process waits and gets the environment that the first one made."""
    wanted = await _wanted(rig)
    draft = await _draft(rig.one, rig, wanted)
    taken: list[Draft | Made] = []

    async def second() -> None:
        taken.append(await rig.other.prepare(wanted, rig.owner, _no_release))

    async with anyio.create_task_group() as group:
        group.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        assert taken == []
        await rig.one.seal(draft, wanted, rig.workspace.path, _record(wanted))
    assert isinstance(taken[0], Made)


async def other_environments_do_not_wait(rig: Rig) -> None:
    """Two different environments are made concurrently."""
    wanted, another = await _wanted(rig), await _wanted(rig, Environment(setup=("make other",)))
    first, second = await _draft(rig.one, rig, wanted), await _draft(rig.other, rig, another)
    assert first.folder != second.folder
    await rig.one.give_up(first)
    await rig.other.give_up(second)


async def hands_of_a_dead_process_end_first(rig: Rig) -> None:
    """The hands of a dead process may still write, so they are released before a new draft is handed out."""
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


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        the_same_commands_have_one_digest,
        a_sealed_environment_is_found,
        a_draft_given_up_leaves_nothing,
        a_second_process_waits_for_the_first,
        other_environments_do_not_wait,
        hands_of_a_dead_process_end_first,
    )
}
"""Name → check, for example `a_sealed_environment_is_found`."""

__all__ = ["CHECKS", "Check", "Rig"]
