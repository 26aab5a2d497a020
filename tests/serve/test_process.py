"""`holdfast serve` as a process: its place, its signals, kill -9, and what it refuses."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.app.families import until
from tests.app.terminal import Type, ended, rows, script, spawn, turn, typed
from tests.serve.served import API, Served, ends, failure, quick, serving


def test_one_server_per_home(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    type("open").refused(5, "no server runs", "holdfast serve")
    with serving(holdfast_home, model=quick(tmp_path)) as server:
        typed("serve", "--port", "0").refused(5, f"process {server.process.pid}", server.url, "nothing was started")
        told = type("open", "--json").went().lines[0]
        assert told["url"] == server.url
        with server.client(accept="text/html") as browser:
            assert browser.get(told["link"]).status_code == 200
            assert browser.get("/").status_code == 200
        said = server.stop()
        assert said.code == 0, said
        assert "stopped" in said.err.splitlines()[-1]
    type("open").refused(5, "no server runs")


def test_a_desktop_opens_the_link_from_a_private_file(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    programs, seen = tmp_path / "bin", tmp_path / "seen"
    programs.mkdir()
    (programs / "xdg-open").write_text(f'#!/bin/sh\necho "$@" > {seen}.new\nmv {seen}.new {seen}\n')
    (programs / "xdg-open").chmod(0o755)
    with serving(holdfast_home) as server:
        said = typed("open", env={"PATH": f"{programs}:{os.environ['PATH']}", "DISPLAY": ":0"}).went()
        until(seen.exists, server.process)
    link = said.out.split()[1]
    page = holdfast_home / "login.html"
    assert seen.read_text() == f"{page.as_uri()}\n"
    assert link in page.read_text()
    assert page.stat().st_mode & 0o077 == 0


def test_what_is_refused_starts_nothing(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        type("serve", "--port", port).refused(5, port, "in use", "--port")
    type("serve", "--host", "0.0.0.0", "--port", "0").refused(5, "API key", "holdfast keys create")
    type("serve", "--host", "localhost").refused(2, "IP address")
    type("serve", "--port", "70000").refused(2, "70000")
    type("serve", "--url", "ftp://x").refused(2, "--url")
    type("serve", "--concurrency", "1000").refused(2, "--concurrency")
    (tmp_path / "file").write_text("")
    type("serve", "--home", tmp_path / "file").refused(5, "home")
    assert not rows(holdfast_home / "holdfast.db", "select 1 from sessions where session_id like 'ses%'")


def test_keys_are_made_listed_and_revoked(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    assert "no API keys" in type("keys", "list").went().err
    made = type("keys", "create", "anna", "--role", "operator", "--project", tmp_path, "--expires", "2h").went()
    key = made.out.strip()
    (row,) = type("keys", "list", "--json").went().lines
    assert (row["name"], row["role"], row["project"]) == ("anna", "operator", str(tmp_path))
    assert row["expires_at"] > row["created_at"]
    assert key not in json.dumps(row)
    assert oct((holdfast_home / "access.db").stat().st_mode & 0o777) == "0o600"
    type("keys", "create").refused(2, "say which")
    type("keys", "create", "two words").refused(2, "user name")
    type("keys", "create", "x", "--project", "none").refused(2, "not a folder")
    type("keys", "list", "x").refused(2, "no name")
    type("keys", "revoke", "x", "--role", "viewer").refused(2, "--role")
    type("keys", "revoke", "key_none").refused(2, "key_none", "keys list")
    assert "anna" in type("keys", "revoke", row["id"]).went().out
    assert type("keys", "list", "--json").went().lines == []


def test_a_killed_server_loses_nothing(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    slow = script(tmp_path / "slow.json", turn(text="late", delay_s=600.0))
    with serving(holdfast_home, model=slow) as server:
        key = server.key("ada", "admin")
        with server.client(key) as client, server.browser() as browser:
            client.post(API + "/sessions", json={"goal": "x", "key": "k"})
            until(lambda: client.get(f"{API}/sessions/k").json()["state"] == "running", server.process)
            cookies = dict(browser.cookies)
            server.process.kill()
            server.ended()
    script(tmp_path / "slow.json", turn(text="late"))
    port = server.url.rpartition(":")[2]
    with serving(holdfast_home, "--port", port, model=slow) as server:
        with server.client(key) as client, server.client(accept="text/html") as browser:
            until(lambda: client.get(f"{API}/sessions/k").json()["state"] == "done", server.process)
            browser.cookies.update(cookies)
            assert browser.get("/").status_code == 200, "a restart ended the login"
            assert client.get(f"{API}/sessions/k/verify").json()["ok"] is True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_releases_sessions_and_ends_streams(
    type: Type, tmp_path: Path, holdfast_home: Path, number: signal.Signals, code: int
) -> None:
    slow = script(tmp_path / "slow.json", turn(text="late", delay_s=600.0))
    with serving(holdfast_home, model=slow) as server, server.client(server.key("ada", "admin")) as client:
        client.post(API + "/sessions", json={"goal": "x", "key": "k"})
        until(lambda: client.get(f"{API}/sessions/k").json()["state"] == "running", server.process)
        with client.stream("GET", f"{API}/sessions/k/events/stream") as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(number)
            list(lines)  # the stream ends as a whole response
        assert server.ended().went(code).code == code
    row = json.loads(type("ps", "--json").out)
    assert (row["state"], row["detail"]) == ("runnable", "the process was asked to stop")


def test_a_server_whose_output_nobody_reads_goes_on(tmp_path: Path, holdfast_home: Path) -> None:
    process = spawn("serve", "--port", "0", "--json", env={"HOLDFAST_MODEL": quick(tmp_path)})
    assert process.stdout is not None
    assert process.stderr is not None
    told = json.loads(process.stdout.readline())
    for pipe in (process.stdout, process.stderr):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4_096)
    served = Served(holdfast_home, process, told["url"], told["link"])
    with served.client(served.key("ada", "admin")) as client:
        for number in range(8):
            ends(client, client.post(API + "/sessions", json={"goal": f"{number}"}).json()["session_id"])
    process.terminate()
    said = ended(process).went(0)
    assert len(said.out) > 8_192
    assert all(json.loads(line)["type"] != "dropped" for line in said.out.splitlines())


def test_a_shown_demo_is_not_killed_at_random() -> None:
    typed("demo", "--serve", "--kills", "2").refused(2, "--kills", "holdfast demo --serve")


@pytest.mark.faults
def test_the_demo_shows_a_mission_until_it_is_stopped(tmp_path: Path, holdfast_home: Path) -> None:
    with open(tmp_path / "err", "w") as err:
        process = spawn("demo", "--serve", "--library", "mini==1.0", "--json", stderr=err)
    assert process.stdout is not None
    told = json.loads(next(line for line in process.stdout if '"type":"link"' in line))
    with httpx.Client(base_url=told["url"], headers={"accept": "text/html"}, trust_env=False) as browser:
        browser.get(told["link"])
        (mission,) = set(re.findall(r"/missions/(ses_\w+)", browser.get("/missions").text))
        until(lambda: "running" in browser.get(f"/missions/{mission}").text, process)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130, (tmp_path / "err").read_text()
    assert f"holdfast wake {mission}" in (tmp_path / "err").read_text()


def test_another_address_is_served_with_a_key(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    type("keys", "create", "anna").went()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = ("--host", "0.0.0.0", "--port", port, "--url", "https://holdfast.example.com")
    with serving(holdfast_home, *words) as server:
        assert server.url == "https://holdfast.example.com"
        with server.client() as client:
            link = server.link.replace(server.url, f"http://127.0.0.1:{port}")
            failure(client.get(link), 421, "wrong_host")
            logged_in = client.get(link, headers={"host": "holdfast.example.com"})
            assert "; Secure" in logged_in.headers["set-cookie"]


def test_without_the_extra_the_verb_says_so(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ImportError('no', name='uvicorn')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended(spawn("serve", "--home", tmp_path / "home", env={"PYTHONPATH": path})).refused(5, "holdfast[serve]")
