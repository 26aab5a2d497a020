"""Hands without a sandbox, for a user who selects it with --no-sandbox.

Same supervisor, same agent, same journal and verbs; but commands see and change whatever their user can. As root they
still run as another user, by the same rules as in the sandbox; only `--user root` together with --no-sandbox runs them
as root, since the user then requested it twice.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import anyio
import msgspec

from holdfast.errors import SandboxUnavailable
from holdfast.facts.base import Isolation
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import Capabilities, Finding, HandsSpec
from holdfast.hands.incarnation import PATH, Maker, Plan
from holdfast.hands.launch import PYTHON, Limits, Lives, agent_command, agent_parts, blob
from holdfast.hands.probe import about_here
from holdfast.hands.supervised import SupervisedHands
from holdfast.hands.talk import ANSWER_S
from holdfast.hands.user import HandsUser, choose_user, make_ready

ISOLATION: dict[str, Isolation] = {
    kind: "none" for kind in ("files", "network", "processes", "syscalls", "users", "memory", "disk", "cpu")
}


class UnsandboxedProvider:
    """Creates hands that isolate nothing.

    `read_only` extras of a spec stay at their place on the host; values of its `env` that name their paths in the
    sandbox are changed to those on the host.
    """

    def __init__(
        self,
        folder: Path,
        *,
        sockets: Path | None = None,
        limits: Limits | None = None,
        lives: Lives | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        limits = msgspec.structs.replace(limits or Limits(), processes=None)
        self._maker = Maker(folder, sockets=sockets, limits=limits, lives=lives, answer_s=answer_s)

    async def probe(self) -> Capabilities:
        """Return a usable result if there is a Python; nothing is isolated, and a finding says so."""
        if not os.access(PYTHON, os.X_OK):
            finding = Finding("python", "bad", f"{PYTHON} is not there, and tools run under it", "install python3")
            return Capabilities("unsandboxed", False, ISOLATION, (finding,))
        finding = Finding(
            "sandbox", "absent", "no sandbox: commands can do whatever their user can", "leave --no-sandbox out"
        )
        return Capabilities("unsandboxed", True, ISOLATION, (finding, *about_here()))

    async def provision(self, spec: HandsSpec, epoch: int) -> SupervisedHands:
        """Start a supervisor and an agent as the chosen user."""
        user, plan = await anyio.to_thread.run_sync(self._plan, spec)
        spec = msgspec.structs.replace(spec, env={name: _on_host(text, spec) for name, text in spec.env.items()})
        return await self._maker.make(spec, epoch, user, plan, _refuse)

    async def attach(self, identity: HandsProvisioned) -> SupervisedHands:
        """Return the incarnation of that event, dead or alive."""
        return self._maker.attach(identity)

    def _plan(self, spec: HandsSpec) -> tuple[HandsUser, Plan]:
        if spec.network is not None:
            raise SandboxUnavailable(
                "hands without a sandbox use this machine's own network and get no way outside; nothing was started: "
                "leave it out of the session's policy, or use a sandbox"
            )
        output = str(self._maker.place(spec.hands_id) / "output")
        root = self._maker.separate(spec.workspace.path)
        user = choose_user(spec.workspace)
        make_ready(spec.workspace, user, home=self._maker.folder.parent)
        argv = agent_command("/proc/self/fd/{fd:agent}")
        plan = Plan(
            "unsandboxed", argv, _environment(user, root), {"agent": blob(agent_parts())}, root, output, ISOLATION
        )
        return user, plan


def _on_host(text: str, spec: HandsSpec) -> str:
    for outside, inside in spec.read_only.items():
        text = text.replace(inside, outside)
    return text


def _refuse(problem: str) -> Exception:
    return SandboxUnavailable(f"the hands did not start without a sandbox either: {problem}")


def _environment(user: HandsUser, root: str) -> dict[str, str]:
    try:
        entry = pwd.getpwuid(user.uid)
        home, name = entry.pw_dir, entry.pw_name
    except KeyError:
        home, name = root, str(user.uid)
    return {
        "PATH": PATH,
        "HOME": home if os.path.isdir(home) else root,
        "USER": name,
        "LOGNAME": name,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
