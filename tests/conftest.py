"""What all tests share: no network, a home of their own, folders that any uid can pass through.

- `HOLDFAST_HOME` is a folder of the test; no other `HOLDFAST_*` is set.
- `tmp_path` lies under a folder that other uids may pass through (0711), since hands started as
  root drop to another uid. Make what they should write or read theirs.
- Tests run side by side (`-n`): each worker has a folder of its own below the run's.
- Async tests need no mark. They run on asyncio.
- Processes that a test leaves behind are ended after the run, and named.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import hypothesis
import pytest

from tests.offline.sitecustomize import forbid_network

OFFLINE = Path(__file__).parent / "offline"

hypothesis.settings.register_profile("here", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

forbid_network()


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a base folder of its own and a clean environment."""
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="holdfast-tests-")
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        del os.environ[name]
    paths = [str(OFFLINE), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


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


@pytest.fixture(autouse=True)
def holdfast_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of this test; nothing has been made in it. `HOLDFAST_HOME` says it to children."""
    tmp_path.chmod(0o711)
    home = tmp_path / "home"
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio."""
    return "asyncio"
