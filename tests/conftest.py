"""What all tests share: no network, a home of their own, folders that any uid can pass through.

- `HOLDFAST_HOME` and `XDG_CONFIG_HOME` are folders of the test; of other `HOLDFAST_*` only `HOLDFAST_TEST_*` are set.
- `tmp_path` lies under a folder that other uids may pass through (0711), since hands started as
  root drop to another uid. Make what they should write or read theirs.
- Tests run side by side (`-n`): each worker has a folder of its own below the run's.
- The local time zone is UTC.
- Async tests need no mark. They run on asyncio.
- Python writes bytecode, also where `PYTHONDONTWRITEBYTECODE` is set: thousands of processes import the same modules.
- Processes that a test leaves behind are ended after the run, and named.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.offline.sitecustomize import forbid_network
from tests.support.child import await_end
from tests.support.waiting import PATIENCE_S

OFFLINE = Path(__file__).parent / "offline"

_HERE = hypothesis.settings(deadline=None, max_examples=50)
hypothesis.settings.register_profile("here", _HERE)
hypothesis.settings.register_profile("ci", _HERE, derandomize=True, database=None, print_blob=True)
hypothesis.settings.register_profile("fast", _HERE, max_examples=10)
hypothesis.settings.register_profile("full", _HERE, max_examples=1_000)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

forbid_network()

os.environ["TZ"] = "UTC"  # of this machine: times that users read are local
time.tzset()


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a base folder of its own and a clean environment."""
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="holdfast-tests-", dir=_in_memory())
    for name in [name for name in os.environ if re.match("HOLDFAST_(?!TEST_)", name)]:
        del os.environ[name]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.pop("PYTHONUNBUFFERED", None)  # it hides what a stream still has to write at the end of a process
    sys.dont_write_bytecode = False
    paths = [str(OFFLINE), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell: children would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _in_memory() -> str | None:
    """The memory file system, where it has room: thousands of syncs to a disk take a sixth of the processor time."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return None
    return "/dev/shm" if found.f_bavail * found.f_frsize > MEMORY_BYTES and os.access("/dev/shm", os.W_OK) else None


MEMORY_BYTES = 6 << 30
"""Room that the folders of a run need in memory."""

LONG = (
    "faults/test_storm.py", "app/test_findings.py", "brain/test_proving.py", "log/test_crashes.py",
    "log/test_elsewhere.py", "app/test_mission_demo.py", "app/test_missions.py", "house/test_docs.py",
    "brain/test_proving_programs.py", "model/test_wire_faults.py", "log/test_postgres.py",
    "hands/test_providers_far.py", "hands/test_conformance.py", "egress/test_told.py", "sim/test_missions.py",
)  # fmt: skip
"""Files that take more than 20 seconds, the longest first: begun first, so that none is left alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first."""
    here = Path(__file__).parent
    place = {here / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def pytest_collection_finish() -> None:
    """Keep the collected tests out of garbage collection: walking them again and again took a tenth of the time.

    The default, a search after every 700 new objects, still took a seventh of the time of tests in this process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what the tests left running; remove their folders when all is well."""
    base = Path(session.config.option.basetemp)
    left = _left_behind(base)
    for pid in left:
        with _gone_is_fine():
            os.kill(pid, signal.SIGKILL)
    for pid, what in left.items():
        print(f"\nleft behind by a test and ended: {pid} {what}", end="")
    if session.testsfailed == 0:
        shutil.rmtree(base, ignore_errors=True)
    else:
        print(f"\nthe folders of the tests are kept in {base}", end="")


class _gone_is_fine:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        return kind is not None and issubclass(kind, OSError)


def _left_behind(base: Path) -> dict[int, str]:
    """Processes that name `base` in their command or environment: pid → command."""
    found: dict[int, str] = {}
    needle = os.fsencode(base) + b"/"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with _gone_is_fine():
            command = (entry / "cmdline").read_bytes()
            if needle in command or needle in (entry / "environ").read_bytes():
                found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()[:200]
    return found


@pytest.fixture(scope="session", autouse=True)
def _open_base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.getbasetemp()
    base.chmod(0o711)
    if hasattr(request.config, "workerinput"):
        base.parent.chmod(0o711)  # the run's own folder, above that of this worker


@pytest.fixture(scope="module", autouse=True)
def _leaves_nothing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No process that the tests of a file started outlives them; the model server serves all files of a run."""
    yield
    end = time.monotonic() + PATIENCE_S
    while left := {p: w for p, w in _left_behind(tmp_path_factory.getbasetemp()).items() if "/model-server" not in w}:
        assert time.monotonic() < end, f"processes outlive the tests of {request.node.nodeid}: {left}"
        await_end(min(left), end - time.monotonic())


@pytest.fixture(autouse=True)
def holdfast_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of this test; nothing has been made in it. `HOLDFAST_HOME` says it to children.

    The user's own settings, and what they trust, are in a folder of the test as well.
    """
    tmp_path.chmod(0o711)
    home = tmp_path / "home"
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return home


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio."""
    return "asyncio"
