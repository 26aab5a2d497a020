"""Layers on disk, under `<home>/environments`: each is complete or absent.

```
<digest>/              a finished layer; `made.json` in it lists its paths
making/<digest>/       a draft; its maker may have died
making/<digest>.lock   locked by the maker, and released if it dies
```

A draft becomes a layer by one rename, after its bytes are on disk. Hands that use a layer lock its folder while they
live, and `tidy` removes only unlocked layers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from pathlib import Path

import anyio
import msgspec

from holdfast.clock import Clock
from holdfast.environment import registries
from holdfast.environment.base import SHARED, Draft, Laid, Made, Release, Tools, Wanted
from holdfast.environment.detect import look
from holdfast.environment.layers import keep_new, packages_laid, remove, size_of
from holdfast.errors import CannotRunSafely, EnvironmentFailed, StorageFull
from holdfast.facts.hands import EnvironmentRecorded, HandsProvisioned
from holdfast.facts.session import Environment, Workspace
from holdfast.locks import is_at, try_flock
from holdfast.privileges import folder_mode

BYTES_MAX = 20 << 30
"""Bytes of layers that are kept; above this limit, the least recently used layer is removed first."""

UNUSED_S = 30 * 24 * 3600.0
"""Time after which an unused layer is removed, in seconds."""

FRESH_S = 3600.0
"""Time after its last use during which a layer is never removed, in seconds: hands for it may be starting."""

HANDS_LIVE_S = 25 * 3600.0
"""Longest life of hands after their maker died, in seconds."""

_PARTS = (
    *("packages", "workspace", "workspace.work", "shared", "shared.work"),
    *("scratch", "scratch.work", "scratch/home", "scratch/tmp"),
)
_WAIT_S = 0.05
_MADE = "made.json"
_HANDS = "hands.jsonl"

_made = msgspec.json.Decoder(Made)
_hands = msgspec.json.Decoder(HandsProvisioned)


class LayerStore:
    """Store of layers in one folder, shared by all processes of the home."""

    def __init__(self, folder: Path, clock: Clock, *, bytes_max: int = BYTES_MAX, unused_s: float = UNUSED_S) -> None:
        self._folder = folder
        self._making = folder / "making"
        self._clock = clock
        self._bytes_max = bytes_max
        self._unused_s = unused_s
        self.locks: dict[str, int] = {}

    async def look(self, workspace: Workspace, policy: Environment, uid: int) -> Wanted:
        """See `Environments.look`."""
        origin = workspace.origin if workspace.disposable else ""
        return await anyio.to_thread.run_sync(look, workspace.path, policy, uid, origin)

    async def tools(self) -> Tools:
        """See `Environments.tools`."""
        return await anyio.to_thread.run_sync(registries.discover)

    async def find(self, wanted: Wanted) -> Made | None:
        """See `Environments.find`."""
        return await anyio.to_thread.run_sync(self._find, wanted.digest)

    def _find(self, digest: str) -> Made | None:
        folder = self._folder / digest
        try:
            made = _made.decode((folder / _MADE).read_bytes())
            for path in made.folders:
                os.utime(Path(path) / _MADE)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise EnvironmentFailed(
                f"the environment in {folder} cannot be read ({error}); nothing was changed. Remove that folder, "
                "and it is made again"
            ) from None
        return made

    async def prepare(self, wanted: Wanted, owner: tuple[int, int], release: Release) -> Draft | Made:
        """See `Environments.prepare`."""
        await anyio.to_thread.run_sync(self._ready)
        while True:
            made = await self.find(wanted)
            if made is not None:
                return made
            if self._lock(wanted.digest):
                break
            await anyio.sleep(_WAIT_S)
        try:
            made = await self.find(wanted)
            if made is not None:
                self._unlock(wanted.digest)
                return made
            for hands in self._left(wanted.digest):
                await release(hands)
            return await anyio.to_thread.run_sync(self._draft, wanted.digest, owner)
        except BaseException:
            self._unlock(wanted.digest)
            raise

    def _ready(self) -> None:
        try:
            for path in (self._folder.parent, self._folder, self._making):
                path.mkdir(mode=folder_mode(), exist_ok=True)
        except OSError as error:
            raise CannotRunSafely(f"{self._making} for environments cannot be made: {error.strerror}") from None

    def _lock(self, digest: str) -> bool:
        """Lock a digest for the life of this process; return False while another process holds it."""
        path = self._making / f"{digest}.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if try_flock(fd) and is_at(fd, path):
            self.locks[digest] = fd
            return True
        os.close(fd)
        return False

    def _unlock(self, digest: str) -> None:
        fd = self.locks.pop(digest, -1)
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._making / f"{digest}.lock")
            os.close(fd)

    def _left(self, digest: str) -> list[HandsProvisioned]:
        """Read the recorded hands of a maker that died."""
        try:
            lines = (self._making / digest / _HANDS).read_bytes().splitlines()
        except FileNotFoundError:
            return []
        out = []
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError):  # the last line may be cut
                out.append(_hands.decode(line))
        return out

    def _draft(self, digest: str, owner: tuple[int, int]) -> Draft:
        folder, final = self._making / digest, self._folder / digest
        remove(folder)
        try:
            (final / _MADE).unlink(missing_ok=True)  # a layer whose packages were removed
            remove(final)
            folder.mkdir(mode=0o711)
            folder.chmod(0o711)
            for name in _PARTS:
                (folder / name).mkdir(mode=0o755)
                (folder / name).chmod(0o755)
                os.chown(folder / name, *owner)
        except OSError as error:
            raise _trouble(folder, error) from None
        parts = (str(folder / name) for name in ("packages", "workspace", "shared", "scratch"))
        return Draft(digest, str(folder), *parts)

    async def begun(self, draft: Draft, hands: HandsProvisioned) -> None:
        """See `Environments.begun`."""
        await anyio.to_thread.run_sync(self._note, draft, hands)

    def _note(self, draft: Draft, hands: HandsProvisioned) -> None:
        with open(Path(draft.folder) / _HANDS, "ab") as file:
            file.write(msgspec.json.encode(hands) + b"\n")

    async def seal(
        self, draft: Draft, wanted: Wanted, real: str, record: EnvironmentRecorded, base: Made | None = None
    ) -> Made:
        """See `Environments.seal`. Removes unused layers afterwards."""
        made = await anyio.to_thread.run_sync(self._seal, draft, wanted, real, record, base)
        self._unlock(draft.digest)
        await anyio.to_thread.run_sync(self.tidy)
        return made

    def _seal(self, draft: Draft, wanted: Wanted, real: str, record: EnvironmentRecorded, base: Made | None) -> Made:
        folder, final = Path(draft.folder), self._folder / draft.digest
        try:
            kept = keep_new(Path(draft.workspace), Path(real), lfs=wanted.lfs)
            for name in ("workspace.work", "shared.work", "scratch.work", "scratch", _HANDS):
                remove(folder / name)
            laid = [*kept.laid]
            if (Path(draft.packages) / "root").is_dir():
                laid = [*packages_laid(Path(draft.packages) / "root"), *laid]
            if os.listdir(draft.shared):
                laid.append(Laid(SHARED, draft.shared, "own"))
            laid = [msgspec.structs.replace(each, path=each.path.replace(str(folder), str(final), 1)) for each in laid]
            if base is not None:
                laid = [*base.laid, *laid]
            changed = f"changes to {', '.join(kept.changed[:10])} were left out: the workspace had them before"
            size = size_of(folder)
            record = msgspec.structs.replace(
                record,
                bytes=size + (base.bytes if base is not None else 0),
                folders=tuple(each.inside for each in laid),
                notes=(*record.notes, *((changed,) if kept.changed else ())),
            )
            made = Made(str(final), tuple(laid), record, base.folder if base is not None else "", size)
            (folder / _MADE).write_bytes(msgspec.json.encode(made))
            subprocess.run(["/bin/sync", "-f", str(folder)], check=False, env={})
            os.rename(folder, final)
        except OSError as error:
            raise _trouble(folder, error) from None
        return made

    async def give_up(self, draft: Draft) -> None:
        """See `Environments.give_up`."""
        try:
            await anyio.to_thread.run_sync(remove, Path(draft.folder))
        finally:
            self._unlock(draft.digest)

    def tidy(self) -> int:
        """Remove abandoned drafts, layers long unused, and layers beyond `bytes_max`, except those in use.

        Returns the number of removed layers.
        """
        now, total, gone = self._clock.now_us() / 1_000_000, 0, 0
        for lock in self._making.glob("*.lock"):
            digest = lock.name.removesuffix(".lock")
            old = now - lock.stat().st_mtime > HANDS_LIVE_S
            if digest not in self.locks and (old or not self._left(digest)) and self._lock(digest):
                remove(self._making / digest)
                self._unlock(digest)
        for used, size, folder in sorted(self._layers(), reverse=True):
            total += size
            age = now - used
            if (age > self._unused_s or total > self._bytes_max) and age > FRESH_S and self.discard(folder):
                total -= size
                gone += 1
        return gone

    def unused(self, before_s: float) -> list[tuple[Path, int]]:
        """Return the layers that were last used before a time, with their bytes."""
        before_s = min(before_s, self._clock.now_us() / 1_000_000 - FRESH_S)
        return [(folder, size) for used, size, folder in self._layers() if used < before_s]

    def discard(self, folder: Path) -> bool:
        """Remove a layer; False if hands use it."""
        if not _free(folder):
            return False
        remove(folder)
        return True

    def _layers(self) -> list[tuple[float, int, Path]]:
        """Return the time of last use, size, and folder of each layer."""
        out = []
        for path in self._folder.glob(f"*/{_MADE}"):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                made = _made.decode(path.read_bytes())
                out.append((path.stat().st_mtime, made.bytes, path.parent))
        return out


def _free(folder: Path) -> bool:
    """Invalidate a layer before its removal; return False if hands use it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not try_flock(fd):
            return False
        (folder / _MADE).unlink()
        return True
    except FileNotFoundError:
        return False
    finally:
        os.close(fd)


def _trouble(folder: Path, error: OSError) -> EnvironmentFailed | StorageFull:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no space left for an environment in {folder}; free some space, then try again")
    return EnvironmentFailed(f"the environment could not be kept in {folder}: {error.strerror}; nothing was kept of it")
