"""A home whose log is in PostgreSQL: its tables, its verbs, and its password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.databases import free_port, postgres_server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.real

PASSWORD = "T0PS3CRET"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for the tests of this file, without the password."""
    with postgres_server(tmp_path_factory.mktemp("postgres"), free_port(), PASSWORD) as address:
        yield address


def test_a_log_moves_to_postgresql_and_back(postgres: str, holdfast_home: Path, tmp_path: Path) -> None:
    """One session that goes on in each of the databases."""

    def holdfast(*words: str, db: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PGPASSWORD": PASSWORD, "HOLDFAST_DB": db}
        command = [sys.executable, "-m", "holdfast", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    theirs = postgres.replace("/postgres", "/moved")
    with psycopg.connect(postgres, password=PASSWORD, autocommit=True) as connection:
        connection.execute("create database moved encoding 'UTF8' template template0")
    talk = tmp_path / "talk.json"
    talk.write_text(json.dumps({"turns": [{"text": text} for text in ("One.", "Two.", "Three.")]}))
    file, back = f"sqlite:///{holdfast_home}/holdfast.db", f"sqlite:///{tmp_path}/back.db"
    run = ("run", "Say it.", "--scratch", "--no-sandbox", "--model", f"scripted:{talk}", "--session-id", "moves")
    assert holdfast(*run, db="").stdout == "One.\n"
    for source, target, word in ((file, theirs, "Two."), (theirs, back, "Three.")):
        for wrong in ((source, source), (source, "mysql://x")):
            assert holdfast("migrate", *wrong, db="").returncode == 2
        moved = holdfast("migrate", source, target, db="")
        assert (moved.returncode, "all chains and rows verify" in moved.stdout) == (0, True), moved.stderr
        assert f"Set HOLDFAST_DB={target}" in moved.stderr
        again = holdfast("migrate", source, target, db="")
        assert (again.returncode, "nothing was copied" in again.stderr) == (2, True)
        assert holdfast("send", "moves", "go on", "--no-wake", db=target).returncode == 0
        assert holdfast("wake", "moves", db=target).stdout == f"{word}\n"
        assert "all chains and rows verify" in holdfast("verify", db=target).stdout
    assert sorted(path.name for path in tmp_path.glob(".back*")) == []


def test_a_home_keeps_its_log_in_postgresql(postgres: str, holdfast_home: Path, tmp_path: Path) -> None:
    """`migrate` makes the tables; a run, its views, and a background process then use them, and no file."""
    env = {**os.environ, "PGPASSWORD": PASSWORD}

    def holdfast(*words: str, db: str = postgres) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast", *words]
        done = subprocess.run(
            command, env={**env, "HOLDFAST_DB": db}, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert PASSWORD not in done.stdout + done.stderr
        return done

    secret = postgres.replace("@", f":{PASSWORD}@")
    for refused in (holdfast("ps", db=secret), holdfast("migrate", secret)):
        assert (refused.returncode, "~/.pgpass" in refused.stderr) == (2, True)
    assert "holdfast migrate" in holdfast("ps").stderr
    assert "created the tables" in holdfast("migrate", postgres).stdout
    assert "nothing to do" in holdfast("migrate").stdout
    doctor = holdfast("doctor")
    assert (doctor.returncode, "a crash of its machine may lose" in doctor.stdout) == (5, True)

    talk = tmp_path / "talk.json"
    call = {"name": "bash", "input": {"command": "echo hi > a.txt; cat a.txt"}}
    talk.write_text(json.dumps({"turns": [{"tool_calls": [call]}, {"text": "Done."}, {"text": "Again."}]}))
    run = ("run", "Say it.", "--scratch", "--no-sandbox", "--model", f"scripted:{talk}", "--session-id", "noted")
    assert holdfast(*run).stdout == "Done.\n"
    assert "noted" in holdfast("ps", "--all").stdout
    assert "agent.tool_result" in holdfast("logs", "noted").stdout
    assert "goes on in the background" in holdfast("send", "noted", "and again").stderr
    assert "Again." in holdfast("wake", "noted").stdout
    assert "all chains and rows verify" in holdfast("verify").stdout
    assert "pg_dump" in holdfast("backup", str(tmp_path / "night.tar.gz")).stderr
    assert not (holdfast_home / "holdfast.db").exists()
