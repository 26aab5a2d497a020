"""Standing still, and folders as a tar, on real hands."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import anyio
import pytest

from holdfast.errors import Fenced, HandsError
from holdfast.hands.base import Hands
from holdfast.hands.box.processes import Entry, descendants, entry_of
from holdfast.testing.hands import bash, run, service
from tests.hands.rigs import RealRig
from tests.support.child import command_of
from tests.support.waiting import PATIENCE_S


def states(word: str, found: list[Entry]) -> list[str]:
    """The states of the processes that are called so."""
    out = []
    for entry in found:
        now = entry_of(entry.pid)
        if now is not None and command_of(entry.pid).startswith(word.encode() + b"\0"):
            out.append(now.state)
    return out


async def test_all_stand_still_and_go_on(rig: RealRig, tmp_path: Path) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    word = f"busy-{os.getpid()}-{tmp_path.name}"
    await hands.start(1, "1.0", service("one", f"exec -a {word} bash -c 'while true; do :; done; # {word}'"))
    await hands.start(1, "1.1", bash(f"exec -a {word}-stopped bash -c 'kill -STOP $$; sleep 300'"))
    supervisor = rig.supervisor(hands)
    with anyio.fail_after(PATIENCE_S):
        while states(f"{word}-stopped", found := descendants(supervisor)) != ["T"] or not states(word, found):  # noqa: ASYNC110
            await anyio.sleep(0.01)  # other processes become what is waited for
    await hands.pause(1)
    found = descendants(supervisor)
    assert states(word, found) == ["T"]
    await hands.resume(1)
    assert states(word, found) == ["R"]
    assert states(f"{word}-stopped", found) == ["T"], "what was stopped by others stays so"
    await hands.release(1)


async def test_a_tar_comes_back_as_it_was(rig: RealRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    make = (
        "mkdir -p a/deep/empty && cd a && printf x > 'n\xc3\xa4me with space' && seq 100000 > long && ln -s long link "
        "&& ln long second && printf '#!/bin/sh' > run && chmod 750 run && mkfifo pipe && touch -d @1000000000 long "
        "&& printf odd > $'\\xff'"
    )
    assert (await run(hands, "1.0", bash(make))).ok
    tar = io.BytesIO()
    await hands.pack(1, "a", tar)
    tar.seek(0)
    await hands.unpack(1, "b", tar)
    show = "cd {} && find . ! -name pipe ! -type d -printf '%P %y %m %l %n %s %Ts\\n' | sort; find . -type d | sort"
    first = await run(hands, "2.0", bash(show.format("a")))
    assert first.output
    assert first.output == (await run(hands, "2.1", bash(show.format("b")))).output
    assert (await run(hands, "2.2", bash("rm a/pipe; diff -r a b && stat -c %h b/second"))).output == "2\n"


@pytest.mark.parametrize("size", [0, 1_050_000, 1_060_000])
async def test_a_tar_of_any_size_comes_to_its_end(one: RealRig, size: int) -> None:
    """Its end falls before, on and behind the end of a piece."""
    hands = await one.provider.provision(one.spec(), 1)
    (one.workspace / "a").mkdir()
    (one.workspace / "a" / "file").write_bytes(bytes(size))
    tar = io.BytesIO()
    with anyio.fail_after(PATIENCE_S):
        await hands.pack(1, "a", tar)
    tar.seek(0)
    with tarfile.open(fileobj=tar) as archive:
        assert archive.getmember("file").size == size


async def refuses(hands: Hands, made: io.BytesIO, words: str) -> None:
    made.seek(0)
    with pytest.raises(HandsError, match=words):
        await hands.unpack(1, "to", made)


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    out = tarfile.TarInfo(name)
    out.type, out.linkname, out.mode = kind, link, mode
    return out


def tar_of(*entries: tarfile.TarInfo) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for item in entries:
            archive.addfile(item, io.BytesIO(bytes(item.size)))
    out.seek(0)
    return out


async def test_nothing_is_written_through_a_link(rig: RealRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    await run(hands, "1.0", bash("mkdir to out; ln -s ../out to/planted; printf old > out/file; ln out/file to/shared"))
    await refuses(hands, tar_of(entry("planted/x")), "'planted' is a link")
    own = (entry("sub", tarfile.DIRTYPE), entry("own", tarfile.SYMTYPE, "sub"), entry("own/x"))
    await refuses(hands, tar_of(*own), "'own' is a link")
    chain = (entry("d", tarfile.DIRTYPE), entry("d/e", tarfile.DIRTYPE), entry("s", tarfile.SYMTYPE, "d/e/.."))
    sly = (*chain, entry("d/e", tarfile.SYMTYPE, "."), entry("leak", tarfile.SYMTYPE, "planted/../.."))
    await refuses(hands, tar_of(*sly), "link|directory|folder")
    await refuses(hands, tar_of(entry("leak", tarfile.SYMTYPE, "planted/../secret")), "leads out")
    assert not (rig.workspace / "to" / "leak").is_symlink(), "a link that leads out is taken away"
    await refuses(hands, tar_of(entry("second", tarfile.LNKTYPE, "planted/file")), "is a link")
    made = tar_of(entry("shared"))
    await hands.unpack(1, "to", made)
    assert (rig.workspace / "out" / "file").read_text() == "old", "a file with a second name is replaced, not written"


async def test_no_right_is_lent(rig: RealRig) -> None:
    hands = await rig.provider.provision(rig.spec(), 1)
    made = tar_of(entry("tool", mode=0o6755), entry("dir", tarfile.DIRTYPE, mode=0o3777), entry("none", mode=0))
    await hands.unpack(1, "to", made)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (rig.workspace / "to").iterdir()}
    assert modes == {"tool": 0o755, "dir": 0o777, "none": 0o600}


async def test_a_tar_that_is_cut_short_is_refused(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    large = entry("large")
    large.size = 100_000
    whole = tar_of(large).getvalue()
    with pytest.raises(HandsError, match="not moved whole"):
        await hands.unpack(1, "to", io.BytesIO(whole[:50_000]))
    with pytest.raises(HandsError, match="no folder"):
        await hands.pack(1, "nowhere", io.BytesIO())
    await run(hands, "1.0", bash("mkdir shut; touch shut/file; chmod 0 shut/file"))
    with pytest.raises(HandsError, match="shut/file"):
        await hands.pack(1, "shut", io.BytesIO())


class Slow(io.BytesIO):
    """A target that is not written to before it may be."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = anyio.Event()

    def write(self, data: object) -> int:
        anyio.from_thread.run_sync(self.begun.set)
        return super().write(data)  # type: ignore[arg-type]


async def test_a_later_epoch_ends_what_is_moved(one: RealRig) -> None:
    hands = await one.provider.provision(one.spec(), 1)
    await run(hands, "1.0", bash("mkdir a; head -c 30000000 /dev/zero > a/large"))
    heir = await one.provider.attach(hands.identity)
    target = Slow()
    ended: list[str] = []

    async def pack() -> None:
        try:
            await hands.pack(1, "a", target)
        except Fenced:
            ended.append("fenced")

    async with anyio.create_task_group() as group:
        group.start_soon(pack)
        await target.begun.wait()
        await heir.fence(2)
    assert ended == ["fenced"]
    for _ in range(8):
        await hands._talk.ask("transfer", 2, op="pack", path="a")  # type: ignore[attr-defined]
    with pytest.raises(HandsError, match="being moved already"):
        await heir.pack(2, "a", io.BytesIO())
    await heir.fence(3)
    whole = io.BytesIO()
    assert await heir.pack(3, "a", whole) > 30_000_000
