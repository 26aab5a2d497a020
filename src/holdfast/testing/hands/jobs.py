"""Jobs and services: what goes on without a brain, and what is told of it."""

from __future__ import annotations

import anyio
import msgspec

from holdfast.errors import Fenced, HandsError, HandsLost
from holdfast.testing.hands.rig import (
    COUNT,
    FAIL,
    LONG,
    SAY,
    SERVE,
    SICK,
    STEPS,
    WELL,
    Check,
    HearingRig,
    NewsCheck,
    Rig,
    all_of,
    bash,
    job,
    refused,
    run,
    service,
)

DAYS_S = 40 * 24 * 3600.0


async def a_job_runs_once_and_says_how_it_ended(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    for _ in range(3):
        await hands.start(1, "1.0", job(STEPS, DAYS_S, name="steps"))
    result = await hands.wait(1, "1.0")
    assert (result.ok, result.exit_code, result.output) == (True, 0, "step 1\nstep 2\n"), result
    assert (await hands.status(1, "1.0")).result == result
    assert await all_of(hands, "1.0") == "step 1\nstep 2\n"
    assert (await run(hands, "2.0", bash(COUNT))).output == "x"
    assert (await run(hands, "3.0", job(FAIL))).exit_code == 3


async def a_job_survives_other_calls_and_its_brain(rig: Rig) -> None:
    first = await rig.provider.provision(rig.spec(), 1)
    await first.start(1, "1.0", job(LONG, DAYS_S))
    await run(first, "2.0", bash(SAY))
    await first.start(1, "2.1", bash(LONG))
    await first.kill(1, "2.1")
    assert (await first.wait(1, "2.1")).cancelled
    second = await rig.provider.attach(first.identity)
    await second.fence(2)
    await refused(Fenced, lambda: first.wait(1, "1.0"))
    assert (await second.status(2, "1.0")).state == "running"
    await second.kill(2, "1.0")
    result = await second.wait(2, "1.0")
    assert (result.ok, result.cancelled) == (False, True), result


async def a_job_ends_at_its_own_time_limit(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    result = await run(hands, "1.0", job(LONG, 0.3))
    assert (result.ok, result.timed_out) == (False, True), result


async def the_line_that_is_waited_for_is_known(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(STEPS, line=r"^step \d$"))
    status = await hands.status(1, "1.0", wait_s=20.0)
    await hands.wait(1, "1.0")
    after = await hands.status(1, "1.0")
    assert status.line in ("step 1", None), status
    assert (after.state, after.line, after.problem) == ("finished", "step 1", ""), after
    await run(hands, "2.0", job(STEPS, line="never"))
    assert (await hands.status(1, "2.0")).line is None
    await run(hands, "3.0", job(STEPS, line="("))
    broken = await hands.status(1, "3.0")
    assert broken.line is None
    assert "no regular expression" in broken.problem, broken


async def a_service_goes_on_until_it_is_stopped(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", service("web", health=WELL, ready_s=20.0))
    status = await hands.status(1, "1.0", wait_s=20.0)
    assert (status.state, status.ready) == ("running", "yes"), status
    await refused(HandsError, lambda: hands.start(1, "1.1", service("web")))
    assert (await hands.status(1, "1.1")).state == "never_started"
    await hands.start(1, "1.2", service("other"))
    assert (await hands.status(1, "1.2")).ready == ""
    heir = await rig.provider.attach(hands.identity)
    assert (await heir.status(2, "1.0")).state == "running"
    await heir.kill(2, "1.0")
    assert (await heir.wait(2, "1.0")).cancelled
    await heir.start(2, "1.3", service("web"))
    assert (await heir.status(2, "1.3")).state == "running", "the name is free again"


async def a_service_that_is_not_well_is_known(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", service("sick", health=SICK, ready_s=0.4))
    assert (await hands.status(1, "1.0")).ready == "waiting"
    status = await hands.status(1, "1.0", wait_s=20.0)
    assert (status.state, status.ready) == ("running", "no"), status
    assert "sick" in status.problem, status
    result = await run(hands, "2.0", service("dead", FAIL, health=SICK, ready_s=20.0))
    assert result.exit_code == 3, result
    ended = await hands.status(1, "2.0")
    assert (ended.state, ended.ready) == ("finished", "no"), ended
    assert "ended before" in ended.problem, ended


async def nobody_knows_of_a_job_whose_hands_died(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(LONG, DAYS_S))
    await hands.start(1, "2.0", service("web", SERVE, health=WELL))
    assert (await hands.status(1, "2.0", wait_s=20.0)).ready == "yes"
    await run(hands, "3.0", job(STEPS, line="step 2"))
    await rig.kill(hands)
    assert (await hands.status(2, "1.0")).state == "unknown"
    assert (await hands.status(2, "2.0")).state == "unknown"
    kept = await hands.status(2, "3.0")
    assert (kept.state, kept.line) == ("finished", "step 2"), kept
    await refused(HandsLost, lambda: hands.wait(2, "1.0"))
    boot = await rig.provider.attach(msgspec.structs.replace(hands.identity, boot_id="another"))
    assert (await boot.status(2, "3.0")).state == "unknown"


async def the_end_of_a_job_is_told_when_nobody_waits(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(STEPS))
    assert await rig.heard(1) == [("1.0", "exit")]
    assert (await hands.status(1, "1.0")).state == "finished", "told when it is known"
    await run(hands, "2.0", bash(STEPS))
    await hands.start(1, "3.0", job(LONG, 0.2))
    assert (await rig.heard(2))[1:] == [("3.0", "exit")], "a call's end is no news"


async def what_somebody_waits_for_is_not_told(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(LONG))
    async with anyio.create_task_group() as group:
        group.start_soon(hands.wait, 1, "1.0")
        await anyio.wait_all_tasks_blocked()
        await hands.status(1, "1.0")
        await hands.kill(1, "1.0")
    await hands.start(1, "2.0", job(STEPS))
    assert await rig.heard(1) == [("2.0", "exit")]


async def a_line_is_told(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(STEPS, line="2$"))
    assert sorted(await rig.heard(2)) == [("1.0", "exit"), ("1.0", "line")]


async def the_death_of_hands_with_a_job_is_told(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(LONG, DAYS_S))
    await hands.start(1, "2.0", bash(LONG))
    await rig.kill(hands)
    assert await rig.heard(1) == [("1.0", "lost")]


async def nothing_is_told_of_hands_that_were_given_back(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(LONG, DAYS_S))
    await hands.release(1)
    other = await rig.provider.provision(rig.spec(), 1)
    await other.start(1, "2.0", job(STEPS))
    assert await rig.heard(1) == [("2.0", "exit")]


CHECKS: tuple[Check, ...] = (
    a_job_runs_once_and_says_how_it_ended,
    a_job_survives_other_calls_and_its_brain,
    a_job_ends_at_its_own_time_limit,
    the_line_that_is_waited_for_is_known,
    a_service_goes_on_until_it_is_stopped,
    a_service_that_is_not_well_is_known,
    nobody_knows_of_a_job_whose_hands_died,
)
"""All of them, in the order to read them in."""

NEWS: tuple[NewsCheck, ...] = (
    the_end_of_a_job_is_told_when_nobody_waits,
    what_somebody_waits_for_is_not_told,
    a_line_is_told,
    the_death_of_hands_with_a_job_is_told,
    nothing_is_told_of_hands_that_were_given_back,
)
"""Those of what is told."""
