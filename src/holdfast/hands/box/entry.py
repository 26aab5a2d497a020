"""Where a supervisor begins: it leaves whoever started it, makes its sandbox, says how that went."""

from __future__ import annotations

import json
import os
import signal
import sys

from holdfast.hands.box import herald
from holdfast.hands.box.journal import JournalFull
from holdfast.hands.box.supervisor import Supervisor
from holdfast.hands.box.watch import LOG
from holdfast.hands.box.wire import Message, encode


def _leave(launch: Message) -> int:
    """Leave the process session and the parent behind: what ends them does not reach us.

    The one in between stays as the herald, when there is something to tell: returns the descriptor that leads to it.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    source, to = os.pipe2(os.O_CLOEXEC) if launch["on_news"] else (-1, -1)
    if os.fork():
        if source >= 0:
            os.close(to)
            herald.become(source, launch["on_news"])
        os._exit(0)
    if source >= 0:
        os.close(source)
    return to


def main() -> None:
    """Standard input: the launch. Standard output: one line that says whether it went well."""
    launch = json.loads(sys.stdin.buffer.read())
    to = _leave(launch)
    supervisor, log = None, -1
    try:
        log = os.open(os.path.join(launch["folder"], "supervisor.log"), LOG, 0o600)
        supervisor = Supervisor(launch, herald.Herald(to))
        problem = supervisor.meet()
    except (OSError, JournalFull, KeyError, ValueError) as error:
        problem = f"the supervisor could not start: {error}"
    if problem and supervisor is not None:
        supervisor.clean()
    try:
        os.write(1, encode({"ok": not problem, "problem": problem, "pid": os.getpid()}))
    except OSError:
        pass  # who asked for these hands is dead: they will be found idle and unclaimed
    if problem or supervisor is None:
        return
    null = os.open("/dev/null", os.O_RDWR)
    for fd, to in ((null, 0), (null, 1), (log, 2)):
        os.dup2(fd, to, inheritable=False)
    try:
        supervisor.serve()
    finally:
        supervisor.clean()
