"""Checks of calls and file tools: repeated ids, epochs, results after a crash (S7 to S10), stale files (S18)."""

from __future__ import annotations

import hashlib
import io

import anyio
import msgspec

from holdfast.errors import Fenced, HandsError, HandsLost
from holdfast.hands.base import Hands
from holdfast.testing.hands.rig import COUNT, FAIL, LONG, MARK, SAY, Rig, bash, refused, run, tool


async def _marks(hands: Hands, call_id: str, epoch: int = 1) -> int:
    return len((await run(hands, call_id, bash(COUNT), epoch)).output)


async def a_result_says_how_a_command_ended(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    good = await run(hands, "1.0", bash(SAY))
    assert (good.ok, good.output, good.exit_code) == (True, "hello\n", 0), good
    bad = await run(hands, "1.1", bash(FAIL))
    assert (bad.ok, bad.output, bad.exit_code) == (False, "no\n", 3), bad


async def a_call_id_runs_once(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    for _ in range(3):
        await run(hands, "1.0", bash(MARK))
    await hands.start(1, "1.0", bash(FAIL))
    assert (await hands.wait(1, "1.0")).exit_code == 0
    assert await _marks(hands, "2.0") == 1


async def status_tells_the_three_states_of_a_call(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    assert (await hands.status(1, "1.0")).state == "never_started"
    await hands.start(1, "1.0", bash(LONG))
    assert (await hands.status(1, "1.0")).state == "running"
    await hands.kill(1, "1.0")
    result = await hands.wait(1, "1.0")
    status = await hands.status(1, "1.0")
    assert status.state == "finished"
    assert status.result == result


async def attaching_finds_running_calls(rig: Rig) -> None:
    first = await rig.provider.provision(rig.spec(), 1)
    done = await run(first, "1.0", bash(SAY))
    await first.start(1, "2.0", bash(LONG))
    second = await rig.provider.attach(first.identity)
    await second.fence(2)
    assert (await second.status(2, "1.0")).result == done
    assert (await second.status(2, "2.0")).state == "running"
    await second.kill(2, "2.0")
    assert (await second.wait(2, "2.0")).cancelled


async def giving_up_waiting_ends_nothing(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", bash(LONG))
    with anyio.move_on_after(0.05):
        await hands.wait(1, "1.0")
        raise AssertionError("a command of a minute was over at once")
    assert (await hands.status(1, "1.0")).state == "running"
    await hands.kill(1, "1.0")


async def a_kill_ends_a_call_as_cancelled(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", bash(LONG))
    await hands.kill(1, "1.0")
    result = await hands.wait(1, "1.0")
    assert result.cancelled
    assert not result.ok
    await hands.kill(1, "1.0")
    assert (await hands.wait(1, "1.0")) == result


async def a_time_limit_ends_a_call(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    result = await run(hands, "1.0", bash(LONG, timeout_s=0.2))
    assert result.timed_out
    assert not result.ok
    assert not result.cancelled


async def a_stale_epoch_is_refused_at_every_verb(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 3)
    await hands.fence(5)
    await refused(Fenced, lambda: hands.fence(4))
    await refused(Fenced, lambda: hands.start(4, "1.0", bash(MARK)))
    await refused(Fenced, lambda: hands.wait(4, "1.0"))
    await refused(Fenced, lambda: hands.kill(4, "1.0"))
    await refused(Fenced, lambda: hands.status(4, "1.0"))
    await refused(Fenced, lambda: hands.read(4, "1.0"))
    await refused(Fenced, lambda: hands.write(4, "1.0", b"x", offset=0))
    await refused(Fenced, lambda: hands.pause(4))
    await refused(Fenced, lambda: hands.resume(4))
    await refused(Fenced, lambda: hands.pack(4, ".", io.BytesIO()))
    await refused(Fenced, lambda: hands.unpack(4, ".", io.BytesIO()))
    await refused(Fenced, lambda: hands.release(4))
    assert (await hands.status(5, "1.0")).state == "never_started"
    assert await _marks(hands, "2.0", 5) == 0


async def any_verb_of_a_higher_epoch_shuts_lower_ones_out(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.status(2, "1.0")
    await refused(Fenced, lambda: hands.start(1, "1.0", bash(MARK)))
    assert await _marks(hands, "2.0", 2) == 0


async def dead_hands_testify_by_their_journal(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    done = await run(hands, "1.0", bash(SAY))
    await hands.start(1, "2.0", bash(LONG))
    await rig.kill(hands)
    for witness in (hands, await rig.provider.attach(hands.identity)):
        kept = await witness.status(2, "1.0")
        assert kept.state == "finished"
        assert kept.result == done
        assert (await witness.status(2, "2.0")).state == "unknown"
        assert (await witness.status(2, "3.0")).state == "never_started"
        assert await witness.wait(2, "1.0") == done
        await refused(HandsLost, lambda witness=witness: witness.fence(2))  # type: ignore[misc]
        await refused(HandsLost, lambda witness=witness: witness.start(2, "3.0", bash(MARK)))  # type: ignore[misc]
        await refused(HandsLost, lambda witness=witness: witness.wait(2, "2.0"))  # type: ignore[misc]
        await refused(HandsLost, lambda witness=witness: witness.kill(2, "2.0"))  # type: ignore[misc]
        await refused(HandsLost, lambda witness=witness: witness.pause(2))  # type: ignore[misc]
        await refused(HandsLost, lambda witness=witness: witness.pack(2, ".", io.BytesIO()))  # type: ignore[misc]


async def a_dead_journal_is_fenced_too(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 2)
    await hands.fence(5)
    await rig.kill(hands)
    await refused(Fenced, lambda: hands.status(4, "1.0"))
    await refused(Fenced, lambda: hands.release(4))
    assert (await hands.status(5, "1.0")).state == "never_started"


async def waiting_ends_when_the_hands_die(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", bash(LONG))
    heard: list[str] = []

    async def wait() -> None:
        await refused(HandsLost, lambda: hands.wait(1, "1.0"))
        heard.append("lost")

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            await rig.kill(hands)
    assert heard == ["lost"]


async def another_boot_or_host_proves_nothing(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await run(hands, "1.0", bash(SAY))
    for change in ({"boot_id": "another"}, {"host_id": "another"}):
        foreign = await rig.provider.attach(msgspec.structs.replace(hands.identity, **change))
        assert (await foreign.status(1, "1.0")).state == "unknown"
        assert (await foreign.status(1, "9.0")).state == "unknown"
        await refused(HandsLost, lambda foreign=foreign: foreign.fence(1))  # type: ignore[misc]
        await foreign.release(1)
    assert (await hands.status(1, "1.0")).state == "finished"


async def another_incarnation_proves_nothing(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await run(hands, "1.0", bash(SAY))
    other = await rig.provider.provision(rig.spec(), 1)
    assert (await other.status(1, "1.0")).state == "never_started"
    unknown = await rig.provider.attach(
        msgspec.structs.replace(hands.identity, hands_id="hnd_nobody", address="nowhere")
    )
    assert (await unknown.status(1, "1.0")).state == "unknown"
    await unknown.release(1)


async def a_hands_id_is_used_once(rig: Rig) -> None:
    spec = rig.spec()
    hands = await rig.provider.provision(spec, 1)
    await refused(HandsError, lambda: rig.provider.provision(spec, 1))
    assert (await run(hands, "1.0", bash(SAY))).ok


async def release_ends_everything_and_repeats(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await hands.start(1, "1.0", bash(LONG))
    await hands.release(1)
    await hands.release(1)
    assert (await hands.status(1, "1.0")).state == "unknown"
    await refused(HandsLost, lambda: hands.start(1, "2.0", bash(MARK)))
    dead = await rig.provider.provision(rig.spec(), 1)
    await rig.kill(dead)
    await dead.release(1)
    await dead.release(1)
    assert (await dead.status(1, "1.0")).state == "unknown"


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def a_file_must_have_been_read_before_it_is_changed(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    path = f"{hands.identity.root}/a/b.txt"
    made = await run(hands, "1.0", tool("write", file_path="a/b.txt", content="one\ntwo\n"))
    assert made.ok, made
    assert [(seen.path, seen.digest) for seen in made.files] == [(path, _sha(b"one\ntwo\n"))]
    blind = await run(hands, "1.1", tool("write", file_path=path, content="lost"))
    assert not blind.ok
    assert "read it first" in blind.output, blind
    stale = await run(hands, "1.2", tool("edit", {path: _sha(b"old")}, file_path=path, old_string="o", new_string="0"))
    assert not stale.ok
    assert "has changed since it was last read" in stale.output, stale
    read = await run(hands, "1.3", tool("read", file_path="a/b.txt"))
    assert read.output == "     1\tone\n     2\ttwo", read
    seen = {item.path: item.digest for item in read.files}
    edited = await run(hands, "1.4", tool("edit", seen, file_path=path, old_string="two", new_string="2"))
    assert edited.ok, edited
    assert edited.files[0].digest == _sha(b"one\n2\n")
    again = await run(hands, "1.5", tool("write", {path: _sha(b"one\n2\n")}, file_path="a/../a/b.txt", content="x"))
    assert again.ok, again
    assert again.files[0].path == path


async def an_edit_names_one_place(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    made = await run(hands, "1.0", tool("write", file_path="f", content="a b a"))
    seen = {item.path: item.digest for item in made.files}
    twice = await run(hands, "1.1", tool("edit", seen, file_path="f", old_string="a", new_string="c"))
    assert not twice.ok
    assert "occurs 2 times" in twice.output
    never = await run(hands, "1.2", tool("edit", seen, file_path="f", old_string="z", new_string="c"))
    assert not never.ok
    assert "does not occur" in never.output
    absent = await run(hands, "1.3", tool("edit", file_path="g", old_string="z", new_string="c"))
    assert not absent.ok
    assert "does not exist" in absent.output
    whole = await run(hands, "1.4", tool("edit", seen, file_path="f", old_string="a", new_string="c", replace_all=True))
    assert whole.ok
    assert (await run(hands, "1.5", tool("read", file_path="f"))).output == "     1\tc b c"


async def files_are_found_by_name_and_by_content(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    for number, name in enumerate(("src/a.py", "src/deep/b.py", "notes.md")):
        await run(hands, f"1.{number}", tool("write", file_path=name, content=f"line\nneedle {number}\n"))
    found = await run(hands, "2.0", tool("glob", pattern="src/**/*.py"))
    assert sorted(found.output.split("\n")) == ["src/a.py", "src/deep/b.py"], found
    newest = await run(hands, "2.1", tool("glob", pattern="**/*.{py,md}"))
    assert newest.output.split("\n") == ["notes.md", "src/deep/b.py", "src/a.py"], newest
    lines = await run(hands, "2.2", tool("grep", pattern=r"needle [01]$", path="src"))
    assert sorted(lines.output.split("\n")) == ["src/a.py:2:needle 0", "src/deep/b.py:2:needle 1"], lines
    nothing = await run(hands, "2.3", tool("grep", pattern="absent"))
    assert (nothing.ok, nothing.output) == (True, "[no line matches]")
    broken = await run(hands, "2.4", tool("grep", pattern="("))
    assert not broken.ok
    assert "not a regular expression" in broken.output


async def a_read_is_bounded_and_says_how_to_go_on(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    text = "".join(f"line {number}\n" for number in range(1, 5001))
    await run(hands, "1.0", tool("write", file_path="long", content=text))
    first = await run(hands, "1.1", msgspec.structs.replace(tool("read", file_path="long"), output_cap=2000))
    assert len(first.output) < 2200
    assert "has 5000 lines" in first.output
    assert "view_range" in first.output
    part = await run(hands, "1.2", tool("read", file_path="long", view_range=[4999, -1]))
    assert part.output == "  4999\tline 4999\n  5000\tline 5000"
    absent = await run(hands, "1.3", tool("read", file_path="nowhere"))
    assert not absent.ok
    assert "no such file" in absent.output


async def reads_may_run_side_by_side(rig: Rig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await run(hands, "1.0", tool("write", file_path="f", content="x"))
    for number in range(8):
        await hands.start(1, f"2.{number}", tool("read", file_path="f"))
    outputs = [(await hands.wait(1, f"2.{number}")).output for number in range(8)]
    assert outputs == ["     1\tx"] * 8
