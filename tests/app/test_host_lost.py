"""A machine that is lost with its processes and its disk: another one continues from the database and the objects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.rigs import picture
from tests.support.databases import free_port, postgres_server
from tests.support.lost_host import Host

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make a machine of processes that end together"),
]

PASSWORD = "T0PS3CRET"
MAKE = "echo one > kept; mkdir -p deep/er empty; head -c 3000000 /dev/urandom > deep/er/random; ln -s kept link"
CHECK = "cat kept; sha256sum < deep/er/random; ls -d empty link"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for the tests of this file, without the password."""
    with postgres_server(tmp_path_factory.mktemp("postgres"), free_port(), PASSWORD) as address:
        yield address


def test_another_machine_continues(postgres: str, holdfast_home: Path, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    host = Host(holdfast_home, postgres, PASSWORD, f"file://{objects}")
    assert host.holdfast("migrate").returncode == 0
    assert "an object was written, read back, and deleted" in host.holdfast("doctor").stdout
    workspace, held = host.lose("lost", tmp_path / "talk.json", MAKE, "sleep 900", CHECK)
    digest = held[b"deep/er/random"][1].hex()

    restored = host.finish("lost")
    assert [(bool(each["snapshot"]), bool(each["content"])) for each in restored] == [(True, True)]
    assert "done" in host.holdfast("ps", "--all").stdout
    assert len(host.events("lost", "tool.outcome_unknown")) == 1
    assert host.events("lost", "agent.tool_result")[-1]["content"] == f"one\n{digest}  -\nempty\nlink\n"
    assert picture(workspace) == held
    assert "all chains and rows verify" in host.holdfast("verify").stdout
    assert host.holdfast("rm", "lost", "--yes").returncode == 0
    assert [path for path in objects.rglob("*") if path.is_file()] == []
