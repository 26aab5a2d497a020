"""Checks of output streams and input, pauses, tar transfer, jobs, and services."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable

import anyio
import msgspec

from holdfast.errors import Fenced, HandsError, HandsLost
from holdfast.hands.base import ExecRequest
from holdfast.testing.hands.rig import (
    COUNT,
    ECHO,
    FAIL,
    LONG,
    MARK,
    SAY,
    SERVE,
    SICK,
    STEPS,
    WELL,
    HearingRig,
    NewsCheck,
    Rig,
    all_of,
    bash,
    job,
    refused,
    run,
    service,
    tool,
)

GIVEN = ExecRequest("bash", {"command": ECHO, "stdin": True}, 30.0)
"""A command that prints its standard input."""


async def output_is_read_by_position(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", bash(STEPS))
    assert await all_of(hands, "1.0") == "step 1\nstep 2\n"
    assert await all_of(hands, "1.0") == "step 1\nstep 2\n", "after its end too"
    later = await hands.read(1, "1.0", 7)
    assert (later.seq, later.text, later.next_seq, later.ended) == (7, "step 2\n", 14, True), later
    beyond = await hands.read(1, "1.0", 99)
    assert (beyond.text, beyond.ended) == ("", True), beyond
    heir = await rig.provider.attach(hands.identity)
    await heir.fence(2)
    assert await all_of(heir, "1.0", 2) == "step 1\nstep 2\n"
    await refused(HandsError, lambda: heir.read(2, "9.0"))


async def no_character_is_cut(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", GIVEN)
    await hands.write(1, "1.0", "a€ä𝄞".encode(), offset=0, close=True)
    await hands.wait(1, "1.0")
    pieces = []
    at = 0
    while at < 10:
        piece = await hands.read(1, "1.0", at, max_bytes=4)
        pieces.append(piece.text)
        at = piece.next_seq
    assert pieces == ["a€", "ä", "𝄞"], pieces


async def reading_waits_for_more(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", GIVEN)
    early = await hands.read(1, "1.0", wait_s=0.05)
    assert (early.text, early.next_seq, early.ended) == ("", 0, False), early
    heard: list[str] = []

    async def listen() -> None:
        heard.append(await all_of(hands, "1.0"))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await anyio.lowlevel.checkpoint()
            await hands.write(1, "1.0", b"now\n", offset=0, close=True)
    assert heard == ["now\n"]


async def output_of_dead_hands_can_be_read(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await run(hands, "1.0", bash(SAY))
    await hands.start(1, "2.0", bash(LONG))
    await rig.kill(hands)
    assert await all_of(hands, "1.0", 2) == "hello\n"
    left = await hands.read(2, "2.0")
    assert (left.text, left.ended) == ("", True), left
    await refused(HandsError, lambda: hands.read(2, "3.0"))
    await hands.release(2)
    await refused(HandsLost, lambda: hands.read(2, "1.0"))


async def input_given_twice_is_given_once(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", GIVEN)
    await hands.write(1, "1.0", b"one ", offset=0)
    await hands.write(1, "1.0", b"one ", offset=0)
    await hands.write(1, "1.0", b"ne two", offset=1)
    await refused(HandsError, lambda: hands.write(1, "1.0", b"gap", offset=50))
    heir = await rig.provider.attach(hands.identity)
    for _ in range(2):
        await heir.write(2, "1.0", b" end", offset=7, close=True)
    result = await heir.wait(2, "1.0")
    assert result.output == "one two end", result
    await heir.write(2, "1.0", b" end", offset=7, close=True)
    await refused(HandsError, lambda: heir.write(2, "1.0", b"more", offset=11))


async def input_is_closed_unless_requested(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    assert (await run(hands, "1.0", bash(ECHO))).output == ""
    await hands.start(1, "2.0", bash(LONG))
    await refused(HandsError, lambda: hands.write(1, "2.0", b"x", offset=0))
    await refused(HandsError, lambda: hands.write(1, "9.0", b"x", offset=0))
    await hands.kill(1, "2.0")


async def a_pause_stops_time(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", bash(LONG, timeout_s=1.0))
    await hands.start(1, "2.0", bash(LONG))
    for _ in range(2):
        await hands.pause(1)
    await anyio.sleep(1.1)
    assert (await hands.status(1, "1.0")).state == "running"
    await refused(HandsError, lambda: hands.start(1, "3.0", bash(MARK)))
    await hands.kill(1, "2.0")
    assert (await hands.wait(1, "2.0")).cancelled, "a kill needs no resume"
    for _ in range(2):
        await hands.resume(1)
    assert (await hands.status(1, "1.0")).state == "running", "a pause stops the time limit"
    assert (await hands.wait(1, "1.0")).timed_out
    assert (await run(hands, "3.0", bash(SAY))).ok


async def a_folder_goes_out_and_in(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    content = "x" * 3_000_000
    await run(hands, "1.0", tool("write", file_path="out/a/b.txt", content="one\n"))
    await run(hands, "1.1", tool("write", file_path="out/large", content=content))
    tar = io.BytesIO()
    size = await hands.pack(1, "out", tar)
    assert size == len(tar.getvalue()) > len(content)
    tar.seek(0)
    assert await hands.unpack(1, "in", tar) >= 2
    assert (await run(hands, "1.2", tool("read", file_path="in/a/b.txt"))).output == "     1\tone"
    again = io.BytesIO()
    await hands.pack(1, "in", again)
    assert len(again.getvalue()) == size


def _tar(change: Callable[[tarfile.TarInfo], None]) -> io.BytesIO:
    """A tar of one valid file and one entry altered by `change`."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        good = tarfile.TarInfo("good")
        good.size = 2
        archive.addfile(good, io.BytesIO(b"ok"))
        entry = tarfile.TarInfo("entry")
        change(entry)
        archive.addfile(entry)
    out.seek(0)
    return out


async def no_tar_leaves_its_folder(rig: Rig) -> None:
    def named(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> Callable[[tarfile.TarInfo], None]:
        def change(entry: tarfile.TarInfo) -> None:
            entry.name, entry.type, entry.linkname = name, kind, link

        return change

    hands = await rig.provider.provision(rig.spec(), 1)
    for number, change in enumerate(
        (
            named("../up"),
            named("a/../../up"),
            named("/absolute"),
            named("entry", tarfile.SYMTYPE, "/etc/passwd"),
            named("a/entry", tarfile.SYMTYPE, "../../up"),
            named("entry", tarfile.LNKTYPE, "../up"),
            named("entry", tarfile.LNKTYPE, "/etc/passwd"),
            named("entry", tarfile.CHRTYPE),
            named("entry", tarfile.BLKTYPE),
            named("entry", tarfile.FIFOTYPE),
        )
    ):
        tar = _tar(change)
        await refused(HandsError, lambda tar=tar, number=number: hands.unpack(1, f"to{number}", tar))  # type: ignore[misc]
    assert (await run(hands, "1.0", tool("read", file_path="up"))).ok is False
    await refused(HandsError, lambda: hands.unpack(1, "to", io.BytesIO(b"no tar" * 1000)))
    good = _tar(named("more"))
    assert await hands.unpack(1, "to", good) == 2


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


async def a_job_of_dead_hands_is_unknown(rig: Rig) -> None:
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


async def the_end_of_a_job_is_notified(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(STEPS))
    assert await rig.heard(1) == [("1.0", "exit")]
    assert (await hands.status(1, "1.0")).state == "finished", "told when it is known"
    await run(hands, "2.0", bash(STEPS))
    await hands.start(1, "3.0", job(LONG, 0.2))
    assert (await rig.heard(2))[1:] == [("3.0", "exit")], "a call's end is no news"


async def an_awaited_end_is_not_notified(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(LONG))
    async with anyio.create_task_group() as group:
        group.start_soon(hands.wait, 1, "1.0")
        await anyio.wait_all_tasks_blocked()
        await hands.status(1, "1.0")
        await hands.kill(1, "1.0")
    await hands.start(1, "2.0", job(STEPS))
    assert await rig.heard(1) == [("2.0", "exit")]


async def a_matched_line_is_notified(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(STEPS, line="2$"))
    assert sorted(await rig.heard(2)) == [("1.0", "exit"), ("1.0", "line")]


async def the_death_of_hands_with_a_job_is_notified(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(LONG, DAYS_S))
    await hands.start(1, "2.0", bash(LONG))
    await rig.kill(hands)
    assert await rig.heard(1) == [("1.0", "lost")]


async def released_hands_notify_nothing(rig: HearingRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", job(LONG, DAYS_S))
    await hands.release(1)
    other = await rig.provider.provision(rig.spec(), 1)
    await other.start(1, "2.0", job(STEPS))
    assert await rig.heard(1) == [("2.0", "exit")]


NEWS: tuple[NewsCheck, ...] = (
    the_end_of_a_job_is_notified,
    an_awaited_end_is_not_notified,
    a_matched_line_is_notified,
    the_death_of_hands_with_a_job_is_notified,
    released_hands_notify_nothing,
)
"""The checks of job notifications."""
