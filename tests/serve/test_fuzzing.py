"""Requests that schemathesis makes from the description of the API: no server error, and each answer is as described.

Event streams, which do not end, are left out; `test_streams` has them. Two checks are left out: valid data may be
refused for its meaning, such as a position beyond the end of a log, and too many wrong keys get status 429
(`test_access`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.serve.served import API, Served, quick, serving
from tests.support.web_home import populate, web_home

EXISTING = """
[parameters]
"path.session" = "ses_flakytests"
"path.item" = "itm_0001"
"path.account" = "home:all"
"""
"""Names in paths that lead to something; without them, schemathesis makes up names."""


@pytest.fixture(scope="module")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of a home with sessions in all states."""
    folder = tmp_path_factory.mktemp("fuzzed")
    folder.chmod(0o711)
    anyio.run(_populated, folder / "home")
    with serving(folder / "home", model=quick(folder)) as server:
        yield server


async def _populated(home: Path) -> None:
    async with web_home(home) as made:
        await populate(made)


def fuzz(served: Served, folder: Path, *words: str, settings: str = EXISTING) -> None:
    """Make requests to the server. Fails with the report for what they find."""
    (folder / "schemathesis.toml").write_text(settings)
    command = (
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run", "--no-color"),
        *("--header", f"Authorization: Bearer {served.key('ada', 'admin')}", "--request-timeout", "30"),
        *(
            "--exclude-path-regex",
            "stream$",
            "--exclude-checks",
            "positive_data_acceptance,ignored_auth",
            "--continue-on-failure",
        ),
        *("--generation-database", "none", *words, f"{served.url}{API}/openapi.json"),
    )
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    assert "Tested: 25" in done.stdout
    errors = Path(f"{served.home}.err").read_text()
    assert "Traceback" not in errors, errors[-4_000:]


def test_the_api_answers_as_it_is_described(populated: Served, tmp_path: Path) -> None:
    fuzz(populated, tmp_path, "--phases", "fuzzing", "--max-examples", "1", "--seed", "1")


@pytest.mark.faults
def test_the_api_answers_as_it_is_described_for_three_minutes(populated: Served, tmp_path: Path) -> None:
    fuzz(populated, tmp_path, "--max-time", "60", settings="")
    fuzz(populated, tmp_path, "--max-time", "120")
