"""The process beside a supervisor that measures its sandbox's usage and reports calls that exceed a limit.

It sleeps while no call runs. During calls it checks every few milliseconds: the kernel's counters if a control group
holds the sandbox, otherwise the processes themselves, and the free space of the disk, whose fall makes it count the
folders that these hands may fill. It ends with its steward.

In: {began: call, pid} (the pid inside), {ended: call}. Out: {over: limit, call}, {near: limit, call}, {again: true}.
"""

from __future__ import annotations

import base64
import os
import select
import signal
import time
from typing import Any, NoReturn

from holdfast.hands.box import processes
from holdfast.hands.box.supervisor import quota, usage
from holdfast.hands.box.supervisor.cgroups import Group
from holdfast.hands.box.wire import Channel, Message
from holdfast.privileges import CAP_DAC_READ_SEARCH, CAP_KILL, CAP_SYS_PTRACE, die_with, give_up

QUICK_S = 0.05
"""Seconds between two checks when memory is summed over processes and may reach its limit."""

CALM_S = 0.25
"""Seconds between two checks when it cannot."""

FAST = 4 << 30
"""Bytes per second at which memory may be allocated."""

SPARE = 16
"""Fraction of the machine's memory reserved for others, whatever is counted: one part in this many."""

STUCK_S = 1.0
"""Seconds that new processes must be refused before the call is ended for it."""

SETTLE_S = 0.2
"""Seconds that a call may take to end by itself after the kernel killed a process of it."""

PASSES = 3
"""Passes to find and stop the processes of a fork bomb before it is ended."""

DYING_S = 5.0
"""Seconds that a call over a limit may take to end before another one is selected."""


WATCHERS = (CAP_DAC_READ_SEARCH, CAP_KILL, CAP_SYS_PTRACE)
"""Capabilities that root's watcher keeps: to measure another user's folders and memory, and stop their processes."""


class Run:
    """One running call: its pid inside, and its process here once found."""

    def __init__(self, inner: int) -> None:
        self.inner = inner
        self.pid = 0
        self.began = time.monotonic()


class Watcher:
    """The main loop."""

    def __init__(
        self, link: Channel, supervisor: int, holding: dict[str, Any], group: Group, meminfo: str = "/proc/meminfo"
    ) -> None:
        self._link = link
        self._meminfo = meminfo
        self._free = 0
        self._supervisor = supervisor
        self._spare = frozenset({os.getpid(), os.getppid()})
        self._memory: int | None = holding["memory_bytes"]
        self._processes: int | None = holding["processes"]
        self._group = group
        self._counted = group.counters()
        self._runs: dict[str, Run] = {}
        self._disk = quota.Quota(holding, lambda: usage.Tree(supervisor, self._spare).all.pids)
        self._refused: tuple[float, float] | None = None
        self._heavy = ("", 0)
        self._oom: tuple[float, frozenset[str]] | None = None
        self._dying: tuple[str, float] = ("", 0.0)
        self._checked = (0.0, 0)

    def serve(self) -> None:
        """Run until the supervisor is gone."""
        poll = select.poll()
        poll.register(self._link.fd, select.POLLIN)
        pause = self._look(time.monotonic())
        while not self._link.closed:
            walking = self._disk.fd
            if walking >= 0:
                poll.register(walking, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(None if pause is None else pause * 1000 + 1)}
            if walking >= 0:
                poll.unregister(walking)
                if walking in ready:
                    self._disk.hear()
            if self._link.fd in ready:
                for message in self._link.receive():
                    self._take(message)
            pause = self._look(time.monotonic())

    def _take(self, message: Message) -> None:
        if "began" in message:
            if not self._runs:
                self._counted = self._group.counters()
                self._free, _ = usage.available(self._meminfo)
            self._runs[message["began"]] = Run(int(message["pid"]))
        else:
            self._runs.pop(message["ended"], None)
            if message["ended"] == self._dying[0]:
                self._disk.struck()
            if not self._runs:
                self._disk.rest()

    def _look(self, now: float) -> float | None:
        """Check once. Returns the seconds until the next check, None while nothing runs."""
        wait = self._disk.look(now, bool(self._runs))
        if not self._runs:
            self._refused = self._oom = None
            self._disk.over = ""
            return wait
        if self._dying[0] in self._runs and now < self._dying[1]:
            return QUICK_S
        if self._group.folders:
            rest = self._kernel(now)
        else:
            rest = self._processes_themselves(now)
        if self._disk.over:
            self._strike(self._disk.over, self._writer(), now)
            self._disk.struck()
        return rest if wait is None else min(rest, wait)

    # --- with the kernel's counters ---

    def _kernel(self, now: float) -> float:
        used = self._group.used()  # before the counters: memory that a kill has freed is then a kill that they show
        found, before = self._group.counters(), self._counted
        self._counted = found
        killed = found["memory"] > before["memory"]
        if self._oom is None and len(self._runs) > 1 and self._memory:
            self._remember(used > self._memory // 4, killed)
        if killed and self._oom is None:
            self._oom = (now, frozenset(self._runs))
        if self._oom is not None and (len(self._oom[1]) == 1 or now >= self._oom[0] + SETTLE_S):
            if self._oom[1] <= self._runs.keys():
                known = self._heavy[0] in self._oom[1]
                self._strike("memory", self._heavy[0] if known else self._largest(self._tree(), by="memory"), now)
            self._oom, self._heavy = None, ("", 0)
        refused = found["processes"] > before["processes"]
        if refused and self._refused is None:
            self._tell("near", "processes", self._largest(self._tree(), by="tasks"))
        self._at_most(refused or (self._refused is not None and self._group.full()), now)
        return QUICK_S

    def _remember(self, much: bool, killed: bool) -> None:
        """Remember the call that holds most memory, and how much: after a kill nothing shows any more whose it was.

        What was held at the look before a kill counts if it is more than any call still holds, however late this look.
        """
        if not (much or killed):
            self._heavy = ("", 0)
            return
        found = self._tree()
        call = self._largest(found, by="memory")
        held = found.below(self._runs[call].pid).memory
        if not killed or held > self._heavy[1]:
            self._heavy = (call, held)

    def _at_most(self, refused: bool, now: float) -> None:
        """Handle refused new processes: the program must cope with a few refusals, lasting ones end the call."""
        if refused:
            first = self._refused[0] if self._refused else now
            self._refused = (first, now)
            if now - first >= STUCK_S:
                self._strike("processes", self._largest(self._tree(), by="tasks"), now)
                self._refused = None
        elif self._refused and now - self._refused[1] >= STUCK_S / 2:
            self._refused = None

    # --- without them ---

    def _processes_themselves(self, now: float) -> float:
        if self._memory is None and self._processes is None:
            return CALM_S
        found = self._tree()
        if self._processes is not None:
            full = found.all.tasks >= self._processes
            if full and self._refused is None:
                self._tell("near", "processes", self._largest(found, by="tasks"))
            if found.all.tasks > self._processes * 2:
                self._strike("processes", self._largest(found, by="tasks"), now)
            self._at_most(full, now)
        if self._memory is None:
            return QUICK_S
        held = found.all.memory
        if self._starving() or (held > self._memory and self._really(found, now)):
            self._strike("memory", self._largest(found, by="memory"), now)
            return QUICK_S
        took = time.monotonic() - now
        return max(QUICK_S, took * 4, min(CALM_S, (self._memory - held) / FAST))

    def _starving(self) -> bool:
        """Return True if the machine ran low on memory since these calls began: not all of their memory is mapped."""
        free, most = usage.available(self._meminfo)
        return 0 < free < most // SPARE and self._free - free > (self._memory or 0)

    def _really(self, found: usage.Tree, now: float) -> bool:
        """Count shared memory once before a call is killed for it: each process reports all of it."""
        at, held = self._checked
        most = self._memory or 0
        if now < at + CALM_S and found.all.memory < held + (most >> 4):
            return False
        self._checked = (now, found.all.memory)
        return usage.proportional(found.all.pids) > most

    # --- the responsible call ---

    def _tree(self) -> usage.Tree:
        found = usage.Tree(self._supervisor, self._spare)
        for run in self._runs.values():
            run.pid = run.pid or found.pid_of(run.inner)
        return found

    def _largest(self, found: usage.Tree, *, by: str) -> str:
        """Return the running call that uses most of it."""
        return max(self._runs, key=lambda call: getattr(found.below(self._runs[call].pid), by))

    def _writer(self) -> str:
        """Return the running call that wrote most; if none wrote, the one that began last."""
        found = self._tree()

        def wrote(call: str) -> tuple[int, float]:
            run = self._runs[call]
            return usage.written(found.below(run.pid).pids), run.began

        return max(self._runs, key=wrote)

    def _strike(self, limit: str, call: str, now: float) -> None:
        """Report a call over its limit; the supervisor kills it.

        Urgent steps are taken here: for memory the largest process is killed; for other limits the processes of the
        call are stopped, because the agent inside would hardly get to run, or is stopped itself.
        """
        self._dying = (call, now + DYING_S)
        self._tell("over", limit, call)
        run = self._runs[call]
        if not run.pid:
            return
        for _ in range(1 if limit == "memory" else PASSES):
            below = usage.Tree(self._supervisor, self._spare).below(run.pid).pids
            entries = [entry for pid in below if pid != run.pid and (entry := processes.entry_of(pid))]
            if limit == "memory":
                for entry in sorted(entries, key=lambda entry: entry.pages)[-1:]:
                    processes.send(entry, signal.SIGKILL)
            else:
                for entry in entries:
                    if entry.state not in "TZX":
                        processes.send(entry, signal.SIGSTOP)

    def _tell(self, what: str, limit: str, call: str) -> None:
        self._link.send({what: limit, "call": call})


def filter_of(launch: dict[str, Any]) -> bytes:
    """Return the system call filter for processes beside a sandbox: none of them may start a program."""
    return base64.b64decode(launch["filter"])


def become(link: int, parent: int, supervisor: int, launch: dict[str, Any], group: Group, *, again: bool) -> NoReturn:
    """In a child of the steward: watch until it is gone. `again` if this watcher replaces an earlier one."""
    try:
        os.dup2(link, 3, inheritable=False)
        os.closerange(4, 65536)
        uid, gid = os.getuid(), os.getgid()
        give_up(uid=uid, gid=gid, keep=WATCHERS, filter_calls=filter_of(launch))
        die_with(parent, signal.SIGKILL)
        channel = Channel(3)
        if again:
            channel.send({"again": True})
        Watcher(channel, supervisor, launch["holding"], group).serve()
    except Exception as error:
        os.write(2, f"the watch over the limits: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)
