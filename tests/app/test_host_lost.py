"""A machine that is lost with its processes and its disk: another one continues from the database and the objects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.rigs import picture
from tests.support.databases import free_port, postgres_server
from tests.support.lost_host import Host
from tests.support.waiting import until

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


@pytest.mark.faults
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


SEND = ("send", "trip", "Go on.")


def test_a_session_goes_from_machine_to_machine_and_back(postgres: str, tmp_path: Path) -> None:
    """Opened where no worker is, begun elsewhere, continued on a third machine, and then where an old folder is."""
    home, objects = tmp_path / "home", f"file://{tmp_path / 'objects'}"
    a, b, c = (Host(home, postgres, PASSWORD, objects, tmp_path / name) for name in "abc")
    a.holdfast("migrate")
    calls = ("echo from a > f; ls", "cat f; echo from b > f", "cat f")
    turns = [
        turn
        for call in calls
        for turn in ({"tool_calls": [{"name": "bash", "input": {"command": call}}]}, {"text": "Done."})
    ]
    talk = tmp_path / "talk.json"
    talk.write_text(json.dumps({"turns": turns}))
    run = ("run", "Go.", "--scratch", "--model", f"scripted:{talk}", "--session-id", "trip", "--detach")
    for number, (host, words) in enumerate(((a, run), (b, SEND), (a, SEND)), start=1):
        with host.worker():
            until(lambda: '"capacity":8' in c.holdfast("ps", "--workers", "--json").stdout)
            sent = c.holdfast(*words)
            assert sent.returncode == 0, sent.stderr
            until(lambda: len(host.events("trip", "shift.ended")) == number)  # noqa: B023
    said = [event["content"] for event in c.events("trip", "agent.tool_result")]
    assert said == ["f\n", "from a\n", "from b\n"]
    places = [event["place"] for event in c.events("trip", "shift.started")]
    assert places[0] == places[2] != places[1]
    assert len(c.events("trip", "hands.restored")) == 2
