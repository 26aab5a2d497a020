"""What real commands print and are given, while they run: bounded, safe to read, nothing of it cut."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from holdfast.errors import HandsError
from holdfast.hands.base import ExecRequest, Hands
from holdfast.testing.hands import all_of, bash, job, run
from tests.hands.rigs import RealRig
from tests.support.waiting import PATIENCE_S

KEPT = 1 << 20


def output(rig: RealRig, hands: Hands) -> Path:
    """The folder of its output on the host."""
    return rig.folder / hands.identity.hands_id / "output"


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


async def test_a_talkative_job_keeps_its_beginning_and_its_latest(rig: RealRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    command = "seq -f %09.0f 1 2000000; while [ ! -e go ]; do sleep 0.01; done; echo end"
    await hands.start(1, "1.0", job(command, keep_bytes=KEPT))
    assert (await hands.read(1, "1.0", 19_999_999, wait_s=PATIENCE_S)).text == "\n", "its last byte is kept"
    early = await hands.read(1, "1.0", 100, max_bytes=10)
    assert (early.seq, early.text, early.dropped) == (100, "000000011\n", 0)
    gone = await hands.read(1, "1.0", 10_000_000, max_bytes=10)
    assert gone.dropped > 5_000_000
    assert gone.seq == 10_000_000 + gone.dropped
    late = await hands.read(1, "1.0", 19_999_990)
    assert (late.text, late.dropped, late.ended) == ("002000000\n", 0, False)
    assert size(output(rig, hands)) <= KEPT * 1.2, "what is kept has a bound"
    (rig.workspace / "go").touch()
    result = await hands.wait(1, "1.0")
    assert (result.bytes_total, result.truncated) == (20_000_004, True)
    assert result.output.startswith("000000001\n")
    assert result.output.endswith("002000000\nend\n")
    last = await hands.read(1, "1.0", 20_000_000)
    assert (last.text, last.ended) == ("end\n", True)
    await rig.kill(hands)
    assert (await hands.read(2, "1.0", 20_000_000)).text == "end\n", "the dead leave their output"


async def test_short_output_leaves_no_file(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    await hands.start(1, "1.0", bash("echo kept; while [ ! -e go ]; do sleep 0.01; done"))
    assert (await hands.read(1, "1.0", wait_s=10.0)).text == "kept\n"
    (one.workspace / "go").touch()
    await hands.wait(1, "1.0")
    assert list(output(one, hands).iterdir()) == []
    assert await all_of(hands, "1.0") == "kept\n"


async def test_bytes_that_are_no_text_keep_their_places(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    await run(hands, "1.0", bash(r"printf 'a\xff\xe2\x82z\xe2\x82'"))
    pieces = [await hands.read(1, "1.0", at) for at in range(8)]
    assert [piece.text for piece in pieces] == ["a��z�", "��z�", "�z�", "�z�", "z�", "�", "�", ""]
    assert {piece.next_seq for piece in pieces} == {7}
    assert all(piece.ended for piece in pieces)


@pytest.mark.parametrize(
    "trick", ["ln -s {secret} {file}", "ln {secret} {file} 2>/dev/null", "mkfifo {file}", "mkdir {file}"]
)
async def test_an_output_file_that_is_another_is_not_read(one: RealRig, trick: str) -> None:
    """A command can put anything where its output is kept: the supervisor, who is another user, reads only that."""
    secret = one.workspace / "secret"
    secret.write_text("canary")
    hands = await one.provider.provision(one.spec(), 1)
    (one.workspace / "hers").write_text("canary")
    file = output(one, hands) / "1_0.txt"
    swap = f"echo begun; until [ -s {file} ]; do sleep 0.01; done; rm {file}; " + trick.format(secret=secret, file=file)
    await hands.start(1, "1.0", bash(f"{swap}; touch swapped; sleep 60"))
    with anyio.fail_after(PATIENCE_S):
        while not (one.workspace / "swapped").exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.01)
        assert (await hands.read(1, "1.0")).text in ("", "begun\n")
    await hands.kill(1, "1.0")
    assert (await hands.wait(1, "1.0")).output == "begun\n", "the result does not come from the file"


async def test_input_that_is_not_read_has_a_bound(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    command = "while [ ! -e go ]; do sleep 0.01; done; wc -c"
    await hands.start(1, "1.0", ExecRequest("bash", {"command": command, "stdin": True}, 60.0))
    data = bytes(3 << 20)
    with pytest.raises(HandsError, match="has not read"):
        await hands.write(1, "1.0", data, offset=0, close=True)
    (one.workspace / "go").touch()
    await hands.write(1, "1.0", data, offset=0, close=True)
    assert (await hands.wait(1, "1.0")).output == f"{len(data)}\n", "given again, and not twice"


async def test_a_command_may_close_its_input(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    command = "exec < /dev/null; touch closed; while [ ! -e go ]; do sleep 0.01; done; echo done"
    await hands.start(1, "1.0", ExecRequest("bash", {"command": command, "stdin": True}, 60.0))
    with anyio.fail_after(PATIENCE_S):
        while not (one.workspace / "closed").exists():  # noqa: ASYNC110 - another process makes it
            await anyio.sleep(0.01)
    await hands.write(1, "1.0", bytes(2 << 20), offset=0)
    (one.workspace / "go").touch()
    assert (await hands.wait(1, "1.0")).output == "done\n"


async def test_the_end_of_input_comes_beside_a_search_for_a_line(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    await hands.start(1, "1.0", job("cat", 10.0, stdin=True, line="never"))
    await hands.write(1, "1.0", b"all", offset=0, close=True)
    result = await hands.wait(1, "1.0")
    assert (result.ok, result.output) == (True, "all")
