"""Output by position, input, standing still, folders as a tar."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable

import anyio

from holdfast.errors import HandsError, HandsLost
from holdfast.hands.base import ExecRequest
from holdfast.testing.hands.rig import ECHO, LONG, MARK, SAY, STEPS, Check, Rig, all_of, bash, refused, run, tool

GIVEN = ExecRequest("bash", {"command": ECHO, "stdin": True}, 30.0)
"""A command that says what it is given."""


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


async def who_reads_waits_for_more(rig: Rig) -> None:
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


async def what_the_dead_printed_can_be_read(rig: Rig) -> None:
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


async def without_being_asked_for_there_is_no_input(rig: Rig) -> None:
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
    assert (await hands.status(1, "1.0")).state == "running", "its time stood still"
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
    """A tar of one good file and one entry that `change` makes what it is."""
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


CHECKS: tuple[Check, ...] = (
    output_is_read_by_position,
    no_character_is_cut,
    who_reads_waits_for_more,
    what_the_dead_printed_can_be_read,
    input_given_twice_is_given_once,
    without_being_asked_for_there_is_no_input,
    a_pause_stops_time,
    a_folder_goes_out_and_in,
    no_tar_leaves_its_folder,
)
"""All of them, in the order to read them in."""
