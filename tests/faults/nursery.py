"""A process that has imported everything and forks brains on request: `python -m tests.faults.nursery`.

A brain is a process of its own that runs the product's `wake` from the command line down, with the
seams of `tests.faults.seams` in its doors. Forking saves each its start-up, so that hundreds of
deaths fit into a test run. Orders come in on standard input, one JSON object a line; a line goes out
for each birth and each death. The nursery has no threads, so forking is safe.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import traceback
from dataclasses import replace
from typing import NoReturn

import msgspec

from holdfast.app.call import Call
from holdfast.app.cli.start import start
from holdfast.app.compose import open_runtime
from holdfast.app.running.drive import drive, observer_for
from tests.faults.seams import Seam, Striker, StruckModel, StruckStore


class Order(msgspec.Struct, frozen=True):
    """One brain: `holdfast wake session --home home [--steal]`.

    Its words go to `said`.out and `said`.err, what the log acknowledged to it to `said`.acks.
    """

    number: int
    home: str
    session: str
    said: str
    steal: bool = False
    seams: tuple[Seam, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """A brain was born; with `status` (as waitpid gives it), it is dead."""

    number: int
    pid: int
    status: int | None = None


def brain(order: Order) -> int:
    """`holdfast wake`, in this process. Returns its exit status."""
    striker = Striker(order.seams, f"{order.said}.acks")
    striker.before("begin")

    async def run(call: Call) -> int:
        async with open_runtime(call.settings) as runtime:
            row = await runtime.store.find(order.session)
            doors = await runtime.doors_for(row.session_id, observer=observer_for(call, row))
            store = StruckStore(runtime.store, striker)
            find = doors.model
            doors = replace(doors, log=store, leases=store, model=lambda name: StruckModel(find(name), striker))
            return await drive(call, runtime, row.session_id, doors, steal=order.steal)

    words = argparse.Namespace(verb="wake", session=order.session, home=order.home, json=True, steal=order.steal)
    return start(run, words)


def live(order: Order) -> NoReturn:
    """In the child: be that brain, and end as it does."""
    status = 70
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        out, err = (os.open(f"{order.said}.{kind}", flags, 0o600) for kind in ("out", "err"))
        for fd, to in ((null, 0), (out, 1), (err, 2)):
            os.dup2(fd, to)
        os.closerange(3, 256)
        status = brain(order)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def say(report: Report) -> None:
    """A line on standard output."""
    os.write(1, msgspec.json.encode(report) + b"\n")


def main() -> None:
    """Serve until standard input ends; then every brain that is left is killed."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    brains: dict[int, tuple[int, int]] = {}
    rest = b""
    while True:
        for fd, _ in poll.poll():
            if fd != 0:
                number, pid = brains.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                say(Report(number, pid, os.waitpid(pid, 0)[1]))
                continue
            chunk = os.read(0, 65536)
            if not chunk:
                for _, pid in brains.values():
                    os.kill(pid, 9)
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                order = msgspec.json.decode(line, type=Order)
                pid = os.fork()
                if pid == 0:
                    live(order)
                handle = os.pidfd_open(pid)
                brains[handle] = order.number, pid
                poll.register(handle, select.POLLIN)
                say(Report(order.number, pid))


if __name__ == "__main__":
    main()
