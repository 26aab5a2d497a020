"""Environments in memory, with the verbs and semantics of the real store."""

from __future__ import annotations

import hashlib

import anyio
import msgspec

from holdfast.environment.base import WORKSPACE, Draft, Laid, Made, Release, Tools, Wanted
from holdfast.facts.hands import EnvironmentRecorded, HandsProvisioned
from holdfast.facts.session import Environment, Workspace


class FakeEnvironments:
    """A store of environments in memory.

    Several instances with one `shelf` simulate several processes of one home. `die` kills one of them.
    """

    def __init__(self, shelf: Shelf | None = None) -> None:
        self.shelf = shelf or Shelf()
        self._holding: set[str] = set()

    async def look(self, workspace: Workspace, policy: Environment, uid: int) -> Wanted:
        """See `Environments.look`; only the commands of the policy count."""
        made_from = msgspec.json.encode((policy, workspace.origin or workspace.path, uid))
        return Wanted(
            digest=hashlib.sha256(made_from).hexdigest()[:40],
            commands=policy.setup,
            packages=policy.packages,
            base=hashlib.sha256(" ".join(policy.packages).encode()).hexdigest()[:40] if policy.packages else "",
            env={"PATH": "/usr/bin:/bin"},
            services=policy.services,
        )

    async def find(self, wanted: Wanted) -> Made | None:
        """See `Environments.find`."""
        return self.shelf.made.get(wanted.digest)

    async def prepare(self, wanted: Wanted, owner: tuple[int, int], release: Release) -> Draft | Made:
        """See `Environments.prepare`."""
        while True:
            made = await self.find(wanted)
            if made is not None:
                return made
            if wanted.digest not in self.shelf.held:
                break
            await self.shelf.changed()
        self.shelf.held.add(wanted.digest)
        self._holding.add(wanted.digest)
        for hands in self.shelf.hands.pop(wanted.digest, []):
            await release(hands)
        folder = f"/fake/environments/making/{wanted.digest}"
        return Draft(
            wanted.digest, folder, *(f"{folder}/{part}" for part in ("packages", "workspace", "shared", "scratch"))
        )

    async def begun(self, draft: Draft, hands: HandsProvisioned) -> None:
        """See `Environments.begun`."""
        self.shelf.hands.setdefault(draft.digest, []).append(hands)

    async def tools(self) -> Tools:
        """See `Environments.tools`; there are none."""
        return Tools()

    async def seal(
        self, draft: Draft, wanted: Wanted, real: str, record: EnvironmentRecorded, base: Made | None = None
    ) -> Made:
        """See `Environments.seal`."""
        folder = f"/fake/environments/{draft.digest}"
        made = Made(
            folder, (Laid(f"{WORKSPACE}/made", f"{folder}/workspace/made", "own"),), record, base.folder if base else ""
        )
        self.shelf.made[draft.digest] = made
        self.shelf.hands.pop(draft.digest, None)
        self._free(draft.digest)
        return made

    async def give_up(self, draft: Draft) -> None:
        """See `Environments.give_up`."""
        self.shelf.hands.pop(draft.digest, None)
        self._free(draft.digest)

    def _free(self, digest: str) -> None:
        if digest in self._holding:
            self._holding.discard(digest)
            self.shelf.held.discard(digest)
            self.shelf.change()

    # --- for tests ---

    def die(self) -> None:
        """Kill this process: its locks are released and its drafts stay."""
        for digest in list(self._holding):
            self._free(digest)


class Shelf:
    """State shared by all processes of a home: layers, locks, and recorded hands."""

    def __init__(self) -> None:
        self.made: dict[str, Made] = {}
        self.held: set[str] = set()
        self.hands: dict[str, list[HandsProvisioned]] = {}
        self._change = anyio.Event()

    def change(self) -> None:
        """Wake waiting processes."""
        self._change.set()
        self._change = anyio.Event()

    async def changed(self) -> None:
        """Wait until a lock is released."""
        await self._change.wait()
