"""Hands on another machine, which has a Holdfast of its own: over ssh, or over any program that carries two streams."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from holdfast.errors import HandsUnreachable, SandboxUnavailable, UsageError
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import Capabilities, Finding, HandsSpec
from holdfast.hands.far.carry import pack_folder
from holdfast.hands.far.client import LONG_S, FarEnd, FarHands
from holdfast.hands.far.link import Link
from holdfast.hands.far.wire import Begin

_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?")

SSH_OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15"),
    *("-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes", "-a", "-x"),
)
"""No terminal, no question, no agent and nothing forwarded: the far end gets no credential."""


def ssh_command(where: str, *, program: str = "ssh", serve: str = "holdfast hands serve") -> tuple[str, ...]:
    """The command for `[USER@]HOST[:PORT]`. Raises `UsageError` for what is no such name."""
    if not _HOST.fullmatch(where):
        raise UsageError(f"{where!r} is no host to reach by ssh; write ssh:HOST, ssh:USER@HOST or ssh:USER@HOST:PORT")
    host, _, port = where.partition(":")
    return (program, *SSH_OPTIONS, *(("-p", port) if port else ()), "--", host, serve)


class FarProvider:
    """Makes hands at the end of a link.

    `spool` is a folder of ours for what is on its way; `name` stands in events, such as `ssh:build1`.
    """

    def __init__(self, link: Link, spool: Path, *, name: str) -> None:
        self._end = FarEnd(link, spool)
        self._name = name

    async def probe(self) -> Capabilities:
        """What the far end's own probe says."""
        try:
            found = await self._end.ask("probe", Capabilities, answer_s=60.0)
        except HandsUnreachable as error:
            finding = Finding("hands", "bad", str(error), "see that it can be reached, for example with ssh HOST true")
            return Capabilities(self._name, False, findings=(finding,))
        works = Finding("hands", "ok", f"{self._name} answers; what follows is how it is there")
        return Capabilities(self._name, found.usable, found.isolation, (works, *found.findings))

    async def provision(self, spec: HandsSpec, epoch: int) -> FarHands:
        """Send the workspace, unless the hands that `spec` continues left it there, and have hands made."""
        self._refuse(spec)
        async with self._end.spooled() as (path, transfer):
            begin = Begin(spec.session_id, spec.hands_id, transfer, spec.policy, spec.env, continues=spec.continues)
            if spec.continues:
                return await self._begin(begin, spec, epoch)
            await pack_folder(spec.workspace.path, path, git=True)
            with path.open("rb") as file:
                await self._end.send(file, transfer)
            try:
                return await self._begin(msgspec.structs.replace(begin, transfer=transfer), spec, epoch)
            finally:
                await self._end.drop(transfer)

    def _refuse(self, spec: HandsSpec) -> None:
        """What belongs to this host is not there; nothing is left out silently."""
        for wanted, what in (
            (spec.network is not None, "a way outside"),
            (bool(spec.layers or spec.files), "a prepared environment"),
            (bool(spec.read_only), "folders of this host"),
        ):
            if wanted:
                raise SandboxUnavailable(
                    f"{what} was asked for, and hands at {self._name} cannot have that; nothing was started: leave it "
                    "out of the session's policy, or use hands on this host"
                )

    async def _begin(self, begin: Begin, spec: HandsSpec, epoch: int) -> FarHands:
        made = await self._end.ask("begin", HandsProvisioned, epoch=epoch, answer_s=LONG_S, begin=begin)
        identity = msgspec.structs.replace(
            made, provider=self._name, workspace=spec.workspace.path, holds_workspace=True
        )
        return FarHands(identity, self._end)

    async def attach(self, identity: HandsProvisioned) -> FarHands:
        """The incarnation of that event, dead or alive. Nothing is asked yet."""
        return FarHands(identity, self._end)
